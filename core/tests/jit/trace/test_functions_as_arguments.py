"""Functions as arguments: another one at each call is served, and what it reads decides."""

import functools
import operator
from collections.abc import Callable
from types import FunctionType
from typing import Any

import mgb
import pytest
from mgb import jit
from new_arguments import ONE, Batch, agree, batch, three


def scaling(n: int) -> Callable[[Any], Any]:
    k, by = three(n), float(n)
    return lambda v: v * k + by


def defaulted(n: int) -> Callable[[Any], Any]:
    number, x = float(n), three(n)

    def scale(v: Any, by: Any = number, *, more: Any = x) -> Any:
        return v * by + more

    return scale


def nested(n: int) -> Callable[[Any], Any]:
    inner = scaling(n)
    return lambda v: inner(v) * 2.0


def noted(n: int) -> Callable[[Any], Any]:
    def scale(v: Any) -> Any:
        return v

    scale.by = float(n)  # type: ignore[attr-defined]
    scale.__name__ = "scale" * n
    return scale


def kept_function(n: int) -> Callable[[Any], Any]:
    return KEPT_FUNCTION if n == 1 else scaling(7)


def counter(n: int) -> Callable[[Any], Any]:
    count = float(n)

    def count_up(v: Any) -> Any:
        nonlocal count
        count += 1.0
        return v * count

    return count_up


def shared(n: int) -> Any:
    by = float(n)
    one = lambda v: v * by  # noqa: E731
    two = lambda v: v + by  # noqa: E731
    return one, two


def late(n: int) -> Callable[[Any], Any]:
    def scale(v: Any) -> Any:
        try:
            return v * by
        except NameError:
            return v * 100.0

    if n % 2:
        by = float(n)
    return scale


K = 1.0


def of_globals(n: int) -> Callable[[Any], Any]:
    return FunctionType((lambda v: v * K).__code__, {"K": float(n)})


def given_defaults(n: int) -> Callable[..., Any]:
    def scale(v: Any, by: Any = 2.0, *, more: Any = 3.0) -> Any:
        return v * by * more

    if n % 2:
        scale.__defaults__ = None
    if n % 3:
        scale.__kwdefaults__ = None  # type: ignore[assignment]
    return scale


def called(g: Any, x: Any) -> Any:
    try:
        return g(x)
    except TypeError:
        return x * 100.0


KEPT_FUNCTION = scaling(7)
FUNCTIONS: dict[str, tuple[Callable[[int], Any], Callable[[Any], Any]]] = {
    "a closure": (scaling, lambda g: g(ONE)),
    "a lambda": (lambda n: lambda v: v * 2.0, lambda g: g(ONE)),
    "two lambdas": (lambda n: (lambda v: v * 2.0) if n % 2 else (lambda v: v * 3.0), lambda g: g(ONE)),
    "defaults": (defaulted, lambda g: g(ONE)),
    "closures in a closure": (nested, lambda g: g(ONE)),
    "in a list": (lambda n: [scaling(n), scaling(n + 1)], lambda g: g[0](ONE) * g[1](ONE)),
    "in an object": (lambda n: Batch(three(n), scaling(n)), lambda b: b.y(b.x)),
    "a partial": (lambda n: functools.partial(operator.mul, float(n)), lambda g: g(ONE)),
    "a partial of a closure": (lambda n: functools.partial(scaling(n)), lambda g: g(ONE)),
    "a bound method": (lambda n: batch()(n).scaled, lambda g: g()),
    "an attribute": (noted, lambda g: g(ONE) * g.by),
    "a name": (noted, lambda g: g(ONE) * len(g.__name__)),
    "getattr": (noted, lambda g: g(ONE) * getattr(g, "by", 9.0)),
    "identity": (kept_function, lambda g: g(ONE) * (g is KEPT_FUNCTION)),
    "equality": (kept_function, lambda g: g(ONE) * (g == KEPT_FUNCTION)),
    "a hash": (kept_function, lambda g: g(ONE) * {KEPT_FUNCTION: 2.0}.get(g, 3.0)),
    "in": (kept_function, lambda g: g(ONE) * (g in (KEPT_FUNCTION,))),
    "an index": (kept_function, lambda g: g(ONE) * [5.0, g].count(KEPT_FUNCTION)),
    "a set": (kept_function, lambda g: g(ONE) * len({g, KEPT_FUNCTION})),
    "map": (scaling, lambda g: sum(map(g, [ONE, ONE * 2]), ONE)),
    "sorted": (lambda n: lambda v: -v if n % 2 else v, lambda g: ONE * sorted([3.0, 1.0, 2.0], key=g)[0]),
    "reduce": (lambda n: lambda a, b: a * n + b, lambda g: functools.reduce(g, [ONE, ONE * 3, ONE])),
    "the cells": (scaling, lambda g: ONE * g.__closure__[0].cell_contents),
    "the code": (scaling, lambda g: ONE * len(g.__code__.co_freevars)),
    "counting": (counter, lambda g: g(ONE) + g(ONE)),
    "one variable of two": (shared, lambda g: g[0](ONE) * g[1](ONE)),
    "a variable without a value": (late, lambda g: g(ONE)),
    "made again in the body": (scaling, lambda g: (lambda v: g(v) * 2.0)(ONE)),
    "grad": (lambda n: lambda v: (v * v * float(n)).sum(), lambda g: mgb.grad(g)(ONE)),
    "a wrapper": (lambda n: functools.wraps(KEPT_FUNCTION)(scaling(n)), lambda g: g(ONE)),
    "a decorated function": (lambda n: _twice_called(scaling(n)), lambda g: g(ONE)),
    "other globals": (of_globals, lambda g: g(ONE)),
    "defaults that come": (given_defaults, lambda g: called(g, ONE)),
    "a generator": (lambda n: lambda v: (v * k for k in (float(n), 2.0)), lambda g: sum(g(ONE), ONE)),
}


def _twice_called(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(function)
    def call(v: Any) -> Any:
        return function(function(v))

    return call


@pytest.mark.parametrize("symbolic", [False, True], ids=["default", "symbolic"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_a_function_reads_decides(name: str, symbolic: bool) -> None:
    make, body = FUNCTIONS[name]
    agree(body, make, symbolic)


@pytest.mark.parametrize("name", ["a closure", "a lambda", "closures in a closure", "in a list",
                                  "in an object", "a decorated function"])  # fmt: skip
def test_new_functions_are_served(name: str) -> None:
    make, body = FUNCTIONS[name]
    traced = jit.trace(body)
    for n in range(1, 12):
        traced(make(n))
    assert traced.stats()["body_runs"] <= 2, traced.stats()["reasons"]
