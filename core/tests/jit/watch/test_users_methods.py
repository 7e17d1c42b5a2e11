"""Guards ask objects of users without calling what their classes do when they are asked."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mgb import Tensor, tensor
from mgb.jit import trace

asked: list[str] = []


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("MGB_JIT_BACKEND", "EAGER")
    asked.clear()
    return iter(())


class Lazy:
    def __getattr__(self, name: str) -> float:
        asked.append(name)
        return 0.0


class Tags(set[float]):
    def __iter__(self) -> Iterator[float]:
        asked.append("iter")
        return super().__iter__()


class Named(type):
    def __getattr__(cls, name: str) -> Any:
        asked.append(name)
        raise AttributeError(name)


class Bare(metaclass=Named):
    pass


class Missing(dict[str, float]):
    def __missing__(self, key: str) -> float:
        asked.append(key)
        return 0.0


def asks_as_often(body: Callable[[Tensor], Tensor], change: Callable[[], object] = lambda: None) -> bool:
    traced, x = trace(body), tensor(1.0)
    for call in range(4):
        if call == 2:
            change()
        asked.clear()
        result, got = traced(x).item(), list(asked)
        asked.clear()
        if result != body(x).item() or got != asked:
            return False
    return True


def test_an_attribute_that_is_gone_is_asked_for_once() -> None:
    lazy = Lazy()
    lazy.n, lazy.m = 1.0, 2.0  # type: ignore[method-assign]
    assert asks_as_often(lambda x: x * lazy.n + lazy.m, lambda: delattr(lazy, "n"))


def test_a_set_is_not_iterated_to_guard_it() -> None:
    tags = Tags({1.0, 2.0})
    assert asks_as_often(lambda x: x * sum(tags))


def test_a_class_is_not_asked_for_attributes_that_it_lacks() -> None:
    assert asks_as_often(lambda x: x * getattr(Bare, "nope", 2.0))


class Slotted:
    __slots__ = ("n",)

    def __getattr__(self, name: str) -> float:
        raise AttributeError(name)


def test_slots_and_inherited_attributes_of_a_class_with_getattr_are_there() -> None:
    thing, derived = Slotted(), Named("Derived", (Named("Base", (), {"k": 3.0}),), {})
    thing.n = 2.0  # type: ignore[misc]
    traced = trace(lambda x: x * thing.n + derived.k)  # type: ignore[attr-defined]
    assert [traced(tensor(1.0)).item() for _ in range(3)] == [5.0] * 3
    assert traced.stats()["body_runs"] == 1


def test_a_variable_of_a_module_that_is_gone_is_asked_for_once() -> None:
    module, name = types.ModuleType("module"), "k"
    module.k = 2.0  # type: ignore[attr-defined]
    module.__getattr__ = lambda name: asked.append(name) or 2.0  # type: ignore[method-assign, func-returns-value]
    assert asks_as_often(lambda x: x * getattr(module, name), lambda: delattr(module, "k"))


def test_a_key_that_is_gone_is_asked_for_once() -> None:
    table = Missing(a=1.0, b=2.0)
    assert asks_as_often(lambda x: x * table["a"] + table["b"], lambda: table.pop("a"))


@pytest.mark.parametrize("kind", [collections.Counter, lambda given: collections.defaultdict(int, given)])
def test_a_key_that_is_gone_is_not_made_anew(kind: Callable[[Any], Any]) -> None:
    counts = kind({"a": 2, "b": 1})
    traced = trace(lambda x: x * sum(counts[key] for key in sorted(counts)) + sum(counts.values()))
    assert [traced(tensor(1.0)).item() for _ in range(2)] == [6, 6]
    del counts["b"]
    assert traced(tensor(1.0)).item() == 4 and dict(counts) == {"a": 2}


def test_new_attributes_come_in_the_order_of_the_body() -> None:
    class Box:
        pass

    def body(box: Any, k: int) -> Any:
        box.seen = True
        box.k = k
        box.y = box.x + k
        return box.y

    traced = trace(body)
    for k in range(4):
        box: Any = Box()
        box.x = tensor(1.0)
        traced(box, k)
        assert list(vars(box)) == ["x", "seen", "k", "y"]


def test_a_slotted_object_in_a_dict_and_setdefault_of_a_key_cost_no_runs() -> None:
    class Slotted:
        __slots__ = ("n",)

        def __init__(self) -> None:
            self.n = 0

    table: dict[str, Any] = {"slotted": Slotted(), "state": {"m": tensor(0.0)}}

    def body(x: Tensor) -> Tensor:
        slotted, state = table["slotted"], table.setdefault("state", {})
        slotted.n += 1
        state["m"] = state["m"] * 0.5 + x * slotted.n
        return state["m"]

    traced, expected = trace(body), 0.0
    for n in range(1, 10):
        expected = expected * 0.5 + n
        assert traced(tensor(1.0)).item() == pytest.approx(expected)
    assert table["slotted"].n == 9 and traced.stats()["body_runs"] <= 3
