"""What operators, statements and calls of a body read outside is guarded."""

from __future__ import annotations

import pytest
from environment_cases import Case, cases, is_seen


@pytest.mark.parametrize(
    "case",
    cases("""
### singledispatch
from functools import singledispatch
@singledispatch
def g(x): return 1
def f(): return g(3)
#-> g.register(int)(lambda x: 2)
### partial
from functools import partial
def g(a, b): return a - b
h = partial(g, 1)
def f(): return h(2)
#-> h = partial(g, 5)
### wrapper
import functools
def twice(g):
    @functools.wraps(g)
    def inner(*a): return scale * g(*a)
    return inner
scale = 2
@twice
def g(x): return x + 1
def f(): return g(3)
#-> scale = 3
### generator
k = 2
def g():
    for i in range(k): yield i
def f(): return sum(g())
#-> k = 4
### generator expression
xs = [1, 2]
def f(): return sum(x * 2 for x in xs)
#-> xs.append(3)
### dict comprehension
d = {"a": 1}
def f(): return {k: v + 1 for k, v in d.items()}
#-> d["a"] = 5
### context manager
from contextlib import contextmanager
k = 1
@contextmanager
def doing(): yield k
def f():
    with doing() as x: return x
#-> k = 2
### own context manager
class A:
    k = 1
    def __enter__(self): return self.k
    def __exit__(self, *a): return None
a = A()
def f():
    with a as x: return x
#-> a.k = 2
### exception caught
k = 1
def f():
    try:
        raise ValueError(k)
    except ValueError as e:
        return e.args[0]
#-> k = 2
### recursion
base = 1
def f(n=3): return base if n == 0 else n * f(n - 1)
#-> base = 2
### getattr by a computed name
class A: pass
a = A(); a.x1 = 1; n = 1
def f(): return getattr(a, f"x{n}")
#-> a.x1 = 2
### getattr of nothing
class A: pass
a = A()
def f(): return getattr(a, "x", 0)
#-> a.x = 2
### hasattr
class A: pass
a = A()
def f(): return hasattr(a, "x")
#-> a.x = 1
### vars
class A: pass
a = A(); a.x = 1
def f(): return sum(vars(a).values())
#-> a.y = 1
### globals
k = 1
def f(): return globals()["k"]
#-> k = 2
### sorted with a key
order = {"a": 2, "b": 1}
def f(): return sorted("ab", key=lambda c: order[c])
#-> order["a"] = 0
### sorted with a key from outside
k = 1
def key(x): return x * k
def f(): return sorted([1, 2, 3], key=key)
#-> k = -1
### map
k = 1
def g(x): return x * k
def f(): return list(map(g, [1, 2]))
#-> k = 2
### filter and zip
xs = [1, 2]; ys = [3, 4]
def f(): return [a * b for a, b in zip(xs, ys) if a]
#-> ys[1] = 7
### star arguments
xs = [1, 2]
def g(*a): return sum(a)
def f(): return g(*xs)
#-> xs.append(3)
### keyword arguments
d = {"a": 1}
def g(**k): return k["a"]
def f(): return g(**d)
#-> d["a"] = 3
### walrus
xs = [1, 2]
def f():
    if (n := len(xs)) > 2: return n
    return 0
#-> xs.append(3)
### text of an outside value
xs = [1, 2]
def f(): return f"{xs}"
#-> xs.append(3)
### match on a value
x = 3
def f():
    match x:
        case 3: return "three"
        case _: return "other"
#-> x = 4
### match on a class
class P:
    __match_args__ = ("x",)
    def __init__(self, x): self.x = x
p = P(1)
def f():
    match p:
        case P(1): return "one"
        case P(x=y): return y
#-> p.x = 2
### match on what a local variable names
class C: x = 1
class D: pass
spaces = [C]; v = C()
def f():
    K = spaces[0]
    match v:
        case K(): return "C"
    return "other"
#-> spaces[0] = D
### match on an attribute of what a local variable names
class C: x = 1
def f():
    c = C
    match 1:
        case c.x: return "one"
    return "other"
#-> C.x = 2
### name of a class with a metaclass
class Meta(type):
    def __len__(cls): return len(cls.__name__)
class K(metaclass=Meta): pass
def f(): return K.__name__, len(K)
#-> K.__name__ = "Kind"
### match on a sequence
xs = [1, 2]
def f():
    match xs:
        case [a, b]: return a + b
        case [a, *rest]: return len(rest)
#-> xs.append(7)
### match on a mapping
d = {"kind": "a"}
def f():
    match d:
        case {"kind": "a"}: return 1
        case _: return 2
#-> d["kind"] = "b"
### match on a constant of a class
class K:
    A = 1
def f():
    match 1:
        case K.A: return "yes"
        case _: return "no"
#-> K.A = 2
### super
class A:
    def m(self): return 1
class B(A):
    def m(self): return super().m() + 1
b = B()
def f(): return b.m()
#-> A.m = lambda self: 5
### attribute of a metaclass
class M(type):
    k = 1
class A(metaclass=M): pass
def f(): return A.k
#-> M.k = 2
### call of a metaclass
class M(type):
    def __call__(cls, *a): return k
class A(metaclass=M): pass
k = 1
def f(): return A()
#-> k = 2
### constructor
class A:
    def __init__(self, x): self.x = x * k
k = 1
def f(): return A(3).x
#-> k = 2
### constructor replaced
class A:
    def __init__(self, x): self.x = x
def f(): return A(3).x
#-> A.__init__ = lambda self, x: setattr(self, "x", 7)
### reference
import weakref
class A: pass
a = A(); a.x = 1
r = weakref.ref(a)
def f(): return r().x
#-> a.x = 2
### import in the body
def f():
    import math
    return math.tau
#-> import math; math.tau, kept = 7.0, math.tau
### sys.modules
import sys
def f(): return "watched_nowhere" in sys.modules
#-> sys.modules["watched_nowhere"] = None
### function's attribute
def g(): return g.k
g.k = 1
def f(): return g()
#-> g.k = 2
### chained comparison
k = 5
def f(): return 1 < k < 10
#-> k = 50
### private names
class A:
    def __init__(self): self.__k = 1
    def m(self): return self.__k
a = A()
def f(): return a.m()
#-> a._A__k = 2
### inner class
k = 2
def f():
    class A:
        x = k
        def m(self): return self.x + k
    return A().m()
#-> k = 3
### counter of a Counter
from collections import Counter
c = Counter("aab")
def f(): return c["a"]
#-> c["a"] = 7
### missing in a Counter
from collections import Counter
c = Counter("aab")
def f(): return c["z"]
#-> c["z"] = 7
### UserDict
from collections import UserDict
d = UserDict(a=1)
def f(): return d["a"]
#-> d["a"] = 2
### deepcopy
import copy
d = {"a": [1]}
def f(): return copy.deepcopy(d)["a"][0]
#-> d["a"][0] = 2
### itemgetter
from operator import itemgetter
d = {"a": 1}
def f(): return itemgetter("a")(d)
#-> d["a"] = 2
### cached property
from functools import cached_property
class A:
    @cached_property
    def x(self): return 1
a = A(); a.x
def f(): return a.x
#-> a.x = 2
### conditional import of names
import collections
def f():
    from collections import OrderedDict
    return OrderedDict is dict
#-> kept = collections.OrderedDict; collections.OrderedDict = dict
### bound method kept
class A:
    k = 1
    def m(self): return self.k
a = A(); m = a.m
def f(): return m()
#-> a.k = 2
### text formatted by percent
d = {"a": 1}
def f(): return "%(a)s" % d
#-> d["a"] = 2
### joined
xs = ["a", "b"]
def f(): return "".join(xs)
#-> xs.append("c")
### update of a fresh dict
d = {"a": 1}
def f():
    made = {}
    made.update(d)
    return made
#-> d["a"] = 2
### extended fresh list
xs = [1]
def f():
    made = [0]
    made += xs
    made.extend(xs)
    return made
#-> xs.append(2)
### truth of a member
from enum import Enum
class E(Enum):
    A = 1
e = E.A
def f(): return 1 if e else 2
#-> E.__bool__ = lambda self: False
### property of a getter
from operator import attrgetter
class A:
    lr = property(attrgetter("cfg.lr"))
class C: pass
a = A(); a.cfg = C(); a.cfg.lr = 1
def f(): return a.lr
#-> a.cfg.lr = 2
### kept result that is cleared
from functools import cache
k = 1
@cache
def g(x): return x + k
def f(): return g(1)
#-> k = 5; g.cache_clear()
### kept list that is changed
from functools import lru_cache
@lru_cache(maxsize=8)
def g(x): return [x]
g(1)
def f(): return g(1)[0]
#-> g(1)[0] = 3
### kept by a class of a library, and cleared
from functools import lru_cache
k = 1
@lru_cache
def g(kind): return kind.__name__, k
def f(): return g(dict)
#-> k = 5; g.cache_clear()
### level of a logger
import logging
log = logging.getLogger("watched_level")
def f(): return log.isEnabledFor(logging.INFO)
#-> log.setLevel(logging.INFO)
### json of outside data
import json
d = {"a": [1, {"b": 2}]}
def f(): return json.dumps(d, sort_keys=True)
#-> d["a"][1]["b"] = 3
### dataclass in a text
from dataclasses import dataclass
@dataclass
class C:
    xs: list
c = C([1])
def f(): return f"{c}"
#-> c.xs.append(2)
"""),
)
def test_external_reads_by_calls_are_guarded(case: Case) -> None:
    is_seen(case)
