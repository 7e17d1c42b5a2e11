"""Attributes of Tensors, containers that a store reads, classes that are asked for: guarded, or told."""

from __future__ import annotations

import pytest
from watch_cases import Case, cases, is_never_stale, is_pure, is_seen, is_told


@pytest.mark.parametrize(
    "case",
    cases("""
### attribute that a Parameter lacks
w = Parameter(np.ones(2, np.float32))
def f(): return getattr(w, "frozen", False)
#-> w.frozen = True
### attribute that a Parameter has no more
w = Parameter(np.ones(2, np.float32))
w.decay = 0.5
def f(): return hasattr(w, "decay")
#-> del w.decay
### attribute of a class of Tensors
class Marked(Parameter): mark = 1
w = Marked(np.ones(2, np.float32))
def f(): return w.mark
#-> w.mark = 2
### attribute that a class of Tensors gets
class Marked(Parameter): mark = 1
w = Marked(np.ones(2, np.float32))
def f(): return w.mark
#-> Marked.mark = 2
### property of a class of Tensors
class Marked(Parameter):
    @property
    def mark(self): return self.level + 1
w = Marked(np.ones(2, np.float32))
w.level = 1
def f(): return w.mark
#-> w.level = 5
### name
t = tensor([1.0])
def f(): return t.name
#-> t.name = "bias"
### name in a pattern
t = tensor([1.0])
def f():
    match t:
        case Tensor(name="bias"): return 1
    return 0
#-> t.name = "bias"
### format
t = tensor([1.0])
def f(): return t.format
#-> t.format = "nchw"
### isinstance of a tuple in a tuple
kinds = (int, (float,))
def f(): return isinstance(1.0, kinds)
#-> kinds = (int, (str,))
### isinstance of a union
kinds = int | float
def f(): return isinstance(1.0, kinds)
#-> kinds = int | str
### isinstance of a union with an abstract class
class Sized(abc.ABC): pass
class Box: pass
box, kinds = Box(), int | Sized
def f(): return isinstance(box, kinds)
#-> Sized.register(Box)
### callable, of an instance whose class becomes it
class Box: pass
box = Box()
def f(): return callable(box)
#-> Box.__call__ = lambda self: 1
### class pattern in an object in a list
class Box:
    __match_args__ = ("v",)
    def __init__(self, v): self.v = v
box = Box([Box(1)])
def f():
    match box:
        case Box([Box(2)]): return 1
    return 0
#-> box.v[0].v = 2
### class pattern of slots
class Box:
    __slots__ = ("v", "__weakref__")
    def __init__(self, v): self.v = v
box = Box(Box(1))
def f():
    match [box]:
        case [Box(v=Box(v=2))]: return 1
    return 0
#-> box.v.v = 2
### elements of an array that the body makes
places, values = [1, 0], [8.0, 9.0]
def f():
    made = np.zeros(3)
    made[places] = values
    return made.tolist()
#-> places[0] = 2
### flags of an array
a = np.ones(3)
def f(): return a.flags.writeable
#-> a.setflags(write=False)
### context variable that gets a value
level = contextvars.ContextVar("level")
def f(): return level.get(3.0)
#-> level.set(2.0)
### context variable that gets what was its default here
level = contextvars.ContextVar("level")
def f(): return (level.get(3.0), level.get(4.0))
#-> level.set(3.0)
### handling of errors around
def f():
    with np.errstate(over="ignore"): return str(np.geterr()["divide"])
#-> np.seterr(divide="ignore")
### base of an array
whole = np.ones(3)
arrays = [np.ones(3)]
def f(): return arrays[0].base is None
#-> arrays[0] = whole[:2]
"""),
)
def test_reads_of_attributes_and_classes_are_guarded(case: Case) -> None:
    is_seen(case)


@pytest.mark.parametrize(
    "case",
    cases("""
### setting an attribute of a Parameter
w = Parameter(np.ones(2, np.float32))
def f(): w.tag = 3.0
#-> attribute tag of a Parameter
### counting in an attribute of a Parameter
w = Parameter(np.ones(2, np.float32))
w.hits = 0
def f(): w.hits += 1
#-> attribute hits of a Parameter
### deleting an attribute of a Parameter
w = Parameter(np.ones(2, np.float32))
w.tag = 1
def f():
    if hasattr(w, "tag"): del w.tag
#-> attribute tag of a Parameter
### naming a Tensor
t = tensor([1.0])
def f(): t.name = t.name + "a"
#-> attribute name of a Tensor
### naming a Tensor by setattr
t = tensor([1.0])
def f(): setattr(t, "format", "nchw")
#-> attribute format of a Tensor
### random numbers without a seed
def f(): return random.Random().random()
#-> random.Random
### random numbers of a class of one's own
class Dice(random.Random): pass
def f(): return Dice(None).random()
#-> random.Random
"""),
)
def test_writes_and_unguardable_reads_are_reported_as_side_effects(case: Case) -> None:
    is_told(case)


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize(
    "case",
    cases("""
### elements of the flags
a = np.ones(3)
def f(): return a.flags["WRITEABLE"]
#-> a.setflags(write=False)
### polynomial of the old kind
p = np.poly1d([1.0, 2.0])
def f(): return float(p(2.0))
#-> p[0] = 9.0
### root of one
p = np.poly1d([1.0, 2.0])
def f(): return float(p.r[0])
#-> p[0] = 9.0
### product of two
p = np.poly1d([1.0, 2.0])
def f(): return float((p * p).coeffs[2])
#-> p[0] = 9.0
### polynomial that a function is given
p = np.poly1d([1.0, 2.0])
def f(): return float(np.polyval(p, 2.0))
#-> p[0] = 9.0
### polynomial
p = np.polynomial.Polynomial([1.0, 2.0])
def f(): return float(p(2.0))
#-> p.coef[0] = 9.0
### polynomial with other coefficients
p = np.polynomial.Polynomial([1.0, 2.0])
def f(): return float(p(2.0))
#-> p.coef = np.array([5.0, 5.0])
### method of a polynomial
p = np.polynomial.Polynomial([1.0, 2.0])
def f(): return float(p.deriv()(2.0))
#-> p.coef[1] = 9.0
### masked array
a = np.ma.masked_array([1.0, 2.0], [False, False])
def f(): return float(a.sum())
#-> a[0] = np.ma.masked
### handling of errors
def f(): return np.geterr()["divide"]
#-> np.seterr(divide="ignore")
### options of printing
def f(): return np.get_printoptions()["precision"]
#-> np.set_printoptions(precision=3)
### size of the buffer
def f(): return np.getbufsize()
#-> np.setbufsize(16384)
### error that NumPy raises
def f(): return float(np.divide(1.0, 0.0))
#-> np.seterr(divide="raise")
"""),
)
def test_library_state_is_never_stale(case: Case) -> None:
    import numpy as np

    errors, buffer = np.geterr(), np.getbufsize()
    try:
        is_never_stale(case)
    finally:
        np.seterr(**errors)
        np.setbufsize(buffer)


@pytest.mark.parametrize(
    "case",
    cases("""
### what is computed once and kept
class Box:
    @functools.cached_property
    def kept(self): return 2.0
def f(): return Box().kept
### default of a context variable
level = contextvars.ContextVar("level")
def f(): return level.get(3.0)
### function that is made a context
def f():
    @contextlib.contextmanager
    def doubled(): yield 2.0
    with doubled() as v: return v
### function that keeps its results
def f():
    @functools.lru_cache
    def add(a): return a + 1
    return add(2) + add(2)
### class that is decorated
def f():
    @dataclasses.dataclass(order=True)
    class Point:
        x: float = 1.0
        @property
        def twice(self): return self.x * 2
        @twice.setter
        def twice(self, v): self.x = v / 2
    p = Point()
    p.twice = 8.0
    return p.x
### handling of errors
def f():
    with np.errstate(divide="ignore"): return float(np.divide(1.0, 0.0))
### after the fields of a dataclass
@dataclasses.dataclass
class P:
    x: float = 1.0
    def __post_init__(self): self.twice = self.x * 2
def f(): return P(3.0).twice
### methods of texts for each
def f(): return list(map(str.upper, ["a"])), sorted(["b", "A"], key=str.lower)
### method of None
def f(): return None.__repr__()
"""),
)
def test_bodies_that_use_no_mutable_external_state_are_pure(case: Case) -> None:
    is_pure(case)
