"""Loops that LLVM is told to take by masked vectors: right at every length, and really so."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest
from cpu_numba_helpers import BACKEND, SENTINEL, call, run, traced
from mgb.ops.bodies.transcendental import exp
from mgb.ops.reduce import reduce_max, reduce_sum
from mgb_cpu_numba import CpuNumba
from mgb_cpu_numba.hints import VECTORS
from mgb_cpu_numba.pipeline import Library, codegen

LENGTHS = (2, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 129, 200)

#: Of the exponential of numbers up to 3, by dtype, relative.
BOUNDS = {"float16": 1e-3, "float32": 3e-7, "float64": 5e-16}

needs_masks = pytest.mark.skipif(
    "+avx512bw" not in codegen()._tm_features, reason="this processor has no masks for every size of element"
)


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


def modules(monkeypatch: pytest.MonkeyPatch, times: int = 1) -> str:
    """Return the LLVM modules of ``exp(-x)`` that is applied `times` times."""
    seen: list[str] = []
    finalize = Library._finalize_final_module

    def keep(self: Library) -> None:
        seen.append(str(self._final_module))
        finalize(self)

    monkeypatch.setattr(Library, "_finalize_final_module", keep)
    x = np.abs(numbers("float32", 100))
    true = x.astype(float)
    for _ in range(times):
        true = np.exp(-true)
    graph = traced(lambda x: reduce(lambda y, _: exp(-y), range(times), x), [x])
    (y,) = call(CpuNumba().compile(graph), graph, [x])  # by LLVM, whoever has compiled it before
    np.testing.assert_allclose(y, true, BOUNDS["float32"])
    return "".join(seen)


@needs_masks
def test_remainder_of_an_expensive_loop_uses_masked_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    text = modules(monkeypatch)
    assert "llvm.masked.store.v16f32" in text
    assert text.count("@llvm.fmuladd.v16f32") > 4 * 4  # several vectors in a turn


def test_masked_vectors_are_not_used_without_hardware_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codegen(), "_tm_features", "+avx2")
    assert "llvm.masked" not in modules(monkeypatch)


@needs_masks
@pytest.mark.parametrize("times", [1, 12])
def test_full_vectors_of_an_expensive_loop_load_without_masks(
    monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """However much it computes. Processors have been seen to fetch nothing ahead of loads with masks."""
    assert modules(monkeypatch, times).count("= load <16 x float>") == VECTORS
