"""What a body reads of containers, of objects of the library and by operators is guarded."""

from __future__ import annotations

import pytest
from environment_cases import Case, cases, is_seen


@pytest.mark.parametrize(
    "case",
    cases("""
### counted in a list that the body makes
a = [1]; b = [2]
def f(): return [a, [9]].count(b)
#-> a[0] = 2
### array as an index
import numpy as np
k = np.array(1); xs = [1, 2, 3]
def f(): return xs[k], xs[:k], "abc"[k:]
#-> k[...] = 2
### zero of another sign
import math
k = 0.0
def f(): return math.copysign(1.0, k)
#-> k = -0.0
### tuple that grows
t = (1,)
def f(): return len(t), t
#-> t = (1, 2)
### element past the end
xs = [1]
def f():
    try: return xs[1]
    except IndexError: return 0
#-> xs.append(5)
### containers of collections
import collections
l = collections.UserList([1, 2]); c = collections.ChainMap({"a": 1})
def f(): return l in [collections.UserList([1, 2])], str(c)
#-> l[0] = 5
### text of a mapping of mappings
import collections
c = collections.ChainMap({"a": 1})
def f(): return str(c)
#-> c = collections.ChainMap({"a": 2})
### text of a partial that is given another state
import functools
p = functools.partial(max, 1)
def f(): return repr(p)
#-> p.__setstate__((max, (2,), {}, None))
### frozen dataclass as a key
import dataclasses
@dataclasses.dataclass(frozen=True)
class Shape: n: int
k = Shape(1)
def f(): return {k: 5.0}.get(Shape(1), 0.0)
#-> k = Shape(2)
### frozen dataclass in a set
import dataclasses
@dataclasses.dataclass(frozen=True)
class Shape: n: int
k = Shape(1)
def f(): return len({k, Shape(2)})
#-> k = Shape(2)
### namedtuple as a key
import collections
Shape = collections.namedtuple("Shape", "n")
k = Shape(1)
def f(): return {v: 5.0 for v in [k]}.get(Shape(1), 0.0)
#-> k = Shape(2)
### key that is stored
import dataclasses
@dataclasses.dataclass(frozen=True)
class Shape: n: int
k = Shape(1)
def f():
    table = {}
    table[k] = 2.0
    table.setdefault(k, 3.0)
    return table.get(Shape(1))
#-> k = Shape(2)
### object as a key
class A: pass
a = A(); b = a
def f(): return {a: 1}.get(b)
#-> a = A()
### slots that C compares
import dataclasses
@dataclasses.dataclass(slots=True)
class P: n: int
p = P(1)
def f(): return p == P(1), repr(p)
#-> p.n = 2
### slots of an object that is looked for
import dataclasses
@dataclasses.dataclass(slots=True, frozen=True, order=True)
class P: n: int
p = P(1); table = {P(1): 1.0}
def f(): return table.get(p), p in [P(1)], p < P(2)
#-> p = P(3)
### another namespace
import types
n = types.SimpleNamespace(a=1)
def f(): return n == types.SimpleNamespace(a=1), repr(n)
#-> n = types.SimpleNamespace(a=2)
### element of a list
xs = [1, 2]
def f(): return xs[1]
#-> xs[1] = 3
### length of a list
xs = [1, 2]
def f(): return len(xs)
#-> xs.append(1)
### loop over a list
xs = [1, 2]
def f():
    total = 0
    for x in xs: total += x
    return total
#-> xs.append(1)
### sum of a long list
xs = list(range(20))
def f(): return sum(xs)
#-> xs[7] = 100
### list unpacked
xs = [1, 2]
def f():
    a, b = xs
    return a - b
#-> xs.reverse()
### nested unpacking
xs = [[1, 2], [3, 4]]
def f(): return [a + b for a, b in xs]
#-> xs[1][0] = 9
### unpacking what a generator gives
xs = [[1, 2], [3, 4]]
def each():
    for x in xs: yield x
def f():
    total = 0
    for a, b in each(): total += a * b
    return total
#-> xs[1][0] = 9
### nested in enumerate
xs = [[1, 2], [3, 4]]
def f(): return [i + a * b for i, (a, b) in enumerate(xs)]
#-> xs[0][1] = 9
### element of a dict
d = {"a": 1}
def f(): return d["a"]
#-> d["a"] = 2
### get of a dict
d = {}
def f(): return d.get("a", 0)
#-> d["a"] = 2
### items of a dict
d = {"a": 1}
def f(): return [(k, v) for k, v in d.items()]
#-> d["a"] = 2
### keys of a dict
d = {"a": 1}
def f(): return list(d)
#-> d["b"] = 2
### values of a dict in nested data
d = {"a": {"b": {"c": {"d": {"e": 1}}}}}
def f(): return d["a"]["b"]["c"]["d"]["e"]
#-> d["a"]["b"]["c"]["d"]["e"] = 2
### attributes five deep
class A: pass
a = A(); a.b = A(); a.b.c = A(); a.b.c.d = A(); a.b.c.d.e = A(); a.b.c.d.e.x = 1
def f(): return a.b.c.d.e.x
#-> a.b.c = A(); a.b.c.d = A(); a.b.c.d.e = A(); a.b.c.d.e.x = 2
### set
s = {1, 2}
def f(): return sorted(s)
#-> s.add(3)
### in a set
s = {1, 2}
def f(): return 3 in s
#-> s.add(3)
### in a dict
d = {"a": 1}
def f(): return "b" in d
#-> d["b"] = 1
### in a dict no longer
d = {"a": 1}
def f(): return "a" in d
#-> del d["a"]
### in a list
xs = [1, 2]
def f(): return 3 in xs
#-> xs.append(3)
### deque
from collections import deque
q = deque([1, 2])
def f(): return q[0] + len(q)
#-> q.appendleft(5)
### OrderedDict
from collections import OrderedDict
d = OrderedDict(a=1, b=2)
def f(): return list(d)
#-> d.move_to_end("a")
### defaultdict
from collections import defaultdict
d = defaultdict(int, a=1)
def f(): return d["a"]
#-> d["a"] = 2
### namedtuple
from collections import namedtuple
P = namedtuple("P", "x y")
p = P(1, 2)
def f(): return p.x
#-> p = P(3, 2)
### dataclass
from dataclasses import dataclass
@dataclass
class C:
    lr: float = 0.1
c = C()
def f(): return c.lr
#-> c.lr = 0.2
### dataclasses compared
from dataclasses import dataclass
@dataclass
class C:
    lr: float = 0.1
c, d = C(), C()
def f(): return c == d
#-> c.lr = 0.2
### SimpleNamespace
from types import SimpleNamespace
n = SimpleNamespace(x=1)
def f(): return n.x
#-> n.x = 2
### Enum
from enum import Enum
class E(Enum):
    A = 1
    B = 2
e = E.A
def f(): return e is E.A
#-> e = E.B
### value of an Enum
from enum import Enum
class E(Enum):
    A = 1
    B = 2
e = E.A
def f(): return e.value
#-> e = E.B
### attribute of a module
import types
m = types.ModuleType("m"); m.x = 1
def f(): return m.x
#-> m.x = 2
### environ
import os
os.environ["WATCHED_X"] = "1"
def f(): return os.environ["WATCHED_X"]
#-> os.environ["WATCHED_X"] = "2"
### getenv
import os
os.environ.pop("WATCHED_Y", None)
def f(): return os.getenv("WATCHED_Y", "none")
#-> os.environ["WATCHED_Y"] = "2"
### in environ
import os
os.environ.pop("WATCHED_Z", None)
def f(): return "WATCHED_Z" in os.environ
#-> os.environ["WATCHED_Z"] = "2"
### thread local
import threading
t = threading.local(); t.x = 1
def f(): return t.x
#-> t.x = 2
### ContextVar
from contextvars import ContextVar
v = ContextVar("v", default=1)
def f(): return v.get()
#-> v.set(2)
### array written
import numpy as np
a = np.arange(3.0)
def f(): return float(a[1] + a.sum())
#-> a[2] = 9
### array rebound
import numpy as np
a = np.arange(3.0)
def f(): return float((a * 2).sum())
#-> a = np.arange(4.0)
### view of an array
import numpy as np
whole = np.arange(6.0)
a = whole[2:4]
def f(): return float(a.sum())
#-> whole[3] = 9
### dtype of an array
import numpy as np
a = np.zeros(3)
def f(): return str(a.dtype)
#-> a = np.zeros(3, np.float32)
### shape of an array
import numpy as np
a = np.zeros(3)
def f(): return a.shape[0]
#-> a = np.zeros(4)
### isinstance
x = [1]
def f(): return isinstance(x, list)
#-> x = (1,)
### type
class A: pass
class B: pass
a = A()
def f(): return type(a).__name__
#-> a = B()
### class of an object assigned
class A:
    def m(self): return 1
class B:
    def m(self): return 2
a = A()
def f(): return a.m()
#-> a.__class__ = B
### is None
x = None
def f(): return x is None
#-> x = [1]
### is no longer None
x = [1]
def f(): return x is None
#-> x = None
### identity of two
x = [1]; y = x
def f(): return x is y
#-> y = [1]
### one object in two places
x = [1]; y = x
def f(): return x[0] + y[0]
#-> y = [5]
### sorted items of lists
d = {"a": [2], "b": [1]}
def f(): return sorted(d.items(), key=lambda pair: pair[1])[0][0]
#-> d["a"][0] = 0
### view outside
d = {"a": [2]}
view = d.values()
def f(): return sum(map(sum, view))
#-> d["a"][0] = 0
### truth of a list
x = []
def f(): return 1 if x else 2
#-> x.append(1)
### truth of an object
class A:
    n = 0
    def __bool__(self): return self.n > 0
a = A()
def f(): return 1 if a else 2
#-> a.n = 1
### length of an object
class A:
    n = 0
    def __len__(self): return self.n
a = A()
def f(): return len(a)
#-> a.n = 1
### operator of an object
class A:
    n = 1
    def __add__(self, other): return self.n + other
a = A()
def f(): return a + 1
#-> a.n = 2
### reflected operator
class A:
    n = 1
    def __radd__(self, other): return self.n + other
a = A()
def f(): return 1 + a
#-> a.n = 2
### subscript of an object
class A:
    def __init__(self): self.d = [1]
    def __getitem__(self, i): return self.d[i]
a = A()
def f(): return a[0]
#-> a.d[0] = 2
### call of an object
class A:
    n = 1
    def __call__(self): return self.n
a = A()
def f(): return a()
#-> a.n = 2
### call of an object replaced
class A:
    def __call__(self): return 1
a = A()
def f(): return a()
#-> A.__call__ = lambda self: 2
### iteration of an object
class A:
    n = 2
    def __iter__(self): return iter(range(self.n))
a = A()
def f(): return [x for x in a]
#-> a.n = 3
### contains of an object
class A:
    n = 2
    def __contains__(self, x): return x == self.n
a = A()
def f(): return 3 in a
#-> a.n = 3
### comparison of an object
class A:
    n = 2
    def __eq__(self, x): return x == self.n
    __hash__ = None
a = A()
def f(): return a == 3
#-> a.n = 3
"""),
)
def test_changed_contents_are_detected(case: Case) -> None:
    is_seen(case)
