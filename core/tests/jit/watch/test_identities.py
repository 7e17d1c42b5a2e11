"""Code that compares things by identity: which of them are one object is guarded, also of containers."""

from __future__ import annotations

import collections
import enum
import functools
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from mgb import tensor
from mgb.jit import trace

MAKERS: dict[str, Callable[[], Any]] = {
    "list": lambda: [1.0], "dict": lambda: {"a": 1}, "set": lambda: {1},
    "deque": lambda: collections.deque([1]), "ordered": lambda: collections.OrderedDict(a=1),
    "defaultdict": lambda: collections.defaultdict(int, a=1), "counter": lambda: collections.Counter("a"),
    "bytearray": lambda: bytearray(b"a"), "tuple": lambda: ([1],),
    "namespace": lambda: types.SimpleNamespace(a=1), "partial": lambda: functools.partial(max, 1),
}  # fmt: skip


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("MGB_JIT_BACKEND", "EAGER")
    return iter(())


class Box:
    def __init__(self, kept: Any) -> None:
        self.kept = kept


@pytest.mark.parametrize("kind", MAKERS)
def test_equal_arguments_that_become_one_object_are_seen(kind: str) -> None:
    make = MAKERS[kind]
    traced = trace(lambda x, a, b: x * (5.0 if a is b else 1.0))
    one = make()
    for a, b in ((make(), make()), (make(), make()), (one, one), (make(), make())):
        assert traced(tensor(1.0), a, b).item() == (5 if a is b else 1)


@pytest.mark.parametrize("kind", MAKERS)
def test_an_attribute_that_becomes_a_sentinel_is_seen(kind: str) -> None:
    default = MAKERS[kind]()
    box = Box(None)
    traced = trace(lambda x: x * (5.0 if box.kept is default else 1.0))
    for kept in (MAKERS[kind](), MAKERS[kind](), default, MAKERS[kind]()):
        box.kept = kept
        assert traced(tensor(1.0)).item() == (5 if kept is default else 1)


@pytest.mark.parametrize("kind", ["list", "dict"])
def test_an_argument_that_becomes_a_sentinel_is_seen(kind: str) -> None:
    default = MAKERS[kind]()
    traced = trace(lambda x, given: x * (5.0 if given is default else 1.0))
    for given in (MAKERS[kind](), MAKERS[kind](), default, MAKERS[kind]()):
        assert traced(tensor(1.0), given).item() == (5 if given is default else 1)
    assert "by its identity" in str(traced.stats()["reasons"])


def test_arrays_are_compared_by_a_function() -> None:
    box, other = Box(np.ones(1)), np.ones(1)
    traced = trace(lambda x: x * (5.0 if operator.is_(box.kept, other) else 1.0))
    for kept in (box.kept, box.kept, other):
        box.kept = kept
        assert traced(tensor(1.0)).item() == (5 if kept is other else 1)


def test_comparing_members_of_an_enum_costs_lists_among_the_arguments_nothing() -> None:
    mode = enum.Enum("mode", "train test")
    now, names = mode["train"], ["a"]
    traced = trace(lambda x, values: x * (len(values) if now is mode.train else len(names)))
    for _ in range(5):
        assert traced(tensor(1.0), [1, 2]).item() == 2
    assert traced.stats()["body_runs"] == 1


@pytest.mark.parametrize("find", [lambda a, b: a in [b], lambda a, b: a == b, lambda a, b: [b].count(a)])
def test_a_search_that_finds_by_identity_is_seen(find: Callable[[Any, Any], Any]) -> None:
    wanted, box = functools.partial(max, 1), Box(functools.partial(max, 1))
    traced = trace(lambda x: x * (5.0 if find(box.kept, wanted) else 1.0))
    for kept in (box.kept, functools.partial(max, 1), wanted):
        box.kept = kept
        assert traced(tensor(1.0)).item() == (5 if kept is wanted else 1)


@pytest.mark.parametrize("read", [getattr, lambda module, name: vars(module)[name]], ids=["getattr", "vars"])
def test_a_variable_of_a_module_whose_name_is_computed_is_guarded(read: Callable[[Any, str], Any]) -> None:
    settings, name = types.ModuleType("settings"), "RATE"
    traced = trace(lambda x: x * read(settings, name))
    for rate in (0.5, 0.5, 0.75, 2.0):
        settings.RATE = rate  # type: ignore[attr-defined]
        assert traced(tensor(1.0)).item() == rate


def test_a_function_of_a_library_that_is_patched_is_seen_by_a_computed_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import math

    name = "floor"
    traced = trace(lambda x: x * getattr(math, name)(2.5))
    assert [traced(tensor(1.0)).item() for _ in range(3)] == [2, 2, 2]
    monkeypatch.setattr(math, "floor", math.ceil)
    assert traced(tensor(1.0)).item() == 3
