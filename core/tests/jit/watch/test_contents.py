"""What a body reads of containers, of objects of the library and by operators is guarded."""

from __future__ import annotations

import pytest
from watch_cases import Case, cases, is_seen


@pytest.mark.parametrize(
    "case",
    cases("""
### counted in a list that the body makes
a = [1]; b = [2]
def f(): return [a, [9]].count(b)
#-> a[0] = 2
### array as an index
k = np.array(1); xs = [1, 2, 3]
def f(): return xs[k], xs[:k], "abc"[k:]
#-> k[...] = 2
### zero of another sign
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
l = collections.UserList([1, 2]); c = collections.ChainMap({"a": 1})
def f(): return l in [collections.UserList([1, 2])], str(c)
#-> l[0] = 5
### text of a mapping of mappings
c = collections.ChainMap({"a": 1})
def f(): return str(c)
#-> c = collections.ChainMap({"a": 2})
### text of a partial that is given another state
p = functools.partial(max, 1)
def f(): return repr(p)
#-> p.__setstate__((max, (2,), {}, None))
### frozen dataclass as a key
@dataclasses.dataclass(frozen=True)
class Shape: n: int
k = Shape(1)
def f(): return {k: 5.0}.get(Shape(1), 0.0)
#-> k = Shape(2)
### frozen dataclass in a set
@dataclasses.dataclass(frozen=True)
class Shape: n: int
k = Shape(1)
def f(): return len({k, Shape(2)})
#-> k = Shape(2)
### namedtuple as a key
Shape = collections.namedtuple("Shape", "n")
k = Shape(1)
def f(): return {v: 5.0 for v in [k]}.get(Shape(1), 0.0)
#-> k = Shape(2)
### key that is stored
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
a = A(); b = a
def f(): return {a: 1}.get(b)
#-> a = A()
### slots that C compares
@dataclasses.dataclass(slots=True)
class P: n: int
p = P(1)
def f(): return p == P(1), repr(p)
#-> p.n = 2
### slots of an object that is looked for
@dataclasses.dataclass(slots=True, frozen=True, order=True)
class P: n: int
p = P(1); table = {P(1): 1.0}
def f(): return table.get(p), p in [P(1)], p < P(2)
#-> p = P(3)
### another namespace
n = types.SimpleNamespace(a=1)
def f(): return n == types.SimpleNamespace(a=1), repr(n)
#-> n = types.SimpleNamespace(a=2)
### in a dict no longer
d = {"a": 1}
def f(): return "a" in d
#-> del d["a"]
### dataclasses compared
@dataclass
class C:
    lr: float = 0.1
c, d = C(), C()
def f(): return c == d
#-> c.lr = 0.2
### SimpleNamespace
n = SimpleNamespace(x=1)
def f(): return n.x
#-> n.x = 2
### getenv
os.environ.pop("WATCHED_Y", None)
def f(): return os.getenv("WATCHED_Y", "none")
#-> os.environ["WATCHED_Y"] = "2"
### in environ
os.environ.pop("WATCHED_Z", None)
def f(): return "WATCHED_Z" in os.environ
#-> os.environ["WATCHED_Z"] = "2"
### type
class B: pass
a = A()
def f(): return type(a).__name__
#-> a = B()
### identity of two
x = [1]; y = x
def f(): return x is y
#-> y = [1]
### one object in two places
x = [1]; y = x
def f(): return x[0] + y[0]
#-> y = [5]
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
