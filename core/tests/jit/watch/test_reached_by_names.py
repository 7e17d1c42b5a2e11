"""What names lead to: after each change the guards do not hold, the body is impure, or gives the same."""

from __future__ import annotations

import itertools
import linecache
import sys
from types import ModuleType
from typing import Any

import pytest
from mgb.jit.watch import Observer

#: A name, a module with a function `f`, and after an arrow what is changed.
CASES = """
### other globals
import types
def base(v): return v*k
k=2.0
def h(v): return v*k
g2=types.FunctionType(h.__code__, {"k":3.0})
def f(x): return h(x)+g2(x)
#-> g2.__globals__['k']=7.0
### percent text
class A:
    def __str__(s): return str(s.v)
a=A(); a.v=2
def f(x): return x*float("%s" % a)
#-> a.v=3
### dict subclass getitem
class D(dict):
    def __getitem__(s,k): return dict.__getitem__(s,k)*off
off=2.0
d=D(a=1.0)
def f(x): return x*d["a"]
#-> off=3.0
### dict subclass contents
class D(dict):
    def __getitem__(s,k): return dict.__getitem__(s,k)
d=D(a=1.0)
def f(x): return x*d["a"]
#-> dict.__setitem__(d,'a',5.0)
### data descriptor over own
class A:
    @property
    def v(s): return s.__dict__["v"]*2
a=A(); a.__dict__["v"]=1.0
def f(x): return x*a.v
#-> a.__dict__['v']=2.0
### descriptor instance
class D:
    def __init__(s): s.n=1.0
    def __get__(s,o,t): return s.n
class A: v=D()
a=A()
def f(x): return x*a.v
#-> vars(A)['v'].n=4.0
### getattr delegation
class In: pass
i=In(); i.v=1.0
class A:
    def __init__(s,o): s._o=o
    def __getattr__(s,n): return getattr(s._o,n)
a=A(i)
def f(x): return x*a.v
#-> i.v=3.0
### map over partial
import functools
def mul(a,b): return a*b*k
k=1.0
p=functools.partial(mul,2.0)
def f(x): return x*sum(map(p,[1.0,2.0]))
#-> k=3.0
### mro change
class A: v=1.0
class B: v=2.0
class K(A): pass
o=K()
def f(x): return x*o.v
#-> K.__bases__=(B,)
### class attr via instance added
class A: v=1.0
a=A()
def f(x): return x*a.v
#-> a.v=3.0
### hasattr
class A: pass
a=A()
def f(x): return x*(2.0 if hasattr(a,"flag") else 3.0)
#-> a.flag=1
### getattr default
class A: pass
a=A()
def f(x): return x*getattr(a,"gain",3.0)
#-> a.gain=5.0
### getattr default class
class A: pass
a=A()
def f(x): return x*getattr(a,"gain",3.0)
#-> A.gain=5.0
### try attribute
class A: pass
a=A()
def f(x):
    try: return x*a.gain
    except AttributeError: return x
#-> a.gain=5.0
### module attr default
import types
m=types.ModuleType("mm")
def f(x): return x*getattr(m,"gain",3.0)
#-> m.gain=5.0
### name computed
class A: a=1.0; b=2.0
o=A(); which="a"
def f(x): return x*getattr(o,which)
#-> o.a=9.0
### name computed 2
class A: a=1.0; b=2.0
o=A(); which="a"
def f(x): return x*getattr(o,"_"[1:]+which)
#-> A.a=9.0
### format field
class A: pass
o=A(); o.zz=2
def f(x): return x*float("{0.zz}".format(o))
#-> o.zz=3
### attrgetter made before
import operator
g=operator.attrgetter("p.q")
class A: pass
o=A(); o.p=A(); o.p.q=2.0
def f(x): return x*g(o)
#-> o.p.q=3.0
### attrgetter in body
import operator
n="p"
class A: pass
o=A(); o.p=2.0
def f(x): return x*operator.attrgetter(n)(o)
#-> o.p=3.0
### methodcaller
import operator
g=operator.methodcaller("m")
class A:
    def m(s): return s.k
o=A(); o.k=2.0
def f(x): return x*g(o)
#-> o.k=3.0
### copy
import copy
class A: pass
o=A(); o.zz=2.0
def use(q): return [*vars(q).values()][0]
def f(x): return x*use(copy.copy(o))
#-> o.zz=3.0
### asdict
import dataclasses
@dataclasses.dataclass
class A: zz: float=1.0
o=A()
def f(x): return x*sum(dataclasses.asdict(o).values())
#-> o.zz=3.0
### json
import json
o={"a":[1.0,2.0]}
def f(x): return x*float(len(json.dumps(o)))
#-> o['a'].append(3.0)
### dataclass eq
import dataclasses
@dataclasses.dataclass
class A: q: float=1.0
o=A(); p=A()
def f(x): return x*(2.0 if o==p else 3.0)
#-> p.q=3.0
### dataclass repr
import dataclasses
@dataclasses.dataclass
class A: q: float=1.0
o=A()
def f(x): return x*float(len(repr(o)))
#-> o.q=3.125
### match
class P:
    __match_args__=("x","y")
    def __init__(s,x,y): s.x=x; s.y=y
o=P(1.0,2.0)
def f(x):
    match o:
        case P(1.0,b): return x*b
        case _: return x*9.0
#-> o.y=4.0
### abc register
import abc
class B(abc.ABC): pass
class A: pass
o=A()
def f(x): return x*(2.0 if isinstance(o,B) else 3.0)
#-> B.register(A)
### weakvalue
import weakref
class A: pass
a=A(); a.v=1.0
d=weakref.WeakValueDictionary(k=a)
def f(x): return x*d["k"].v
#-> a.v=2.0
### callable instance default
class A:
    def __call__(s,v,by=2.0): return v*by
o=A()
def f(x): return o(x)
#-> A.__call__.__defaults__=(5.0,)
### closure rebound
def mk():
    n=1.0
    def get(v): return v*n
    def put(m):
        nonlocal n
        n=m
    return get,put
get,put=mk()
def f(x): return get(x)
#-> put(4.0)
### function attribute
def g(v): return v*g.k
g.k=2.0
def f(x): return g(x)
#-> g.k=3.0
### chainmap
import collections
a={"k":1.0}
c=collections.ChainMap({},a)
def f(x): return x*c["k"]
#-> a['k']=4.0
### property setter read
class A:
    def __init__(s): s._v=1.0
    v=property(lambda s:s._v)
o=A()
def f(x): return x*o.v
#-> A.v=property(lambda s:s._v*3)
### lru cleared
import functools
k=[2.0]
@functools.lru_cache
def t(n): return k[0]*n
def f(x): return x*t(2)
#-> k[0]=5.0; t.cache_clear()
### singledispatch
import functools
@functools.singledispatch
def g(v): return 1.0
@g.register
def _(v:int): return k
k=2.0
n=3
def f(x): return x*g(n)
#-> k=7.0
### singledispatch register
import functools
@functools.singledispatch
def g(v): return 1.0
n=3
def f(x): return x*g(n)
#-> g.register(int,lambda v:8.0)
### cached_property
import functools
class A:
    @functools.cached_property
    def v(s): return s.k*2
a=A(); a.k=1.0
def f(x): return x*a.v
#-> del a.__dict__['v']; a.k=4.0
### exec helper
sp={"k":2.0}
exec("def h(v): return v*k", sp)
h=sp["h"]
def f(x): return h(x)
#-> sp['k']=3.0
### builtin shadow
l=[1.0,2.0]
def f(x): return x*float(len(l))
#-> globals()['len']=lambda v:7
### enum value
import enum
class K(enum.Enum):
    A=[1.0]
def f(x): return x*K.A.value[0]
#-> K.A.value[0]=3.0
### slots default
class A:
    __slots__=("v",)
a=A()
def f(x): return x*getattr(a,"v",3.0)
#-> a.v=5.0
### generator helper
ks=[1.0,2.0]
def g():
    for k in ks: yield k*m
m=2.0
def f(x): return x*sum(g())
#-> m=3.0
### thread local
import threading
t=threading.local(); t.k=1.0
def f(x): return x*t.k
#-> t.k=4.0
### sort key default
def key(v,s=1): return v*s
l=[1.0,2.0]
def f(x): return x*sorted(l,key=key)[0]
#-> key.__defaults__=(-1,)
### type of instance
class A: v=1.0
class B: v=2.0
o=A()
def f(x): return x*type(o).v
#-> o.__class__=B
### class via name
class A: v=1.0
reg={"a":A}
def f(x): return x*reg["a"]().v
#-> A.v=5.0
### subclasses
class A: pass
def f(x): return x*float(1+len(A.__subclasses__()))
#-> class Z(A): pass
### nested attr swapped
class A: pass
o=A(); o.p=A(); o.p.k=1.0; q=A(); q.k=2.0
def f(x): return x*o.p.k
#-> o.p=q
### metaclass getattr
class Mt(type):
    def __getattr__(c,n): return tab[n]
tab={"k":1.0}
class A(metaclass=Mt): pass
def f(x): return x*A.k
#-> tab['k']=3.0
### operator overload
class A:
    def __mul__(s,o): return o*k
k=2.0
a=A()
def f(x): return x+a*3.0
#-> k=5.0
### operator replaced
class A:
    def __mul__(s,o): return o*2.0
a=A()
def f(x): return x+a*3.0
#-> A.__mul__=lambda s,o:o*7.0
### contains
class A:
    def __contains__(s,o): return o in allowed
allowed={1}
a=A()
def f(x): return x*(2.0 if 3 in a else 5.0)
#-> allowed.add(3)
### bool
class A:
    n=0
    def __bool__(s): return s.n>0
a=A()
def f(x): return x*(2.0 if a else 5.0)
#-> a.n=1
### len bool
class A:
    def __init__(s): s.l=[]
    def __len__(s): return len(s.l)
a=A()
def f(x): return x*(2.0 if a else 5.0)
#-> a.l.append(1)
### module getattr
import types
m=types.ModuleType("mm3")
tab={"k":2.0}
m.__getattr__=lambda n: tab[n]
def f(x): return x*m.k
#-> tab['k']=4.0
### star args default kw
def g(v,*,by=2.0): return v*by
def f(x): return g(x)
#-> g.__kwdefaults__['by']=3.0
### reversed dict order
d={"a":1.0,"b":2.0}
def f(x): return x*list(d.values())[0]
#-> d['a']=d.pop('a')
### defaultdict factory
import collections
d=collections.defaultdict(lambda:2.0)
def f(x): return x*dict(d).get("q",d.default_factory())
#-> d.default_factory=lambda:5.0
### nested function default
k=2.0
def f(x):
    def g(v,by=k): return v*by
    return g(x)
#-> k=6.0
### class body in body
k=2.0
def f(x):
    class L: v=k
    return x*L.v
#-> k=6.0
### walrus lambda
tab=[lambda v:v*k]
k=2.0
def f(x): return tab[0](x)
#-> k=6.0
### frozenset of objs
class A:
    def __init__(s,v): s.v=v
s=frozenset([A(1.0)])
o=next(iter(s))
def f(x): return x*sum(q.v for q in s)
#-> o.v=4.0
### user list subclass
class L(list):
    def __iter__(s): return iter([q*k for q in list.__iter__(s)])
k=2.0
l=L([1.0])
def f(x): return x*sum(l)
#-> k=6.0
### user list content
class L(list):
    def __iter__(s): return iter([q*2 for q in list.__iter__(s)])
l=L([1.0])
def f(x): return x*sum(l)
#-> list.append(l,4.0)
### slice obj
l=[1.0,2.0,3.0]; sl=slice(0,1)
def f(x): return x*sum(l[sl])
#-> sl=slice(0,2)
### setdefault
d={}
def f(x): return x*d.setdefault("k",2.0)
#-> d['k']=5.0
### del attr
class A: k=1.0
a=A(); a.k=2.0
def f(x): return x*a.k
#-> del a.k
### weakref dead
import weakref
class A: v=1.0
a=A(); r=weakref.ref(a)
def f(x): return x*(2.0 if r() is None else 3.0)
#-> del a
"""
_numbers = itertools.count()


def module_of(text: str) -> ModuleType:
    made = ModuleType(f"named_{next(_numbers)}")
    made.__file__ = f"<{made.__name__}>"
    linecache.cache[made.__file__] = (len(text), None, text.splitlines(keepends=True), made.__file__)
    sys.modules[made.__name__] = made
    exec(compile(text, made.__file__, "exec", dont_inherit=True), vars(made))
    return made


def cases() -> list[Any]:
    found = []
    for part in CASES.split("### ")[1:]:
        name, _, rest = part.partition("\n")
        text, _, change = rest.partition("#-> ")
        found.append(pytest.param(text, change.strip(), id=name))
    return found


@pytest.mark.parametrize("text, change", cases())
def test_changes_of_what_names_lead_to_are_seen(text: str, change: str) -> None:
    module, x = module_of(text), 1.0
    observer = Observer([x])
    shown = repr(observer.run(module.f, x))
    check = observer.guards.compile()
    assert observer.impurities or check([x]), observer.guards.why([x])
    exec(change, vars(module))
    try:
        stays = repr(module.f(x)) == shown
    except Exception:
        stays = False
    assert stays or observer.impurities or not check([x])


@pytest.mark.parametrize("text, change", cases())
def test_pure_bodies_are_known_as_such(text: str, change: str) -> None:
    observer = Observer([1.0])
    observer.run(module_of(text).f, 1.0)
    told = [str(impurity) for impurity in observer.impurities]
    assert not told or "metaclass" in text or "setdefault" in text or "cached_property" in text, told
