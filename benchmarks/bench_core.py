"""The first numbers: fused chains beside NumPy and eager, and what a call costs.

Run with ``pytest benchmarks/bench_core.py --benchmark-group-by=group --benchmark-columns=min,median``.
Each group holds the ways to do one thing, measured in one run; compare only inside a group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb
import numpy as np
import pytest
from mgb.jit import trace

SIZE = 16 << 20


def arrays(count: int, size: int) -> list[np.ndarray[Any, Any]]:
    generator = np.random.default_rng(0)
    return [generator.random(size, np.float32) + 0.5 for _ in range(count)]


def product(a: Any, b: Any, c: Any) -> Any:
    return a * b * c


def multiply_add(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def chain(a: Any, b: Any, c: Any) -> Any:
    """Ten operations."""
    x = (a + b) * c - a
    x = x * b + c
    x = (x - b) * 0.5 + a
    return x * x


FUNCTIONS = [product, multiply_add, chain]
WAYS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "numpy": lambda f: f,
    "eager": lambda f: f,
    "traced": lambda f: trace(f, without_host=True),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_elementwise_16_mi(benchmark: Any, function: Callable[..., Any], way: str) -> None:
    benchmark.group = function.__name__
    data = arrays(3, SIZE)
    operands = data if way == "numpy" else [mgb.tensor(a) for a in data]
    call = WAYS[way](function)
    np.testing.assert_allclose(np.asarray(call(*operands)), function(*data), rtol=1e-5)
    benchmark.pedantic(call, operands, rounds=15, iterations=1, warmup_rounds=3)


@pytest.mark.parametrize("count", [1, 10, 100])
@pytest.mark.parametrize("host", [True, False], ids=["replay", "without_host"])
def test_call(benchmark: Any, count: int, host: bool) -> None:
    """Four small arguments, `count` operations that make one kernel."""
    benchmark.group = "call overhead"

    def function(a: Any, b: Any, c: Any, d: Any) -> Any:
        x = a
        for i in range(count):
            x = x + (b, c, d)[i % 3]
        return x

    call = trace(function, without_host=not host)
    operands = [mgb.tensor(a) for a in arrays(4, 16)]
    for _ in range(3):
        call(*operands)
    benchmark(call, *operands)


def test_eager_op(benchmark: Any) -> None:
    benchmark.group = "call overhead"
    a, b = (mgb.tensor(x) for x in arrays(2, 16))
    benchmark(lambda: a + b)
