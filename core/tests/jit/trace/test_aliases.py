"""Objects that become one, or two, after a call was recorded whose body writes into one of them."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mgb import jit, tensor

ZERO = np.zeros(3, np.float32)


class State(SimpleNamespace):
    """What lives between calls."""


class Held:
    def __init__(self, value: float) -> None:
        self.h = tensor(ZERO + value)


class Noted(list[Any]):
    """It keeps what is put into it."""

    def __setitem__(self, key: Any, value: Any) -> None:
        list.__setitem__(self, key, value)
        self.append(value)


def state() -> State:
    s = State(a=Held(1), b=Held(2), d={"w": tensor(ZERO)}, e={"w": tensor(ZERO + 1)}, h=tensor(ZERO), c=0)
    s.row, s.other, s.two, s.v = [], [], [tensor(ZERO), tensor(ZERO + 1)], {"h": tensor(ZERO + 3)}
    s.inner = State(h=tensor(ZERO + 4))
    return s


def objects(s: Any, x: Any) -> Any:
    s.a.h = x * 2
    return s.b.h * 3


def both(s: Any, x: Any) -> Any:
    s.a.h = s.a.h + x
    s.b.h = s.b.h * 2
    return s.a.h * 1.0


def itself(s: Any, x: Any) -> Any:
    s.h = x * 2
    return s.inner.h * 3


def dicts(s: Any, x: Any) -> Any:
    s.d["w"] = x * 2
    return s.e["w"] * 3


def namespaces(s: Any, x: Any) -> Any:
    s.h = x * 2
    return s.v["h"] * 3


def lengths(s: Any, x: Any) -> Any:
    s.row.append(x * 2)
    return x * len(s.other)


def truth(s: Any, x: Any) -> Any:
    s.row.append(x * 2)
    return x if s.other else -x


def elements(s: Any, x: Any) -> Any:
    s.two[0] = x * 2
    return s.two[-1] * 3


def numbers(s: Any, x: Any) -> Any:
    s.d["n"] = 5.0
    return x * s.e.get("n", 1.0)


def fails(s: Any, x: Any) -> Any:
    s.two[1] = x * 2
    s.row.append(x * 3)
    s.c += 1
    return x


def three_times(s: Any, x: Any) -> Any:
    for n in range(3):
        s.two[0] = x * n
    return x


def same(left: str, right: str) -> Callable[[Any], None]:
    return lambda s: setattr(s, left, getattr(s, right))


CASES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]] = {
    "objects": (objects, same("b", "a")),
    "both written": (both, same("b", "a")),
    "an object in itself": (itself, lambda s: setattr(s, "inner", s)),
    "dicts": (dicts, same("e", "d")),
    "an object and its dict": (namespaces, lambda s: setattr(s, "v", vars(s))),
    "lists by their lengths": (lengths, lambda s: (same("other", "row")(s), s.row.clear())),
    "lists by their truth": (truth, lambda s: (same("other", "row")(s), s.row.clear())),
    "two indices": (elements, lambda s: s.two.pop()),
    "numbers": (numbers, same("e", "d")),
    "an index that is gone": (fails, lambda s: s.two.pop()),
    "a class that notes": (three_times, lambda s: setattr(s, "two", Noted(s.two))),
}


def shown(thing: Any, deep: int = 3) -> Any:
    if hasattr(thing, "tolist"):
        return thing.tolist()
    if isinstance(thing, dict):
        return {key: shown(value, deep - 1) for key, value in thing.items()} if deep else "..."
    if isinstance(thing, list):
        return [shown(value, deep - 1) for value in thing]
    if isinstance(thing, (State, Held)):
        return shown(vars(thing), deep - 1) if deep else "..."
    return thing


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args).tolist()
    except IndexError:
        return "IndexError"


@pytest.mark.parametrize("symbolic", [False, True], ids=["default", "symbolic"])
@pytest.mark.parametrize("name", CASES)
def test_what_becomes_one_is_written_as_one(name: str, symbolic: bool) -> None:
    body, change = CASES[name]
    one, other = state(), state()
    traced = jit.trace(lambda x: body(one, x), symbolic=symbolic)
    for call in range(6):
        x = tensor(ZERO + 10**call)
        assert outcome(traced, x) == outcome(body, other, x), call
        assert shown(one) == shown(other), call
        if call == 2:
            change(one)
            change(other)


def pair(n: int) -> Any:
    a = State(x=tensor(ZERO + 1), l=[1.0])
    return State(a=a, b=a if n else State(x=tensor(ZERO + 1), l=[1.0]))


def by_attribute(o: Any) -> Any:
    o.a.x = o.a.x * 5
    return o.b.x * 1.0


def by_element(o: Any) -> Any:
    o.a.l[0] = 5.0
    return o.b.x * o.b.l[0]


def by_a_new_name(o: Any) -> Any:
    o.a.z = 1.0
    return o.b.x * hasattr(o.b, "z")


@pytest.mark.parametrize("body", [by_attribute, by_element, by_a_new_name])
@pytest.mark.parametrize("symbolic", [False, True], ids=["default", "symbolic"])
def test_one_object_in_two_places_of_the_arguments(body: Callable[[Any], Any], symbolic: bool) -> None:
    traced = jit.trace(body, symbolic=symbolic)
    for n in (0, 0, 1, 1, 0, 1):
        assert traced(pair(n)).tolist() == body(pair(n)).tolist()


GLOBAL = State(x=tensor(ZERO + 1))


@pytest.mark.parametrize("writes_global", [False, True])
def test_argument_that_is_a_global(writes_global: bool) -> None:
    def body(o: Any) -> Any:
        one, other = (GLOBAL, o) if writes_global else (o, GLOBAL)
        one.x = one.x * 5
        return other.x * 1.0

    def given(n: int) -> Any:
        GLOBAL.x = tensor(ZERO + 1)
        return GLOBAL if n else State(x=tensor(ZERO + 1))

    traced = jit.trace(body)
    for n in (0, 0, 1, 1, 0, 1):
        assert traced(given(n)).tolist() == body(given(n)).tolist()


def test_list_argument_that_stands_in_another_one_too() -> None:
    def body(rows: Any, o: Any) -> Any:
        rows[0] = rows[0] * 2
        return o.rows[0] * 1.0

    def given(n: int) -> tuple[Any, Any]:
        rows = [tensor(ZERO + 1)]
        return rows, State(rows=rows if n else [tensor(ZERO + 1)])

    traced = jit.trace(body)
    for n in (0, 0, 1, 1, 0, 1):
        assert traced(*given(n)).tolist() == body(*given(n)).tolist()
