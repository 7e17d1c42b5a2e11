"""Ways around the guards: through copies, functions in C, callbacks, subclasses, aliases."""

from __future__ import annotations

import pytest
from environment_cases import Case, cases, is_never_stale, module_of
from mgb.jit.watch import Observer


@pytest.mark.parametrize(
    "case",
    cases("""
### dunder dict
class A: pass
a = A(); a.x = 1
def f(): return a.__dict__["x"]
#-> a.x = 2
### attrgetter
from operator import attrgetter
class A: pass
a = A(); a.b = A(); a.b.x = 1
def f(): return attrgetter("b.x")(a)
#-> a.b.x = 2
### map len
xs = [[1], [2, 3]]
def f(): return sum(map(len, xs))
#-> xs[0].append(1)
### any in
d = {"a": 1}; keys = ["b"]
def f(): return any(k in d for k in keys)
#-> d["b"] = 1
### max key
class O:
    def __init__(s, v): s.v = v
objs = [O(1), O(2)]
def f(): return max(objs, key=lambda o: o.v).v
#-> objs[0].v = 9
### dict copies
d = {"a": 1}
def f(): return dict(d), {**d}, list(d.values())
#-> d["a"] = 2
### isinstance class replaced
class A: pass
class B: pass
K = A; a = A()
def f(): return isinstance(a, K)
#-> K = B
### lists equal
xs = [[1, 2]]; ys = [[1, 2]]
def f(): return xs == ys
#-> ys[0][1] = 3
### zip star
m = [[1, 2], [3, 4]]
def f(): return list(zip(*m))
#-> m[0][0] = 9
### reversed
xs = [1, 2]
def f(): return list(reversed(xs))
#-> xs[0] = 5
### through a fresh object
class H:
    def __init__(s, c): s.c = c
    def lr(s): return s.c["lr"]
cfg = {"lr": 1}
def f(): return H(cfg).lr()
#-> cfg["lr"] = 2
### list of functions
fns = [lambda x: x]
def f(): return fns[0](3)
#-> fns[0] = lambda x: -x
### dict of functions
fns = {"a": lambda x: x}
name = "a"
def f(): return fns[name](3)
#-> fns["a"] = lambda x: -x
### function in list, default changed
def g(x=1): return x
fns = [g]
def f(): return fns[0]()
#-> g.__defaults__ = (5,)
### reduce
from functools import reduce
xs = [1, 2]
def f(): return reduce(lambda a, b: a + b, xs)
#-> xs.append(4)
### type attr
class A: k = 1
a = A()
def f(): return type(a).k
#-> A.k = 2
### class attr through instance
class A: k = 1
a = A()
def f(): return a.__class__.k
#-> A.k = 2
### list subclass
class L(list):
    def __getitem__(s, i): return list.__getitem__(s, i) * k
k = 1
l = L([1, 2])
def f(): return l[1]
#-> k = 5
### list subclass data
class L(list):
    def __getitem__(s, i): return list.__getitem__(s, i) * 2
l = L([1, 2])
def f(): return l[1]
#-> l[1] = 7
### slice of outside
xs = [1, 2, 3]
def f(): return xs[1:]
#-> xs[2] = 7
### negative
xs = [1, 2, 3]
def f(): return xs[-1]
#-> xs.append(5)
### tuple key
d = {(1, "a"): 2}
def f(): return d[1, "a"]
#-> d[1, "a"] = 3
### object key
class K: pass
k = K(); d = {k: 1}
def f(): return d[k]
#-> d[k] = 3
### format attribute
class A: pass
a = A(); a.x = 1
def f(): return "{0.x}".format(a)
#-> a.x = 2
### format item
d = {"x": [1]}
def f(): return "{0[x][0]}".format(d)
#-> d["x"][0] = 2
### str of object
class A:
    k = 1
    def __str__(s): return str(s.k)
a = A()
def f(): return "%s" % a, str(a), f"{a}"
#-> a.k = 2
### sort objects
class A:
    def __init__(s, v): s.v = v
    def __lt__(s, o): return s.v < o.v
xs = [A(1), A(2)]
def f(): return [x.v for x in sorted(xs)]
#-> xs[0].v = 9
### bool of list
xs = []
def f(): return bool(xs), not xs
#-> xs.append(1)
### int of object
class A:
    v = 1
    def __int__(s): return s.v
    def __index__(s): return s.v
a = A()
def f(): return int(a), [5, 6, 7][a]
#-> a.v = 2
### array in object
import numpy as np
class A: pass
a = A(); a.w = np.zeros(3)
def f(): return float(np.stack([a.w, a.w]).sum())
#-> a.w[0] = 5
### array element
import numpy as np
a = np.zeros(3)
def f(): return a[1] + 1
#-> a[1] = 5
### array loop
import numpy as np
a = np.zeros(3)
def f(): return [float(v) for v in a]
#-> a[1] = 5
### array any
import numpy as np
a = np.zeros(3)
def f(): return 1 if a.any() else 0
#-> a[1] = 5
### array attr T
import numpy as np
a = np.zeros((2, 3))
def f(): return float(a.T[0, 1])
#-> a[1, 0] = 5
### array truth
import numpy as np
a = np.zeros(1)
def f(): return 1 if a else 0
#-> a[0] = 5
### copy of object
import copy
class A: pass
a = A(); a.x = [1]
def f(): return copy.deepcopy(a).x[0]
#-> a.x[0] = 2
### shallow copy
import copy
class A: pass
a = A(); a.x = 1
def f(): return copy.copy(a).x
#-> a.x = 2
### lambda default
xs = [1]
def f():
    g = lambda x=xs: x[0]
    return g()
#-> xs[0] = 2
### keyerror
d = {}
def f():
    try: return d["k"]
    except KeyError: return 0
#-> d["k"] = 1
### indexerror
xs = []
def f():
    try: return xs[3]
    except IndexError: return 0
#-> xs.extend([1] * 5)
### attributeerror
class A: pass
a = A()
def f():
    try: return a.k
    except AttributeError: return 0
#-> A.k = 1
### decorator state
def scaled(opts):
    def deco(g):
        def inner(x): return g(x) * opts["s"]
        return inner
    return deco
opts = {"s": 1}
@scaled(opts)
def g(x): return x
def f(): return g(3)
#-> opts["s"] = 4
### ChainMap
from collections import ChainMap
base = {"a": 1}
c = ChainMap({}, base)
def f(): return c["a"]
#-> base["a"] = 2
### UserList
from collections import UserList
u = UserList([1])
def f(): return u[0] + len(u)
#-> u.append(3)
### MappingProxy
from types import MappingProxyType
d = {"a": 1}
p = MappingProxyType(d)
def f(): return p["a"]
#-> d["a"] = 2
### class table
class A: table = {"x": 1}
def f(): return A.table["x"]
#-> A.table["x"] = 2
### proxy
class P:
    def __init__(s, o): object.__setattr__(s, "_o", o)
    def __getattr__(s, n): return getattr(s._o, n)
class A: x = 1
a = A(); p = P(a)
def f(): return p.x
#-> a.x = 5
### getattribute
class A:
    x = 1
    def __getattribute__(s, n): return object.__getattribute__(s, n)
a = A()
def f(): return a.x
#-> a.x = 5
### generator from closure
def make():
    xs = [1]
    def g():
        for x in xs: yield x
    return g, xs
g, xs = make()
def f(): return list(g())
#-> xs.append(5)
### property on fresh of outside
class A:
    @property
    def v(s): return table[0]
table = [1]
def f(): return A().v
#-> table[0] = 2
### set ops
s = {1}; t = {2}
def f(): return s | t, s & t, s.union(t)
#-> t.add(1)
### nested comprehension cond
d = {"a": {"on": True}}
def f(): return [k for k, v in d.items() if v["on"]]
#-> d["a"]["on"] = False
### unpack dict items nested
d = {"a": (1, [2])}
def f(): return [x + y[0] for k, (x, y) in d.items()]
#-> d["a"][1][0] = 9
### iterator over fresh of outside
xs = [[1], [2]]
def f():
    it = iter(xs)
    return next(it)[0]
#-> xs[0][0] = 5
### chain from outside
import itertools
xs = [[1], [2]]
def f(): return [y for y in itertools.chain.from_iterable(xs)]
#-> xs[0][0] = 5
### groupby
import itertools
xs = [(1, "a"), (1, "b")]
def f(): return [(k, [v for _, v in g]) for k, g in itertools.groupby(xs, key=lambda p: p[0])]
#-> xs.append((2, "c"))
### popped from copy
xs = [{"a": 1}]
def f(): return list(xs).pop()["a"]
#-> xs[0]["a"] = 3
### get default nested
d = {"o": {"x": 1}}
def f(): return d.get("o", {}).get("x", 0)
#-> d["o"]["x"] = 3
### setdefault in fresh
d = {"x": [1]}
def f():
    e = {}
    return e.setdefault("a", d["x"])[0]
#-> d["x"][0] = 4
### dict fresh of outside values
d = {"x": [1]}
def f():
    e = dict(d)
    return e["x"][0]
#-> d["x"][0] = 4
### star unpack
xs = [1, 2, 3]
def f():
    a, *b = xs
    return a, b
#-> xs.append(4)
### starred display
xs = [1]
def f(): return [*xs, *xs], (*xs,), {*xs}
#-> xs[0] = 3
"""),
)
def test_indirect_reads_are_never_stale(case: Case) -> None:
    is_never_stale(case)


def test_functions_on_one_line_are_distinguished() -> None:
    text = "pair = (lambda: 2.0), (lambda: a + (lambda: b)()), (lambda: lambda: c), (lambda: b)"
    module = module_of(f"a = b = c = 1\n{text}")
    for function, read in zip([*module.pair, module.pair[2]()], ["", "ab", "", "b", "c"], strict=True):
        observer = Observer([])
        observer.run(function)
        assert not observer.impurities
        places = [str(guard.source) for guard in observer.guards]
        assert {place[-2] for place in places if "global" in place} == {*read}
