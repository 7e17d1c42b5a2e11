"""What code can name, which items it reads, and whether a class has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb
import mgb.functional as F
import pytest
from mgb import tensor
from mgb.jit.watch.epochs import Unchanged, _offset
from mgb.jit.watch.items import items_read
from mgb.jit.watch.names import names_of

total = 0


def counts(x: Any) -> Any:
    global total
    total += 1
    return x


def test_chains_begin_with_a_variable_and_go_on_with_attributes() -> None:
    names = names_of((lambda x: F.nn.relu(x) + mgb.tensor(total)).__code__)
    assert names.chains == {("F", "nn", "relu"), ("mgb", "tensor"), ("total",)}
    assert names.attributes == {"nn", "relu", "tensor"}


def test_names_of_inner_functions_are_those_of_the_outer_one() -> None:
    def outer() -> Any:
        return [lambda v: v.inner for _ in range(2)]

    assert "inner" in names_of(outer.__code__).attributes


def test_texts_may_be_names_of_attributes() -> None:
    names = names_of((lambda v: getattr(v, "first.second", None)).__code__)
    assert {"first", "second"} <= names.attributes and not names.is_wild


@pytest.mark.parametrize("function, is_wild", [
    (lambda v, n: getattr(v, "a"), False),  # noqa: B009
    (lambda v, n: getattr(getattr(v, "a"), "b"), False),  # noqa: B009
    (lambda v, n: getattr(v.x, "a", n + 1), False),
    (lambda v, n: setattr(v, "a", n * 2), False),
    (lambda v, n: getattr(v, n), True),
    (lambda v, n: getattr(v, "a" + n), True),
    (lambda v, n: getattr(v, "a" if n else "b"), True),
    (lambda v, n: map(getattr, v, n), True),
    (lambda v, n: v.__dict__[n], True),
    (lambda v, n: v.other, False),
])  # fmt: skip
def test_computed_names_may_be_any(function: Callable[..., Any], is_wild: bool) -> None:
    assert names_of(function.__code__).is_wild is is_wild


def test_written_names_have_lines() -> None:
    names = names_of(counts.__code__)
    assert names.stored == {"total": counts.__code__.co_firstlineno + 2} and "total" in names.loaded


def test_only_appended_lists_are_not_used() -> None:
    kept: list[Any] = []
    assert "kept" not in names_of((lambda x: kept.append(x)).__code__).used
    assert "kept" in names_of((lambda x: kept.append(len(kept))).__code__).used


def test_errors_that_are_handled_are_noticed() -> None:
    def handles(g: Any) -> Any:
        try:
            return g()
        except TypeError:
            return None

    assert names_of(handles.__code__).handles_errors
    assert not names_of(counts.__code__).handles_errors


@pytest.mark.parametrize("function, items", [
    (lambda b: tensor(b["x"]) * 2, {"b": {"x"}}),
    (lambda b: tensor(b["x"]) * b["y"], {"b": {"x", "y"}}),
    (lambda b: tensor(b["x"]) * b["x"], {"b": {"x"}}),
    (lambda b: tensor(b["x"] * 2), {"b": {"x"}}),
    (lambda b, k: tensor(b[k]), {}),
    (lambda b: tensor(b["x"]) * len(b), {}),
    (lambda b: (lambda: b["x"]), {}),
    (lambda b: locals()["b"]["x"] * b["x"], {}),
])  # fmt: skip
def test_items_that_are_read_by_constant_keys(function: Any, items: dict[str, Any]) -> None:
    found = items_read(function)
    assert {name: keys for name, keys in found.items() if keys} == items


def _methods(kind: type) -> tuple[Any, ...]:
    return tuple(value for base in kind.__mro__[:-1] for value in vars(base).values() if callable(value))


def test_a_class_is_unchanged_until_it_or_a_base_is_written() -> None:
    class Base:
        pass

    class Kind(Base):
        def method(self) -> int:
            return 1

    unchanged = Unchanged(Kind, _methods)
    assert unchanged(Kind) and unchanged(Kind)
    Kind.number = 2  # type: ignore[attr-defined]
    assert unchanged(Kind)
    Kind().method()
    assert unchanged(Kind)
    Base.added = lambda self: 0  # type: ignore[attr-defined]
    assert not unchanged(Kind)


def test_a_class_that_is_gone_is_not_looked_at() -> None:
    unchanged = Unchanged(type("Gone", (), {}), _methods)
    assert not unchanged(None)


def test_the_number_of_a_class_is_found() -> None:
    assert _offset() is not None
