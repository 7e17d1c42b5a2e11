"""Division, remainders and casts to 16 bits as bodies: exact, against NumPy and Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from graphs import run
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb import dtypes, tensor
from mgb.ir import Graph, Spec
from mgb.ops.bodies import division
from mgb.ops.declare import OPS
from mgb.ops.primitives import cast
from mgb.passes import decompose
from mgb.tensor import Tensor
from mgb.tensor.tracing import graph_of

#: The words that every loop backend prints; the bodies are spelt in them.
WORDS = frozenset(name for name, op in OPS.items() if op.is_primitive) - {"cast"}

FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.1,
    -0.3,
    3.0,
    1e-45,
    -1e-40,
    1.5e38,
    3e38,
    np.inf,
    -np.inf,
    np.nan,
    7.0,
    1e20,
]


def by_body(function: Callable[..., Tensor], *arrays: Any) -> Any:
    """What the body gives, spelt in words alone."""
    specs = [Spec(a.shape, a.dtype) for a in arrays]
    graph: Graph = decompose(graph_of(function, *specs), WORDS)
    assert graph.nodes and all(n.op.is_primitive or n.op.name == "cast" for n in graph.nodes)
    return run(graph, arrays)[0]


def same(got: Any, want: Any) -> None:
    np.testing.assert_array_equal(got, want)
    if want.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(got)[want == want], np.signbit(want)[want == want])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("function", "numpy"),
    [(division.mod, np.remainder), (division.floor_div, np.floor_divide), (division.fmod, np.fmod)],
    ids=["mod", "floor_div", "fmod"],
)
def test_float_division_matches_numpy(function: Any, numpy: Any, dtype: Any) -> None:
    random = np.random.default_rng(0)
    bits = random.integers(0, 1 << 8 * dtype().itemsize, 4096, f"u{dtype().itemsize}").view(dtype)
    special = np.array(FLOATS, np.float64).astype(dtype)
    a, b = (
        np.concatenate([x.ravel(), y]) for x, y in zip(np.meshgrid(special, special), bits.reshape(2, -1))
    )
    with np.errstate(all="ignore"):
        want = numpy(a, b)
        same(by_body(lambda a, b: function(a, b), a, b), want)


INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(INTEGERS))
def test_integer_division_matches_python(data: st.DataObject, dtype: Any) -> None:
    """Without bound, then wrapped; by 0 all are 0."""
    info = np.iinfo(dtype)
    number = st.integers(info.min, info.max) | st.sampled_from([info.min, info.max, 0, 1, info.max - 1])
    pairs = data.draw(st.lists(st.tuples(number, number | st.integers(max(info.min, -3), 3)), min_size=1))
    a, b = (np.array(x, dtype) for x in zip(*pairs, strict=True))

    def wrapped(compute: Callable[[int, int], int]) -> Any:
        values = [compute(x, y) if y else 0 for x, y in pairs]
        return np.array([v % (1 << info.bits) for v in values], f"u{info.bits // 8}").view(dtype)

    def towards_zero(x: int, y: int) -> int:
        return abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1)

    same(by_body(lambda a, b: division.floor_div(a, b), a, b), wrapped(lambda x, y: x // y))
    same(by_body(lambda a, b: division.mod(a, b), a, b), wrapped(lambda x, y: x % y))
    same(by_body(lambda a, b: division.fmod(a, b), a, b), wrapped(lambda x, y: x - y * towards_zero(x, y)))
    same(by_body(lambda a, b: division.quotient(a, b), a, b), wrapped(towards_zero))


def test_numpy_functions_preserve_the_dtype() -> None:
    x = tensor(np.float32([5.5, -5.5]))
    for function in (np.fmod, np.remainder, np.floor_divide):
        found = function(x, np.float32(2.0))
        assert found.dtype == np.float32
        same(found.numpy(), function(x.numpy(), np.float32(2.0)))
    assert np.fmod(tensor(np.int32([7, -7])), 2).dtype == np.int32


# casts that float32 would round, too


def numbers(narrow: Any) -> Any:
    """All finite numbers of a 16-bit dtype, in order."""
    with np.errstate(invalid="ignore"):
        every = np.arange(1 << 16, dtype=np.uint16).view(narrow).astype(np.float64)
    return np.unique(every[np.isfinite(every)])


def halfway(wide: Any, narrow: Any) -> Any:
    """Numbers of `wide` at, just below and just above the middle of two neighbours in `narrow`."""
    every = numbers(narrow)
    middle = (every[1:] + every[:-1]) / 2
    found = np.concatenate([np.nextafter(middle, -np.inf), middle, np.nextafter(middle, np.inf)])
    if np.dtype(wide).kind == "f":
        return found.astype(wide)
    limits = np.iinfo(wide)
    whole = middle[(np.abs(middle) < limits.max / 4) & (middle >= limits.min) & (middle == np.floor(middle))]
    return np.concatenate(
        [whole.astype(wide) + wide(1), whole.astype(wide)[1:] - wide(1), whole.astype(wide)]
    )


def exactly(x: Any, narrow: Any) -> Any:
    """`x` in `narrow`, found among all its numbers by distances that are exact."""
    every = numbers(narrow)
    place = np.clip(np.searchsorted(every, x.astype(np.longdouble)), 1, every.size - 1)
    low, high = (every[place + k].astype(np.longdouble) for k in (-1, 0))
    value = x.astype(np.longdouble)
    below, above = value - low, high - value
    even = (high.astype(narrow).view(np.uint16) & 1) == 0
    return np.copysign(np.where((above < below) | ((above == below) & even), high, low), x).astype(narrow)


@pytest.mark.parametrize("narrow", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("wide", [np.float64, np.int32, np.uint32, np.int64, np.uint64])
def test_cast_to_16_bits_rounds_once(wide: Any, narrow: Any) -> None:
    x = halfway(wide, narrow)
    found = by_body(lambda x: cast(x, dtype=np.dtype(narrow)), x)
    want = exactly(x, narrow)
    assert x.size > 50
    same(found.astype(np.float64), want.astype(np.float64))
    graph = graph_of(lambda x: cast(x, dtype=np.dtype(narrow)), Spec((3,), np.dtype(wide)))
    last = decompose(graph, WORDS).outputs[0]
    assert last.inputs[0].spec.dtype == dtypes.float32  # what backends are left with
