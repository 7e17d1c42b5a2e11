"""What operators, statements and calls of a body read outside is guarded."""

from __future__ import annotations

import functools
import math
import signal
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from mgb.jit.guard import Guard, Guards
from mgb.jit.source import Global, ObjectRef, Scope, Source, try_read
from watch_cases import Case, cases, is_seen, observed


@pytest.mark.parametrize(
    "case",
    cases("""
### global that appears
def f():
    try: return later
    except NameError: return 0
#-> later = 5
### builtin that is replaced
builtins.watched_thing = 1
def f(): return watched_thing
#-> builtins.watched_thing = 2
### two closures of one code
def make(n):
    def inner(): return n[0]
    return inner
boxes = [[1], [2]]
a, b = make(boxes[0]), make(boxes[1])
def f(): return a() + b()
#-> boxes[1][0] = 7
### attribute that goes
class A:
    x = 5
a = A(); a.x = 1
def f(): return a.x
#-> del a.x
### getattr of a class, then an attribute
class A:
    def __getattr__(self, name): return 1
a = A()
def f(): return a.x
#-> a.x = 2
### classmethod replaced
class A:
    @classmethod
    def m(cls): return 1
a = A()
def f(): return a.m()
#-> A.m = classmethod(lambda cls: 2)
### getattr by a computed name
a = A(); a.x1 = 1; n = 1
def f(): return getattr(a, f"x{n}")
#-> a.x1 = 2
### globals
k = 1
def f(): return globals()["k"]
#-> k = 2
### module looked up that comes
def f(): return "watched_nowhere" in sys.modules
#-> sys.modules["watched_nowhere"] = math
### module looked up that is replaced
sys.modules["watched_nowhere"] = A()
def f(): return hasattr(sys.modules.get("watched_nowhere"), "pi")
#-> sys.modules["watched_nowhere"] = math
### module looked up by the name of the caller
def looked_up(name): return name in sys.modules and sys.modules.get(name, None) is not None
def f(): return [looked_up("math"), looked_up("watched_nowhere")]
#-> sys.modules["watched_nowhere"] = math
### module looked up by a global
name = "math"
def f(): return sys.modules[name].pi
#-> name = "watched_nowhere"; sys.modules[name] = SimpleNamespace(pi=3)
### variable of a module looked up
sys.modules["watched_nowhere"] = SimpleNamespace(k=1)
def f(): return sys.modules["watched_nowhere"].k
#-> sys.modules["watched_nowhere"].k = 2
### NaN known by its identity
values = [1.0, math.nan]
def f(): return math.nan in values
#-> values[1] = float("nan")
### sorted with a key from outside
k = 1
def key(x): return x * k
def f(): return sorted([1, 2, 3], key=key)
#-> k = -1
### text of an outside value
xs = [1, 2]
def f(): return f"{xs}"
#-> xs.append(3)
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
### import in the body
def f():
    import math
    return math.tau
#-> import math; math.tau, kept = 7.0, math.tau
### private names
class A:
    def __init__(self): self.__k = 1
    def m(self): return self.__k
a = A()
def f(): return a.m()
#-> a._A__k = 2
### missing in a Counter
c = Counter("aab")
def f(): return c["z"]
#-> c["z"] = 7
### deepcopy
d = {"a": [1]}
def f(): return copy.deepcopy(d)["a"][0]
#-> d["a"][0] = 2
### itemgetter
d = {"a": 1}
def f(): return itemgetter("a")(d)
#-> d["a"] = 2
### truth of a member
class E(Enum):
    A = 1
e = E.A
def f(): return 1 if e else 2
#-> E.__bool__ = lambda self: False
### property of a getter
class A:
    lr = property(attrgetter("cfg.lr"))
class C: pass
a = A(); a.cfg = C(); a.cfg.lr = 1
def f(): return a.lr
#-> a.cfg.lr = 2
### kept result that is cleared
k = 1
@cache
def g(x): return x + k
def f(): return g(1)
#-> k = 5; g.cache_clear()
### kept list that is changed
@lru_cache(maxsize=8)
def g(x): return [x]
g(1)
def f(): return g(1)[0]
#-> g(1)[0] = 3
### kept by a class of a library, and cleared
k = 1
@lru_cache
def g(kind): return kind.__name__, k
def f(): return g(dict)
#-> k = 5; g.cache_clear()
### level of a logger
log = logging.getLogger("watched_level")
def f(): return log.isEnabledFor(logging.INFO)
#-> log.setLevel(logging.INFO)
### json of outside data
d = {"a": [1, {"b": 2}]}
def f(): return json.dumps(d, sort_keys=True)
#-> d["a"][1]["b"] = 3
### dataclass in a text
@dataclass
class C:
    xs: list
c = C([1])
def f(): return f"{c}"
#-> c.xs.append(2)
"""),
)
def test_external_reads_are_guarded(case: Case) -> None:
    is_seen(case)


LOOKS_UP = {
    "sys.modules": "def f(): return 'watched_nowhere' in sys.modules",
    "sys.modules by a parameter": "def g(n): return sys.modules.get(n)\ndef f(): return g('watched_nowhere')",
    "vars of a module": "def f(): return vars(math).get('pi')",
    "warnings.filters": "def f(): return len(warnings.filters)",
    "sys.path": "def f(): return len(sys.path)",
    "sys.flags": "def f(): return sys.flags.optimize",
    "sys.argv": "def f(): return len(sys.argv)",
    "sys.version_info": "def f(): return sys.version_info >= (3, 8), sys.version_info.major",
}


@pytest.mark.parametrize("text", LOOKS_UP.values(), ids=LOOKS_UP)
def test_states_of_python_are_guarded_whatever_is_imported_meanwhile(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, observer, _ = observed(text)
    assert not observer.impurities, observer.impurities
    monkeypatch.setitem(sys.modules, "watched_elsewhere", math)
    monkeypatch.setenv("watched_elsewhere", "1")
    assert observer.guards.hold(observer.leaves), observer.guards.why(observer.leaves)


class Interrupted(Source):
    """What stands there is asked for when a signal comes."""

    def read(self, leaves: Sequence[Any]) -> Any:
        signal.raise_signal(signal.SIGALRM)

    def code(self, scope: Scope) -> str:
        return f"{scope.name(signal.raise_signal)}({int(signal.SIGALRM)})"


class Stop:
    """A signal handler that raises."""

    def __call__(self, number: int, frame: object) -> None:
        raise LookupError("stop")


@pytest.mark.parametrize("ask", [
    lambda: Guard(Interrupted(), "same", 1).holds([]),
    lambda: Guard(Interrupted(), "same", 1).change([]),
    lambda: Guards([Guard(Interrupted(), "same", 1)]).compile()([]),
    lambda: try_read(Interrupted()),
], ids=["holds", "change", "compiled", "found"])  # fmt: skip
@pytest.mark.parametrize(
    "handler", [Stop(), Stop().__call__, functools.partial(Stop())], ids=["object", "method", "partial"]
)
def test_exceptions_of_signal_handlers_are_no_guards_that_fail(ask: Any, handler: Any) -> None:
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(LookupError, match="stop"):
            ask()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_singletons_are_guarded_by_identity() -> None:
    space = {"one": None, "two": True, "three": ..., "four": NotImplemented}
    guards = Guards([Guard(Global(ObjectRef(space), name), "same", value) for name, value in space.items()])
    check = guards.compile()
    assert check(())
    for name in list(space):
        before, space[name] = space[name], 0
        assert not check(())
        space[name] = before
    assert check(())
