"""Loops by vectors and a masked rest: right at every length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cpu_numba_helpers import BACKEND, SENTINEL, run, traced
from mgb.ops.bodies.transcendental import exp
from mgb.ops.reduce import reduce_max, reduce_sum
from mgb.ops.scans import cumsum_
from mgb_cpu_numba import backend
from mgb_native.target import VECTORS

LENGTHS = (2, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 129, 200)

#: Of the exponential of numbers up to 3, by dtype, relative.
BOUNDS = {"float16": 1e-3, "float32": 3e-7, "float64": 5e-16}


def softmax(x: Any) -> Any:
    e = exp(x - reduce_max(x, axis=(1,)))
    return e / reduce_sum(e, axis=(1,))


def true_softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def numbers(dtype: str, *shape: int) -> Any:
    return np.random.default_rng(sum(shape)).uniform(-3, 3, shape).astype(dtype)


@pytest.mark.parametrize("dtype", BOUNDS)
def test_expensive_loops_of_every_length(dtype: str) -> None:
    kernel = BACKEND.compile(traced(exp, [numbers(dtype, LENGTHS[0])]))
    for length in LENGTHS:
        x = numbers(dtype, length + 1)
        room = np.full(length + 3, SENTINEL, dtype)
        kernel.run(x[:length], out=(room[1 : length + 1],))
        np.testing.assert_allclose(room[1 : length + 1], np.exp(x[:length].astype(float)), BOUNDS[dtype])
        assert room[0] == SENTINEL and (room[length + 1 :] == SENTINEL).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_softmax_rows_of_every_length_are_reduced_completely(dtype: str) -> None:
    kernel = BACKEND.compile(traced(softmax, [numbers(dtype, 5, LENGTHS[0])]))
    for length in LENGTHS:
        x = numbers(dtype, 5, length)
        y = np.full_like(x, SENTINEL)
        kernel.run(x, out=(y,))
        np.testing.assert_allclose(y, true_softmax(x.astype(float)), 8 * BOUNDS[dtype])


@pytest.mark.parametrize("place", [0, 63, 64, 99])
def test_nan_anywhere_in_a_softmax_row_fills_the_row(place: int) -> None:
    x = numbers("float32", 3, 100)
    x[1, place] = np.nan
    (y,) = run(softmax, x)
    assert np.isnan(y[1]).all() and np.isfinite(y[[0, 2]]).all()


def test_short_rows_of_many_lines_are_reduced_completely() -> None:
    """Each line has a sum of its own; the lines of a row make the total."""
    for shape in ((7, 3, 49), (64, 2, 5), (3, 4, 130), (200, 2, 1)):
        x = numbers("float32", *shape)
        x[0, 0] = 1e4
        sums, greatest = run(lambda x: (reduce_sum(x, axis=(0, 2)), reduce_max(x, axis=(0, 2))), x)
        np.testing.assert_allclose(sums, x.astype(float).sum(axis=(0, 2), keepdims=True), 1e-5, 1e-4)
        assert (greatest == x.max(axis=(0, 2), keepdims=True)).all()


@pytest.mark.parametrize("width", [*VECTORS.values(), 16, 0])
def test_vectors_of_every_processor(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 is none at all: element by element."""
    monkeypatch.setattr(backend, "vector_bytes", lambda: width)
    x = numbers("float32", 7, 83)
    (y,) = run(softmax, x)
    np.testing.assert_allclose(y, true_softmax(x.astype(float)), 8 * BOUNDS["float32"])
    n = np.arange(7 * 83, dtype="int16").reshape(7, 83)
    (sums,) = run(lambda n: cumsum_(n * n, axis=1), n)
    np.testing.assert_array_equal(sums, np.cumsum(n * n, axis=1, dtype="int16"))
    (highs,) = run(lambda n: reduce_max(n * n, axis=(0,)), n)
    np.testing.assert_array_equal(highs, (n * n).max(axis=0, keepdims=True))
