"""Objects that hold something where no name leads are the same objects, or make the body run."""

from __future__ import annotations

import datetime
import decimal
import fractions
import inspect
import operator
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mgb import tensor
from mgb.jit import trace

OUTSIDE = SimpleNamespace(value=None)


def derived(kind: type) -> type:
    """A class of a user's."""
    return type(f"Derived{kind.__name__}", (kind,), {})


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...], Callable[[Any], Any]]] = {
    "decimal": (decimal.Decimal, ("1",), ("2",), float),
    "derived decimal": (derived(decimal.Decimal), ("1",), ("2",), float),
    "derived date": (derived(datetime.date), (2020, 1, 1), (2020, 1, 2), lambda d: d.day),
    "derived datetime": (derived(datetime.datetime), (2020, 1, 1), (2020, 1, 2), lambda d: d.day),
    "derived time": (derived(datetime.time), (1,), (2,), lambda d: d.hour),
    "derived timedelta": (derived(datetime.timedelta), (1,), (2,), lambda d: d.days),
    "derived error": (derived(ValueError), (1,), (2,), lambda d: d.args[0]),
    "error": (ValueError, (1,), (2,), lambda d: d.args[0]),
    "derived float32": (derived(np.float32), (1,), (2,), lambda d: d + 1),
    "derived complex": (derived(complex), (1,), (2,), lambda d: d.real),
    "derived fraction": (derived(fractions.Fraction), (1, 2), (3, 2), float),
}


@pytest.mark.parametrize("name", CASES)
def test_another_object_is_seen(name: str) -> None:
    kind, first, second, read = CASES[name]
    OUTSIDE.value = kind(*first)
    traced = trace(lambda x: x * float(read(OUTSIDE.value)))
    results = [traced(tensor(1.0)).item() for _ in range(4)]
    assert results == [float(read(OUTSIDE.value))] * 4
    OUTSIDE.value = kind(*second)
    assert traced(tensor(1.0)).item() == float(read(OUTSIDE.value)) != results[0]


def test_arguments_of_an_error_are_seen() -> None:
    OUTSIDE.value = derived(ValueError)(1.0)
    traced = trace(lambda x: x * OUTSIDE.value.args[0])
    assert [traced(tensor(1.0)).item() for _ in range(4)] == [1.0] * 4
    OUTSIDE.value.args = (2.0,)
    assert traced(tensor(1.0)).item() == 2.0


@pytest.fixture
def context() -> Iterator[decimal.Context]:
    with decimal.localcontext() as context:
        yield context


def test_context_of_decimals_is_seen(context: decimal.Context) -> None:
    three = decimal.Decimal(3)
    traced = trace(lambda x: x * float(decimal.Decimal(1) / three))
    results = [traced(tensor(1.0)).item() for _ in range(4)]
    context.prec = 2
    assert traced(tensor(1.0)).item() == pytest.approx(0.33) != results[0]


class Base:
    """Its objects have a factor."""

    factor = 1.0

    def times(self, values: list[int] = [], by: float = 1.0) -> float:  # noqa: B006
        return len(values) * by * self.factor


class Derived(Base):
    """It calls others."""

    values: list[int] = [1]  # noqa: RUF012
    __len__ = staticmethod(values.__len__)

    def times(self, values: list[int] = [], by: float = 1.0) -> float:  # noqa: B006
        raise NotImplementedError

    def above(self) -> Any:
        return super()


@pytest.mark.parametrize("way", ["special", "wrapper", "method", "caller", "caller by name", "super"])
def test_what_functions_in_c_hold_is_seen(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Derived, "values", Derived.values)
    thing, values = Derived(), Derived.values
    plain, above = Base(), thing.above()
    ways: dict[str, Callable[[], float]] = {
        "special": lambda: len(thing),
        "wrapper": values.__len__,
        "method": lambda count=values.count: count(1),
        "caller": lambda call=operator.methodcaller("times", values): call(plain),
        "caller by name": lambda call=operator.methodcaller("times", values, by=2.0): call(plain),
        "super": lambda: above.times(values),
    }
    read = ways[way]
    traced = trace(lambda x: x * float(read()))
    before = float(read())
    assert [traced(tensor(1.0)).item() for _ in range(4)] == [before] * 4
    values.append(1)
    try:
        assert traced(tensor(1.0)).item() == float(read()) != before
    finally:
        values.pop()


@pytest.mark.parametrize("change", ["default", "annotation", "signature", "wrapped"])
def test_signatures_are_seen(change: str) -> None:
    def asked(a: int, b: int = 2) -> int:
        return a * b

    def other(a: int, b: float = 5) -> float:
        return a * b

    def body(x: Any) -> Any:
        parameter = inspect.signature(asked).parameters["b"]
        return x * parameter.default * (2 if parameter.annotation in (int, "int") else 3)

    traced = trace(body)
    assert [traced(tensor(1.0)).item() for _ in range(4)] == [4.0] * 4
    if change == "default":
        asked.__defaults__ = (3,)
    elif change == "annotation":
        asked.__annotations__["b"] = float
    elif change == "signature":
        asked.__signature__ = inspect.signature(other)  # type: ignore[attr-defined]
    else:
        asked.__wrapped__ = other  # type: ignore[attr-defined]
    assert traced(tensor(1.0)).item() == body(tensor(1.0)).item() != 4.0


def test_random_numbers_of_a_generator_that_goes_on() -> None:
    kept: list[np.random.Generator] = []

    def body(x: Any) -> Any:
        if not kept:
            kept.append(np.random.default_rng(3))
        return x * kept[0].normal()

    traced = trace(body)
    assert len({traced(tensor(1.0)).item() for _ in range(6)}) == 6


def test_no_method_of_a_user_is_called_to_watch() -> None:
    class Counts:
        calls = 0

        def __getattribute__(self, name: str) -> Any:
            Counts.calls += 1
            return object.__getattribute__(self, name)

    class Lies:
        @property  # type: ignore[misc]
        def __class__(self) -> type:
            Counts.calls += 1
            return float

        def __hash__(self) -> int:
            Counts.calls += 1
            return 1

        def __eq__(self, other: object) -> bool:
            Counts.calls += 1
            return self is other

    box, table = [Counts(), Lies()], {Lies(): 2.0}
    Counts.calls = 0
    traced = trace(lambda x: x * len(box) + len(table))
    assert [traced(tensor(1.0)).item() for _ in range(3)] == [3.0] * 3
    assert Counts.calls == 0


def test_warning_shown_once_for_its_line_is_not_shown_again() -> None:
    def told() -> None:
        warnings.warn("once for this line", UserWarning, stacklevel=1)

    traced = trace(lambda x, gain: x * gain)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for gain in (1.0, 2.0, 3.0):  # the second one is followed, which compiles the source anew
            told()
            assert traced(tensor(1.0), gain).item() == gain
    assert len(shown) == 1
