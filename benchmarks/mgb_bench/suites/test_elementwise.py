"""Element-wise formulas: one pass over memory is all that they need."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mgb_bench.arrays import Arrays
from mgb_bench.case import KI, MI, TOLERANCES, Case, Size, Tolerance, Traffic
from mgb_bench.formula import truth, ways

#: For the cheapest formulas the size is swept; the others have two that leave the inner caches.
SWEEP = (KI, 64 * KI, MI, 16 * MI)
LARGE = (MI, 16 * MI)

#: The length of the last axis where a formula broadcasts.
COLUMNS = 1024


def product(w: Any, a: Any, b: Any, c: Any) -> Any:
    return a * b * c


def multiply_add(w: Any, a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def bias_relu(w: Any, a: Any, b: Any, bias: Any) -> Any:
    return w.relu(a * b + bias)


def gelu_tanh(w: Any, x: Any) -> Any:
    return 0.5 * x * (1.0 + w.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * (x * x * x))))


def gelu_erf(w: Any, x: Any) -> Any:
    return 0.5 * x * (1.0 + w.erf(x * math.sqrt(0.5)))


def swiglu(w: Any, gate: Any, up: Any) -> Any:
    return gate / (1.0 + w.exp(-gate)) * up


def chain_10(w: Any, a: Any, b: Any, c: Any) -> Any:
    x = (a + b) * c - a
    x = x * b + c
    x = (x - b) * 0.5 + a
    return x * x - c


def chain_32(w: Any, a: Any, b: Any, c: Any) -> Any:
    x = a
    for _ in range(8):
        x = (x * b + c) * 0.5 - a
    return x


def black_scholes(w: Any, spot: Any, strike: Any, time: Any) -> Any:
    """Return the price of a European call and put."""
    rate, volatility = 0.02, 0.3
    spread = volatility * w.sqrt(time)
    d1 = (w.log(spot / strike) + (rate + 0.5 * volatility * volatility) * time) / spread
    d2 = d1 - spread
    discounted = strike * w.exp(-rate * time)
    below1 = 0.5 + 0.5 * w.erf(d1 * math.sqrt(0.5))
    below2 = 0.5 + 0.5 * w.erf(d2 * math.sqrt(0.5))
    call = spot * below1 - discounted * below2
    return call, call - spot + discounted


def halves(dtype: str) -> Callable[..., Any]:
    """Compute in float32 on inputs of 16 bits, and back."""

    def formula(w: Any, a: Any, b: Any) -> Any:
        x = w.cast(a, "float32") * w.cast(b, "float32")
        return w.cast(x * 0.5 + 0.25, dtype)

    return formula


def between_halves(w: Any, a: Any) -> Any:
    """Cast float16 to float32 to bfloat16 to float32."""
    return w.cast(w.cast(w.cast(a, "float32") * 0.5 + 0.25, "bfloat16"), "float32") * 2.0


def uniform(count: int, low: float = 0.5, high: float = 1.5) -> Callable[[Size, Any], Arrays]:
    """Make `count` float32 arrays of `size` elements."""

    def make(size: Size, generator: np.random.Generator) -> Arrays:
        return tuple(_random(generator, size, low, high) for _ in range(count))

    return make


def _random(generator: np.random.Generator, size: Size, low: float = 0.5, high: float = 1.5) -> Any:
    return generator.random(size, np.float32) * np.float32(high - low) + np.float32(low)


def _with_bias(size: int, generator: np.random.Generator) -> Arrays:
    shape = (size // COLUMNS, COLUMNS)
    a, b, bias = (_random(generator, s, -1.0, 1.0) for s in (shape, shape, (COLUMNS,)))
    return a, b, bias


def _options(size: int, generator: np.random.Generator) -> Arrays:
    spot, strike, time = ((10, 50), (10, 50), (0.2, 2.0))
    return tuple(_random(generator, size, *bounds) for bounds in (spot, strike, time))


def _half_inputs(count: int, dtype: str) -> Callable[[Size, Any], Arrays]:
    import ml_dtypes

    to = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    return lambda size, generator: tuple(a.astype(to) for a in uniform(count)(size, generator))


def streams(reads: int, writes: int, read_bytes: int = 4, write_bytes: int = 4) -> Callable[[int], Traffic]:
    """Return the traffic of a formula that reads and writes so many arrays."""
    return lambda size: Traffic(size * reads * read_bytes, size * writes * write_bytes, (reads, writes))


def _case(
    name: str, formula: Any, make: Any, traffic: Any, sizes: Any = LARGE, without: Any = (), **more: Any
) -> Case:
    said = ways(formula, without)
    return Case(name, "elementwise", sizes, make, truth(formula), said, traffic, quick=(16 * MI,), **more)


_NO_ERF = ("numexpr",)
_NO_BROADCAST = ("halide",)
_NO_HALVES = ("numexpr", "numba", "halide")
_PRICES = {**TOLERANCES, "float32": Tolerance(1e-4, 2e-4)}
_ROUNDED = {**TOLERANCES, "float32": Tolerance(1e-2, 1e-2)}

CASES = [
    _case("a*b*c", product, uniform(3), streams(3, 1), SWEEP),
    _case("a*b+c", multiply_add, uniform(3), streams(3, 1), SWEEP),
    _case("relu(a*b+bias)", bias_relu, _with_bias, streams(2, 1), without=_NO_BROADCAST),
    _case("GELU tanh", gelu_tanh, uniform(1, -4, 4), streams(1, 1), SWEEP),
    _case("GELU erf", gelu_erf, uniform(1, -4, 4), streams(1, 1), without=_NO_ERF),
    _case("SwiGLU", swiglu, uniform(2, -4, 4), streams(2, 1)),
    _case("10-op chain", chain_10, uniform(3), streams(3, 1), SWEEP),
    _case("32-op chain", chain_32, uniform(3), streams(3, 1)),
    _case(
        "Black-Scholes",
        black_scholes,
        _options,
        streams(3, 2),
        without=("numexpr", "halide"),
        tolerances=_PRICES,
    ),
    _case(
        "f16 to f32 to f16",
        halves("float16"),
        _half_inputs(2, "float16"),
        streams(2, 1, 2, 2),
        without=_NO_HALVES,
    ),
    _case(
        "bf16 to f32 to bf16",
        halves("bfloat16"),
        _half_inputs(2, "bfloat16"),
        streams(2, 1, 2, 2),
        without=_NO_HALVES,
    ),
    _case(
        "f16 to bf16 to f32",
        between_halves,
        _half_inputs(1, "float16"),
        streams(1, 1, 2, 4),
        without=_NO_HALVES,
        tolerances=_ROUNDED,
    ),
]


def test_elementwise(race: Any, case: Case, size: Size) -> None:
    race(case, size)
