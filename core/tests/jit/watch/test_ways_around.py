"""Ways around the guards: through copies, functions in C, callbacks, libraries, subclasses, aliases."""

from __future__ import annotations

import pytest
from watch_cases import Case, cases, is_never_stale, is_seen


@pytest.mark.parametrize(
    "case",
    cases("""
### map len
xs = [[1], [2, 3]]
def f(): return sum(map(len, xs))
#-> xs[0].append(1)
### max key
class O:
    def __init__(s, v): s.v = v
objs = [O(1), O(2)]
def f(): return max(objs, key=lambda o: o.v).v
#-> objs[0].v = 9
### lists equal
xs = [[1, 2]]; ys = [[1, 2]]
def f(): return xs == ys
#-> ys[0][1] = 3
### class attr through instance
class A: k = 1
a = A()
def f(): return a.__class__.k
#-> A.k = 2
### tuple key
d = {(1, "a"): 2}
def f(): return d[1, "a"]
#-> d[1, "a"] = 3
### format attribute
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
### int of object
class A:
    v = 1
    def __int__(s): return s.v
    def __index__(s): return s.v
a = A()
def f(): return int(a), [5, 6, 7][a]
#-> a.v = 2
### array attr T
a = np.zeros((2, 3))
def f(): return float(a.T[0, 1])
#-> a[1, 0] = 5
### copy of object
a = A(); a.x = [1]
def f(): return copy.deepcopy(a).x[0]
#-> a.x[0] = 2
### lambda default
xs = [1]
def f():
    g = lambda x=xs: x[0]
    return g()
#-> xs[0] = 2
### attributeerror
a = A()
def f():
    try: return a.k
    except AttributeError: return 0
#-> A.k = 1
### UserList
u = UserList([1])
def f(): return u[0] + len(u)
#-> u.append(3)
### proxy
class P:
    def __init__(s, o): object.__setattr__(s, "_o", o)
    def __getattr__(s, n): return getattr(s._o, n)
class A: x = 1
a = A(); p = P(a)
def f(): return p.x
#-> a.x = 5
### property on fresh of outside
class A:
    @property
    def v(s): return table[0]
table = [1]
def f(): return A().v
#-> table[0] = 2
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
#-> list.__setitem__(l, 1, 7)
### address in a text
a = A()
def f(): return f"{a}"
#-> a = A()
### address in what str makes
a = A()
def f(): return str(a)
#-> a = A()
### json by a function of the user
k = "a"
def name(kind): return kind.__name__ + k
def f(): return json.dumps([object], default=name)
#-> k = "b"
### getter called by others
class B: x = 1
def f(): return sorted([B(), B()], key=attrgetter("x"))[0].x
#-> B.x = 2
### function that keeps its results by an object
@lru_cache
def g(x): return x.k
a = A(); a.k = 1
def f(): return g(a)
#-> a.k = 2; g.cache_clear()
### default factory
shared = [1]
@dataclass
class P:
    xs: list = field(default_factory=lambda: shared)
def f(): return P().xs[0]
#-> shared[0] = 2
### dataclass replace
@dataclass
class P:
    x: int = 1
    y: int = 2
p = P()
def f(): return replace(p, x=5).y
#-> p.y = 7
### asdict
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
### inner imports attr
def f():
    import string
    return string.digits
#-> import string; kept = string.digits; string.digits = "x"
### int subclass
class I(int):
    pass
i = I(3); i.k = 1
def f(): return i + i.k
#-> i.k = 2
### tuple subclass
class T(tuple): pass
t = T([1, [2]])
def f(): return t[1][0]
#-> t[1][0] = 9
### Fraction
q = Fraction(1, 2)
def f(): return q + 1
#-> q = Fraction(3, 2)
### datetime
d = datetime.date(2020, 1, 1)
def f(): return d.year
#-> d = datetime.date(2021, 1, 1)
### weakkeydict
a = A(); w = weakref.WeakKeyDictionary(); w[a] = 1
def f(): return w[a]
#-> w[a] = 2
### weak value dict
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
class B: pass
def f(): return B().extra
#-> B.extra = 6
### abc register
class A(ABC): pass
class B: pass
b = B()
def f(): return isinstance(b, A)
#-> A.register(B)
### environ loop
def f(): return sorted(k for k in os.environ if k.startswith("WATCHED_R"))
#-> os.environ["WATCHED_R1"] = "yes"
### sys.argv
def f(): return len(sys.argv)
#-> sys.argv.append("x")
### string template
t = Template("$a"); d = {"a": 1}
def f(): return t.substitute(d)
#-> d["a"] = 2
### callable class attr partialmethod
class A:
    def m(s, x): return x + s.k
    p = partialmethod(m, 5)
    k = 1
a = A()
def f(): return a.p()
#-> a.k = 2
### list of numbers to mgb
shape = [2, 3]
def f(): return F.zeros(shape).shape
#-> shape[0] = 5
### named parameters
net = M.Linear(2, 2)
def f(): return [n for n, p in net.named_parameters()]
#-> import mgb; net.extra = mgb.Parameter([1.0])
### other globals
def base(v): return v*k
k=2.0
def h(v): return v*k
g2=types.FunctionType(h.__code__, {"k":3.0})
def f(x=1.0): return h(x)+g2(x)
#-> g2.__globals__['k']=7.0
### dict subclass getitem
class D(dict):
    def __getitem__(s,k): return dict.__getitem__(s,k)*off
off=2.0
d=D(a=1.0)
def f(x=1.0): return x*d["a"]
#-> off=3.0
### dict subclass contents
class D(dict):
    def __getitem__(s,k): return dict.__getitem__(s,k)
d=D(a=1.0)
def f(x=1.0): return x*d["a"]
#-> dict.__setitem__(d,'a',5.0)
### data descriptor over own
class A:
    @property
    def v(s): return s.__dict__["v"]*2
a=A(); a.__dict__["v"]=1.0
def f(x=1.0): return x*a.v
#-> a.__dict__['v']=2.0
### map over partial
def mul(a,b): return a*b*k
k=1.0
p=functools.partial(mul,2.0)
def f(x=1.0): return x*sum(map(p,[1.0,2.0]))
#-> k=3.0
### getattr default class
a=A()
def f(x=1.0): return x*getattr(a,"gain",3.0)
#-> A.gain=5.0
### name computed 2
class A: a=1.0; b=2.0
o=A(); which="a"
def f(x=1.0): return x*getattr(o,"_"[1:]+which)
#-> A.a=9.0
### attrgetter made before
g=operator.attrgetter("p.q")
o=A(); o.p=A(); o.p.q=2.0
def f(x=1.0): return x*g(o)
#-> o.p.q=3.0
### attrgetter in body
n="p"
o=A(); o.p=2.0
def f(x=1.0): return x*operator.attrgetter(n)(o)
#-> o.p=3.0
### copy
o=A(); o.zz=2.0
def use(q): return [*vars(q).values()][0]
def f(x=1.0): return x*use(copy.copy(o))
#-> o.zz=3.0
### callable instance default
class A:
    def __call__(s,v,by=2.0): return v*by
o=A()
def f(x=1.0): return o(x)
#-> A.__call__.__defaults__=(5.0,)
### singledispatch
@functools.singledispatch
def g(v): return 1.0
@g.register
def _(v:int): return k
k=2.0
n=3
def f(x=1.0): return x*g(n)
#-> k=7.0
### exec helper
sp={"k":2.0}
exec("def h(v): return v*k", sp)
h=sp["h"]
def f(x=1.0): return h(x)
#-> sp['k']=3.0
### enum value
class K(enum.Enum):
    A=[1.0]
def f(x=1.0): return x*K.A.value[0]
#-> K.A.value[0]=3.0
### slots default
class A:
    __slots__=("v",)
a=A()
def f(x=1.0): return x*getattr(a,"v",3.0)
#-> a.v=5.0
### sort key default
def key(v,s=1): return v*s
l=[1.0,2.0]
def f(x=1.0): return x*sorted(l,key=key)[0]
#-> key.__defaults__=(-1,)
### type of instance
class A: v=1.0
class B: v=2.0
o=A()
def f(x=1.0): return x*type(o).v
#-> o.__class__=B
### class via name
class A: v=1.0
reg={"a":A}
def f(x=1.0): return x*reg["a"]().v
#-> A.v=5.0
### nested attr swapped
o=A(); o.p=A(); o.p.k=1.0; q=A(); q.k=2.0
def f(x=1.0): return x*o.p.k
#-> o.p=q
### defaultdict factory
d=collections.defaultdict(lambda:2.0)
def f(x=1.0): return x*dict(d).get("q",d.default_factory())
#-> d.default_factory=lambda:5.0
### walrus lambda
tab=[lambda v:v*k]
k=2.0
def f(x=1.0): return tab[0](x)
#-> k=6.0
### frozenset of objs
class A:
    def __init__(s,v): s.v=v
s=frozenset([A(1.0)])
o=next(iter(s))
def f(x=1.0): return x*sum(q.v for q in s)
#-> o.v=4.0
"""),
)
def test_indirect_reads_are_guarded(case: Case) -> None:
    is_seen(case)


@pytest.mark.parametrize(
    "case",
    cases("""
### special method that is a function in C
xs = [1.0]
class B: __len__ = staticmethod(xs.__len__)
b = B()
def f(): return len(b)
#-> xs.append(2.0)
### Decimal
d = Decimal("1.5")
def f(): return d + 1
#-> d = Decimal("2.5")
### Path
p = PurePath("a")
def f(): return p.name
#-> p = PurePath("b")
### print options
def f(): return np.array2string(np.array([1.23456]))
#-> np.set_printoptions(precision=2)
### recursionlimit
def f(): return sys.getrecursionlimit() > 5000
#-> sys.setrecursionlimit(6000)
### cached_property first
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
### metaclass getattr
class Mt(type):
    def __getattr__(c,n): return tab[n]
tab={"k":1.0}
class A(metaclass=Mt): pass
def f(x=1.0): return x*A.k
#-> tab['k']=3.0
### setdefault
d={}
def f(x=1.0): return x*d.setdefault("k",2.0)
#-> d['k']=5.0
"""),
)
def test_reads_that_make_a_body_run_are_never_stale(case: Case) -> None:
    is_never_stale(case)
