"""Ways around the guards: through Python's library, NumPy and mgb."""

from __future__ import annotations

import pytest
from environment_cases import Case, cases, is_never_stale


@pytest.mark.parametrize(
    "case",
    cases("""
### default factory
from dataclasses import dataclass, field
shared = [1]
@dataclass
class P:
    xs: list = field(default_factory=lambda: shared)
def f(): return P().xs[0]
#-> shared[0] = 2
### dataclass replace
from dataclasses import dataclass, replace
@dataclass
class P:
    x: int = 1
    y: int = 2
p = P()
def f(): return replace(p, x=5).y
#-> p.y = 7
### asdict
from dataclasses import dataclass, asdict
@dataclass
class P:
    x: int = 1
p = P()
def f(): return asdict(p)["x"]
#-> p.x = 7
### bound method from instance attr
class A:
    def m(s): return s.k
a = A(); a.k = 1
class B: pass
b = B(); b.fn = a.m
def f(): return b.fn()
#-> a.k = 2
### kwargs forwarded
opts = {"a": 1}
def g(**k): return h(**k)
def h(a): return a
def f(): return g(**opts)
#-> opts["a"] = 2
### inner imports attr
def f():
    import string
    return string.digits
#-> import string; kept = string.digits; string.digits = "x"
### nan
x = float("nan")
def f(): return x != x
#-> x = 1.0
### int subclass
class I(int):
    pass
i = I(3); i.k = 1
def f(): return i + i.k
#-> i.k = 2
### str subclass rebound
class S(str): pass
s = S("a")
def f(): return s + "b"
#-> s = S("z")
### tuple subclass
class T(tuple): pass
t = T([1, [2]])
def f(): return t[1][0]
#-> t[1][0] = 9
### namedtuple with list
from collections import namedtuple
P = namedtuple("P", "x y")
p = P([1], 2)
def f(): return p.x[0]
#-> p.x[0] = 4
### frozen set swap
s = frozenset([1])
def f(): return 1 in s
#-> s = frozenset([2])
### Decimal
from decimal import Decimal
d = Decimal("1.5")
def f(): return d + 1
#-> d = Decimal("2.5")
### Fraction
from fractions import Fraction
q = Fraction(1, 2)
def f(): return q + 1
#-> q = Fraction(3, 2)
### Path
from pathlib import PurePath
p = PurePath("a")
def f(): return p.name
#-> p = PurePath("b")
### datetime
import datetime
d = datetime.date(2020, 1, 1)
def f(): return d.year
#-> d = datetime.date(2021, 1, 1)
### range global
r = range(3)
def f(): return list(r)
#-> r = range(4)
### bytes arr
b = bytearray(b"ab")
def f(): return b[0] + len(b)
#-> b[0] = 5
### memoryview
b = bytearray(b"ab"); m = memoryview(b)
def f(): return m[0]
#-> b[0] = 5
### array module
import array
a = array.array("i", [1, 2])
def f(): return a[0]
#-> a[0] = 5
### ctypes
import ctypes
c = ctypes.c_int(3)
def f(): return c.value
#-> c.value = 5
### weakkeydict
import weakref
class A: pass
a = A(); w = weakref.WeakKeyDictionary(); w[a] = 1
def f(): return w[a]
#-> w[a] = 2
### weak value dict
import weakref
class A: x = 1
a = A(); w = weakref.WeakValueDictionary(); w["a"] = a
def f(): return w["a"].x
#-> a.x = 2
### staticmethod as function
class A:
    @staticmethod
    def s(x): return x * k
k = 1
def f(): return A.s(3)
#-> k = 2
### class decorator made
def reg(c):
    c.extra = 5
    return c
@reg
class A: pass
def f(): return A().extra
#-> A.extra = 6
### init_subclass registry
reg = []
class Base:
    def __init_subclass__(cls): reg.append(cls)
class X(Base): k = 1
def f(): return [c.k for c in reg]
#-> X.k = 2
### subclass check
class A: pass
class B: pass
def f(): return issubclass(B, A)
#-> B = type("B", (A,), {})
### abc register
from abc import ABC
class A(ABC): pass
class B: pass
b = B()
def f(): return isinstance(b, A)
#-> A.register(B)
### bases changed
class A:
    def m(s): return 1
class Z:
    def m(s): return 2
class B(A): pass
b = B()
def f(): return b.m()
#-> B.__bases__ = (Z,)
### exec'd cell through nested def
def outer():
    state = {"n": 1}
    def f():
        def g(): return state["n"]
        return g()
    return f, state
f, state = outer()
#-> state["n"] = 2
### comparision chain with objects
class V:
    def __init__(s, v): s.v = v
    def __lt__(s, o): return s.v < o
a = V(3)
def f(): return 1 if a < 5 else 0
#-> a.v = 9
### sum of objects attr
class V:
    def __init__(s, v): s.v = v
vs = (V(1), V(2))
def f(): return sum(v.v for v in vs)
#-> vs[1].v = 9
### print options
import numpy as np
def f(): return np.array2string(np.array([1.23456]))
#-> np.set_printoptions(precision=2)
### locale of round
import math
def f(): return round(k, 2)
k = 2.345
#-> k = 3.1
### environ get
import os
def f(): return os.environ.get("WATCHED_Q", "no")
#-> os.environ["WATCHED_Q"] = "yes"
### environ loop
import os
def f(): return sorted(k for k in os.environ if k.startswith("WATCHED_R"))
#-> os.environ["WATCHED_R1"] = "yes"
### sys.argv
import sys
def f(): return len(sys.argv)
#-> sys.argv.append("x")
### recursionlimit
import sys
def f(): return sys.getrecursionlimit() > 5000
#-> sys.setrecursionlimit(6000)
### cached_property first
from functools import cached_property
class A:
    @cached_property
    def x(self): return k
a = A(); k = 1
def f(): return a.x
#-> del a.x; k = 2
### lazy attribute write
class A:
    def get(self):
        if not hasattr(self, "_v"): self._v = k
        return self._v
a = A(); k = 1
def f(): return a.get()
#-> del a._v; k = 2
### deque maxlen
from collections import deque
q = deque([1, 2], maxlen=2)
def f(): return [x for x in q]
#-> q.append(3)
### string template
from string import Template
t = Template("$a"); d = {"a": 1}
def f(): return t.substitute(d)
#-> d["a"] = 2
### json
import json
d = {"a": [1]}
def f(): return json.dumps(d)
#-> d["a"].append(2)
### comprehension var scope
k = 1
def f(): return [[k + i for i in range(2)] for _ in range(2)]
#-> k = 2
### del then global
x = 1
def f():
    y = x
    del y
    return x
#-> x = 2
### method alias in class
class A:
    def m(s): return s.k
    n = m
    k = 1
a = A()
def f(): return a.n()
#-> a.k = 2
### callable class attr partialmethod
from functools import partialmethod
class A:
    def m(s, x): return x + s.k
    p = partialmethod(m, 5)
    k = 1
a = A()
def f(): return a.p()
#-> a.k = 2
### contextvar default arg
from contextvars import ContextVar
v = ContextVar("v")
def f(): return v.get(7)
#-> v.set(3)
### module walk written
import mgb.module as M
net = M.Sequential(M.ReLU())
def f():
    for m in net.modules(): m.training = False
#-> net = 3
### module eval
import mgb.module as M
net = M.ReLU()
def f(): net.eval()
#-> net = 3
### parameter attr
import mgb
p = mgb.Parameter([1.0]); p.decay = 1
def f(): return p.decay
#-> p.decay = 2
### optimizer rebound
import mgb.module as M, mgb.optimizer as O
net = M.Linear(2, 2); opt = O.SGD(net.parameters(), lr=0.1)
def f(): opt.clear_grad()
#-> opt = O.SGD(net.parameters(), lr=0.5)
### lr in user code
import mgb.module as M, mgb.optimizer as O
net = M.Linear(2, 2); opt = O.SGD(net.parameters(), lr=0.1)
def f(): return opt.param_groups[0]["lr"]
#-> opt.param_groups[0]["lr"] = 0.5
### lr written
import mgb.module as M, mgb.optimizer as O
net = M.Linear(2, 2); opt = O.SGD(net.parameters(), lr=0.1)
def f():
    for g in opt.param_groups: g["lr"] = 0.01
#-> opt = 3
### seed
import mgb
def f(): mgb.random.seed(3)
#-> x = 1
### list of numbers to mgb
import mgb, mgb.functional as F
shape = [2, 3]
def f(): return F.zeros(shape).shape
#-> shape[0] = 5
### array to tensor
import mgb, numpy as np
a = np.zeros(3, np.float32)
def f(): return mgb.tensor(a).sum().numpy().tolist()
#-> a[0] = 4
### tensor rebound
import mgb
w = mgb.tensor([1.0])
def f(): return (w * 2).numpy().tolist()
#-> w = mgb.tensor([3.0])
### children training
import mgb.module as M
net = M.Sequential(M.ReLU(), M.ReLU())
def f(): return [m.training for m in net.children()]
#-> net[0].training = False
### named parameters
import mgb.module as M
net = M.Linear(2, 2)
def f(): return [n for n, p in net.named_parameters()]
#-> import mgb; net.extra = mgb.Parameter([1.0])
### save
import mgb, os
def f(): mgb.save({}, os.devnull)
#-> x = 1
### custom function
import mgb
from mgb.autodiff import Function
k = 2.0
class Mine(Function):
    def forward(self, x): return x * k
    def backward(self, g): return g * k
x = mgb.tensor([1.0])
def f(): return Mine()(x).numpy().tolist()
#-> k = 3.0
"""),
)
def test_reads_through_libraries_are_never_stale(case: Case) -> None:
    is_never_stale(case)
