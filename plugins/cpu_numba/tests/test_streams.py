"""Outputs that go past the caches, sums in any order, and the width of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cpu_numba_helpers import BACKEND, SENTINEL, call, outputs_of, run, traced
from mgb.ops import primitives as ops
from mgb.ops.bodies.transcendental import exp
from mgb.ops.reduce import reduce_max, reduce_min, reduce_prod, reduce_sum
from mgb_cpu_numba import CpuNumba, pipeline
from mgb_native import plan
from mgb_native.frame import Frame

RNG = np.random.default_rng(11)


@pytest.fixture
def streaming(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call is large enough for non-temporal stores."""
    monkeypatch.setattr(plan, "STREAM", 0)


def placed(shape: tuple[int, ...], dtype: Any, offset: int) -> tuple[Any, Any]:
    """An array that begins `offset` elements after a cache line, and the memory around it."""
    size = int(np.prod(shape))
    memory = np.full(size + offset + 256, SENTINEL, dtype)
    skip = -memory.ctypes.data % 64 // memory.itemsize + offset
    return memory[skip : skip + size].reshape(shape), memory


def around(out: Any, memory: Any) -> Any:
    """The elements of `memory` before and after `out`."""
    first = (out.ctypes.data - memory.ctypes.data) // memory.itemsize
    return np.concatenate([memory[:first], memory[first + out.size :]])


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64", "uint64"])
def test_outputs_of_every_alignment_and_length(dtype: str) -> None:
    x = RNG.integers(0, 50, 3000).astype(dtype)
    graph = traced(lambda x: (x + x) * x, [x])
    kernel = BACKEND.compile(graph)
    for offset in range(0, 64 // x.itemsize, 3):
        for length in (2, 3, 5, 31, 63, 64, 65, 129, 511, 512, 513, 1100, 3000):
            out, memory = placed((length,), dtype, offset)
            kernel.run(x[:length], out=(out,))
            np.testing.assert_array_equal(out, (x[:length] + x[:length]) * x[:length])
            assert (around(out, memory) == SENTINEL).all()


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("axis", [(0,), (1,)], ids=str)
@pytest.mark.parametrize("shape", [(300, 70), (33, 1025), (2, 40_000), (40_000, 3)], ids=str)
def test_row_and_column_reductions_write_only_their_outputs(
    axis: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    x = RNG.standard_normal(shape).astype(np.float32)
    graph = traced(lambda x: (x - reduce_max(x, axis=axis), reduce_sum(x, axis=axis), ops.lt(x, 0.0)), [x])
    (moved, small), (total, _), (below, flags) = (
        placed(o.spec.shape, o.spec.dtype, 5) for o in graph.outputs
    )
    BACKEND.compile(graph).run(x, out=(moved, total, below))
    np.testing.assert_array_equal(moved, x - x.max(axis, keepdims=True))
    np.testing.assert_allclose(total, x.sum(axis, dtype="f8", keepdims=True), rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(below, x < 0)
    assert (around(moved, small) == SENTINEL).all()
    assert around(below, flags).all()


@pytest.mark.usefixtures("streaming")
def test_outputs_may_overwrite_inputs_in_place() -> None:
    x, y = (RNG.standard_normal(5000).astype(np.float32) for _ in range(2))
    graph = traced(lambda x, y: (x * 0.5 + y, y - x), [x, y])
    kernel = BACKEND.compile(graph)
    want = call(kernel, graph, [x, y])
    np.testing.assert_array_equal(want[1], y - x)
    x2, y2 = x.copy(), y.copy()
    kernel.run(x2, y2, out=(x2, y2))
    for got, true in zip((x2, y2), want, strict=True):
        np.testing.assert_array_equal(got, true)
    (fresh,) = outputs_of(graph)[1:]
    kernel.run(x, y, out=(x, fresh))
    np.testing.assert_array_equal(x, want[0])
    np.testing.assert_array_equal(fresh, want[1])


@pytest.mark.usefixtures("streaming")
def test_fortran_order_and_broadcast_inputs() -> None:
    x = RNG.standard_normal((130, 700)).astype(np.float32)
    row, column = x[:1].copy(), x[:, :1].copy()
    (got,) = run(lambda a, b, c: a * b + c, np.asfortranarray(x), row, column)
    np.testing.assert_array_equal(got, x * row + column)


def test_large_results_are_streamed_and_small_ones_are_not() -> None:
    frame = Frame(traced(lambda x: x + 1.0, [np.ones(9, np.float32)]))
    large = plan.STREAM // 8
    streams = [plan.Planner(frame, [(n,), (n,)], [(4,), (4,)]).streams for n in (1000, large - 1, large)]
    assert streams == [False, False, True]


def test_parallelism_depends_on_work_not_element_count() -> None:
    def wakes(function: Any, length: int) -> bool:
        frame = Frame(traced(function, [np.ones(9, np.float32)]))
        return plan.Planner(frame, [(length,), (length,)], [(4,), (4,)]).plan().work >= plan.PARALLEL

    assert not wakes(lambda x: x + 1.0, 1000)
    assert wakes(lambda x: x + 1.0, 1 << 20)
    between = [
        n for n in range(1 << 12, 1 << 20, 1 << 12) if wakes(exp, n) and not wakes(lambda x: x + 1.0, n)
    ]
    assert between


EXTREMES = [(reduce_max, np.max), (reduce_min, np.min)]


def folded(fold: Any, arrays: list[Any]) -> list[Any]:
    """Each array folded along its rows, by one kernel."""
    graph = traced(lambda x: fold(ops.maximum(x, x), axis=(1,)), arrays[:1])
    kernel = BACKEND.compile(graph)
    return [call(kernel, graph, [x])[0] for x in arrays]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nan_anywhere_in_a_row_is_its_max_and_min(dtype: str) -> None:
    arrays = [RNG.standard_normal((30, n)).astype(dtype) for n in (7, 16, 63, 64, 65, 200, 1000, 40_000)]
    for x in arrays:
        places = RNG.integers(0, x.shape[1], 20)
        x[np.arange(20), places] = np.nan
        x[20:22, places[0]], x[22:24, places[1]] = np.inf, -np.inf
    for fold, truth in EXTREMES:
        for x, got in zip(arrays, folded(fold, arrays), strict=True):
            np.testing.assert_array_equal(got, truth(x, axis=1, keepdims=True))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64", "bool"])
def test_integer_row_reductions_match_numpy(dtype: str) -> None:
    high = 2 if dtype == "bool" else 127
    arrays = [RNG.integers(0, high, (9, n)).astype(dtype) for n in (9, 64, 100, 1001, 50_000)]
    for fold, truth in EXTREMES:
        for x, got in zip(arrays, folded(fold, arrays), strict=True):
            np.testing.assert_array_equal(got, truth(x, axis=1, keepdims=True))
    for fold, total in ((reduce_sum, np.sum), (reduce_prod, np.prod)) if dtype != "bool" else ():
        for x, got in zip(arrays, folded(fold, arrays), strict=True):
            np.testing.assert_array_equal(got, total(x, axis=1, keepdims=True, dtype=got.dtype))


def test_sums_of_rows_with_infinities_and_nan() -> None:
    x = np.ones((4, 5000), np.float32)
    x[0, 77], x[1, 99], x[1, 4000], x[2, 3] = np.inf, np.inf, -np.inf, np.nan
    (got,) = run(lambda x: reduce_sum(x * 1.0, axis=(1,)), x)
    np.testing.assert_array_equal(got[:, 0], [np.inf, np.nan, np.nan, 5000])


def test_vectors_use_the_full_width_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    import llvmlite.binding as llvm

    if not llvm.get_host_cpu_features().get("avx512f"):
        pytest.skip("this processor has no vectors of 512 bits")
    modules = []
    optimize = pipeline.Library._optimize_final_module

    def keep(self: Any) -> None:
        optimize(self)
        modules.append(str(self._final_module))

    monkeypatch.setattr(pipeline.Library, "_optimize_final_module", keep)
    backend, x = CpuNumba(), np.ones(9, np.float32)  # by Numba, whoever has compiled it before
    backend.compile(traced(lambda x: x * x + 1.0, [x]))
    backend.compile(traced(lambda x: reduce_sum(x * x, axis=(0,)), [x]))
    backend.compile(traced(lambda x: reduce_max(x * x, axis=(0,)), [x]))
    flat, total, greatest = modules
    assert "fmul <16 x float>" in flat
    assert "fadd reassoc <32 x float>" in total
    assert "@llvm.maximum.v64f32" in greatest
