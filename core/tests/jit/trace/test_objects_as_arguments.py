"""Objects as arguments: another one at each call is served, and what the body reads of it decides."""

import copy
import functools
import json
import operator
import pickle
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb import jit, tensor
from new_arguments import ONE, Batch, agree, batch, three


class Slots:
    __slots__ = ("x", "y")

    def __init__(self, x: Any, y: Any = None) -> None:
        self.x, self.y = x, y


class Equal(Batch):
    """Equal where `y` is."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal) and bool(self.y == other.y)

    def __hash__(self) -> int:
        return hash(self.y)


class Unhashable(Batch):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unhashable) and bool(self.y == other.y)

    __hash__ = None  # type: ignore[assignment]


class Full(Batch):
    """Whatever Python asks of an object."""

    def __len__(self) -> int:
        return int(self.y)

    def __bool__(self) -> bool:
        return bool(self.y > 1)

    def __iter__(self) -> Iterator[Any]:
        return iter([self.x] * int(self.y))

    def __getitem__(self, key: Any) -> Any:
        return self.x * (self.y + key)

    def __contains__(self, value: Any) -> bool:
        return bool(value == self.y)

    def __call__(self, value: Any) -> Any:
        return value * self.y

    def __float__(self) -> float:
        return float(self.y)

    def __index__(self) -> int:
        return int(self.y)

    def __enter__(self) -> Any:
        return self.y

    def __exit__(self, *error: object) -> None: ...

    def __add__(self, other: Any) -> Any:
        return self.x + other * self.y

    def __radd__(self, other: Any) -> Any:
        return self.x - other * self.y

    def __repr__(self) -> str:
        return f"Full({self.y})"

    def __format__(self, spec: str) -> str:
        return f"{self.y}{spec}"

    def __lt__(self, other: Any) -> bool:
        return bool(self.y < 2)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.y * len(name)


class Rate:
    rate = 2.0


class Mode(Enum):
    TRAIN = 1
    TEST = 2


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Data:
    x: Any
    y: Any = 1.0
    more: list[Any] = field(default_factory=list)


KEPT = Batch(three(7), 3.0)
TABLE = {float(n): n * 2.0 + 1 for n in range(8)}


def of(make: Callable[[int], Any]) -> Callable[[int], Any]:
    return lambda n: Batch(three(n), make(n))


def kept_or_new(n: int) -> Any:
    return KEPT if n == 1 else Batch(three(7), 3.0)


def in_block(b: Any) -> Any:
    with b as y:
        return b.x * y


def loops(b: Any) -> Any:
    total = ONE
    for part in b:
        total = total * 2 + part
    return total


def matched(b: Any) -> Any:
    match b:
        case Batch(y=1.0):
            return b.x
        case Batch(y=2.0):
            return b.x * 10
        case _:
            return b.x * 100


def deleted(b: Any) -> Any:
    del b.y
    return b.x * (3.0 if hasattr(b, "y") else 4.0)


def writes(b: Any) -> Any:
    b.x = b.x * 2
    b.y = b.y + 1
    return b.x * b.y


def counts(b: Any) -> Any:
    b.y += 1.0
    return ONE * b.y


def changes_list(b: Any) -> Any:
    b.y.append(5.0)
    return b.x * sum(b.y)


CASES: dict[str, tuple[Callable[[int], Any], Callable[[Any], Any]]] = {
    "tensors": (lambda n: Batch(three(n), three(n + 1)), lambda b: b.x * ONE + b.y),
    "a number": (batch(), lambda b: b.x * b.y),
    "slots": (batch(Slots), lambda b: b.x * b.y),
    "equality of its own": (batch(Equal), lambda b: b.x * b.y),
    "no hash": (batch(Unhashable), lambda b: b.x * b.y),
    "a namespace": (lambda n: types.SimpleNamespace(x=three(n), y=float(n)), lambda b: b.x * b.y),
    "a namespace's number": (lambda n: types.SimpleNamespace(y=float(n)), lambda b: ONE * b.y),
    "a dataclass": (lambda n: Data(three(n), float(n), [three(n)]), lambda b: b.x * b.y + b.more[0]),
    "in a dataclass": (lambda n: Data(batch()(n)), lambda b: b.x.x * b.x.y),
    "in a named tuple": (lambda n: Pair(batch()(n), n), lambda b: b.left.x * b.left.y),
    "in a list": (lambda n: [batch()(n), batch()(n + 1)], lambda b: b[0].x * b[1].y),
    "in a dict": (lambda n: {"b": batch()(n)}, lambda b: b["b"].x * b["b"].y),
    "a method": (batch(), lambda b: b.scaled()),
    "a property": (batch(), lambda b: b.x * b.half),
    "a cached property": (batch(), lambda b: b.x * b.third),
    "a text": (of(lambda n: ["a", "b", "c"][n % 3]), lambda b: b.x * (1.0 if b.y == "a" else 2.0)),
    "a branch": (batch(), lambda b: b.x if b.y > 1 else -b.x),
    "None": (of(lambda n: None if n == 1 else n), lambda b: b.x if b.y is None else b.x * 3),
    "an enum": (of(lambda n: Mode(1 + n % 2)), lambda b: b.x if b.y is Mode.TRAIN else -b.x),
    "an enum's value": (of(lambda n: Mode(1 + n % 2)), lambda b: b.x * b.y.value),
    "a list": (of(lambda n: [float(n), 2.0]), lambda b: b.x * sum(b.y)),
    "a list's length": (of(lambda n: [1.0] * n), lambda b: b.x * len(b.y)),
    "a list of tensors": (of(lambda n: [three(n), three(2)]), lambda b: b.y[0] * b.y[1]),
    "a dict": (of(lambda n: {"k": float(n)}), lambda b: b.x * b.y["k"]),
    "a dict's keys": (of(lambda n: {"abc"[n % 3]: 1.0}), lambda b: b.x * len(list(b.y)) * ("a" in b.y)),
    "a dict's tensors": (of(lambda n: {"k": three(n)}), lambda b: b.x * b.y["k"]),
    "a set": (of(lambda n: {n, 5}), lambda b: b.x * (1 if 1 in b.y else 2)),
    "a tuple": (of(lambda n: (float(n), three(n))), lambda b: b.y[0] * b.y[1]),
    "an array": (of(lambda n: np.full(3, n, np.float32)), lambda b: b.x * b.y),
    "an array's element": (of(lambda n: np.full(3, n, np.float32)), lambda b: b.x * float(b.y[1])),
    "an array's sum": (of(lambda n: np.full(3, n, np.float32)), lambda b: b.x * float(b.y.sum())),
    "an array's shape": (of(lambda n: np.ones(n, np.float32)), lambda b: b.x * b.y.shape[0]),
    "a tensor's shape": (of(lambda n: tensor(np.ones(n, np.float32))), lambda b: b.x * b.y.shape[0]),
    "an object": (of(batch()), lambda b: b.y.x * b.y.y),
    "a function": (of(lambda n: functools.partial(operator.mul, float(n))), lambda b: b.y(b.x)),
    "a lambda": (of(lambda n: lambda v: v * float(n)), lambda b: b.y(b.x)),
    "a bound method": (of(lambda n: batch()(n).scaled), lambda b: b.y()),
    "a class": (of(lambda n: type("Made", (), {"k": float(n)})), lambda b: b.x * b.y.k),
    "a layer": (of(lambda n: _linear(n)), lambda b: b.y(b.x)),
    "an iterator": (of(lambda n: iter([float(n), 2.0])), lambda b: b.x * next(b.y)),
    "a generator": (of(lambda n: (float(n) for _ in range(9))), lambda b: b.x * next(b.y)),
    "getattr": (batch(), lambda b: b.x * getattr(b, "y", 0.0)),
    "getattr of a name": (of(lambda n: ["x", "z"][n % 2]), lambda b: ONE * getattr(b, b.y, 9.0)),
    "hasattr": (lambda n: _with(n), lambda b: b.x * (2.0 if hasattr(b, "extra") else 3.0)),
    "vars": (batch(), lambda b: b.x * vars(b)["y"]),
    "the values of vars": (batch(), lambda b: functools.reduce(operator.mul, vars(b).values())),
    "the items of __dict__": (batch(), lambda b: sum((v * 2 for _, v in b.__dict__.items()), ONE)),
    "the number of attributes": (lambda n: _with(n), lambda b: b.x * len(vars(b))),
    "dir": (lambda n: _with(n), lambda b: b.x * len(dir(b))),
    "attrgetter": (batch(), lambda b: b.x * operator.attrgetter("y")(b)),
    "attrgetter twice": (of(batch()), lambda b: b.x * operator.attrgetter("y.y")(b)),
    "methodcaller": (batch(), lambda b: operator.methodcaller("scaled")(b)),
    "type": (lambda n: [Batch, Slots][n % 2](three(n)), lambda b: b.x * len(type(b).__name__)),
    "isinstance": (lambda n: [Batch, Equal][n % 2](three(n)), lambda b: b.x * isinstance(b, Equal)),
    "a class's attribute": (lambda n: _rated(n), lambda b: ONE * b.rate),
    "matching": (batch(), matched),
    "len": (batch(Full), lambda b: b.x * len(b)),
    "truth": (batch(Full), lambda b: b.x if b else -b.x),
    "not": (batch(Full), lambda b: b.x * float(not b)),
    "iteration": (batch(Full), loops),
    "unpacking": (lambda n: Full(three(n), 2.0), lambda b: _first(*b)),
    "an item": (batch(Full), lambda b: b[2.0]),
    "in": (batch(Full), lambda b: b.x * (3.0 in b)),
    "a call": (batch(Full), lambda b: b(b.x)),
    "float": (batch(Full), lambda b: b.x * float(b)),
    "range": (batch(Full), lambda b: b.x * len(range(b))),
    "with": (batch(Full), in_block),
    "plus": (batch(Full), lambda b: b + ONE),
    "plus from the right": (batch(Full), lambda b: 2.0 + b),
    "str": (batch(Full), lambda b: b.x * len(str(b)) * float(str(b)[5])),
    "an f-string": (batch(Full), lambda b: b.x * float(f"{b:0}")),
    "a comparison": (batch(Full), lambda b: b.x * (b < 3)),
    "sorted": (lambda n: [Full(three(n), float(n)), Full(ONE, 2.0)], lambda b: sorted(b, key=float)[0].x * 2),
    "max": (lambda n: [Batch(three(n), float(n)), KEPT], lambda b: max(b, key=lambda p: p.y).x * 2),
    "__getattr__": (batch(Full), lambda b: b.x * b.abc),
    "equality": (batch(Equal), lambda b: b.x * (b == Equal(ONE, 2.0))),
    "a hash": (batch(Equal), lambda b: b.x * {Equal(ONE, 2.0): 5.0}.get(b, 7.0)),
    "identity": (kept_or_new, lambda b: b.x * (b is KEPT)),
    "identity in a list": (kept_or_new, lambda b: b.x * (b in [KEPT])),
    "identity in a dict": (kept_or_new, lambda b: b.x * {KEPT: 2.0}.get(b, 3.0)),
    "default equality": (kept_or_new, lambda b: b.x * (b == KEPT)),
    "default hash": (kept_or_new, lambda b: b.x * (hash(b) == hash(KEPT))),
    "id": (kept_or_new, lambda b: b.x * (id(b) == id(KEPT))),
    "an index": (kept_or_new, lambda b: b.x * [5.0, b].count(KEPT)),
    "a weak reference": (kept_or_new, lambda b: b.x * (weakref.ref(b)() is KEPT)),
    "two places": (lambda n: _twice(n), lambda b: b[0].x * (2.0 if b[0] is b[1] else 3.0)),
    "two places, written": (lambda n: _twice(n), lambda b: counts(b[0]) * b[1].y),
    "a tensor in two places": (lambda n: _shared(n), lambda b: b.x * (2.0 if b.x is b.y else 3.0)),
    "copy": (batch(), lambda b: copy.copy(b).x * copy.copy(b).y),
    "deepcopy": (of(lambda n: [float(n)]), lambda b: b.x * copy.deepcopy(b.y)[0]),
    "pickle": (of(lambda n: {"k": [float(n)]}), lambda b: b.x * pickle.loads(pickle.dumps(b.y))["k"][0]),
    "pickle of it": (lambda n: Batch(None, float(n)), lambda b: ONE * pickle.loads(pickle.dumps(b)).y),
    "json": (of(lambda n: [n]), lambda b: b.x * len(json.dumps(b.y)) + json.loads(json.dumps(b.y))[0]),
    "map": (lambda n: [batch()(n), batch()(2)], lambda b: sum(map(operator.attrgetter("y"), b)) * ONE),
    "zip": (of(lambda n: [float(n), 2.0]), lambda b: sum(p * q for p, q in zip(b.y, b.y)) * b.x),
    "reduce": (of(lambda n: [float(n), 2.0]), lambda b: functools.reduce(operator.mul, b.y) * b.x),
    "a table": (batch(), lambda b: b.x * TABLE[b.y]),
    "writes": (batch(), writes),
    "counts": (batch(), counts),
    "deletes": (batch(), deleted),
    "changes a list": (of(lambda n: [float(n)]), changes_list),
}


def _linear(n: int) -> M.Module:
    layer = M.Linear(3, 2)
    layer.weight._reset(tensor(np.full((2, 3), n, np.float32)))
    layer.bias._reset(tensor(np.full(2, n, np.float32)))
    return layer


def _with(n: int) -> Any:
    made = Batch(three(n))
    if n % 2:
        made.extra = 1.0  # type: ignore[attr-defined]
    return made


def _rated(n: int) -> Any:
    made = Rate()
    if n % 2:
        made.rate = float(n)
    return made


def _first(one: Any, two: Any) -> Any:
    return one * 2 + two


def _twice(n: int) -> Any:
    one = Batch(three(n), float(n))
    return [one, one if n % 2 else Batch(three(n), float(n))]


def _shared(n: int) -> Any:
    x = three(n)
    return Batch(x, x if n % 2 else three(n))


@pytest.mark.parametrize("symbolic", [False, True], ids=["default", "symbolic"])
@pytest.mark.parametrize("name", CASES)
def test_what_is_read_of_an_object_decides(name: str, symbolic: bool) -> None:
    make, body = CASES[name]
    agree(body, make, symbolic)


SERVED = (
    "tensors", "a number", "slots", "equality of its own", "no hash", "a namespace", "a dataclass",
    "in a list", "in a dataclass", "in a dict", "in a named tuple", "a method", "a property",
    "a list of tensors", "a dict", "a dict's tensors", "a tuple", "an array", "an object", "getattr",
    "an item",
)  # fmt: skip


@pytest.mark.parametrize("name", SERVED)
def test_new_objects_are_served(name: str) -> None:
    """Two records at most: the second one for whatever number stands there."""
    make, body = CASES[name]
    traced = jit.trace(body)
    for n in range(12):
        traced(make(n))
    assert traced.stats()["body_runs"] <= 2, traced.stats()["reasons"]


def test_new_objects_with_tensors_alone_are_served_by_one_record() -> None:
    traced = jit.trace(lambda b: b.x * ONE + b.y)
    for n in range(12):
        traced(Batch(three(n), three(n + 1)))
    assert traced.stats()["body_runs"] == 1, traced.stats()["reasons"]


def test_one_object_that_changes() -> None:
    """The same object at each call, with other attributes."""
    b = Batch(three(1), 1.0)
    traced = jit.trace(lambda b: b.x * b.y + F.exp(b.x))
    for n in range(8):
        b.x, b.y = three(n), float(n // 2)
        np.testing.assert_allclose(traced(b).numpy(), (b.x * b.y + F.exp(b.x)).numpy(), rtol=1e-6)
    assert traced.stats()["body_runs"] <= 3
