"""On a real GPU: the geometries, dtypes and joined calls of the other tests, with CuPy's arrays."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from mgb.ops.primitives import eq, where
from mgb_conformance.cases import DTYPES, samples
from mgb_cuda.testing import on_gpu
from mgb_cuda.testing.geometries import GEOMETRIES
from mgb_cuda.variant import Kind
from nvrtc_helpers import BENCH

PROBLEM = BENCH.on_gpus.probe()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(PROBLEM is not None, reason=str(PROBLEM))]


class TestOnGpu(on_gpu.OnGpu):
    bench = BENCH
    tables: ClassVar = {"geometry": GEOMETRIES}

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("shape", [(1024, 2048), (1000, 4097), (3, 700, 1300)], ids=str)
    def test_transposed_inputs_use_tiles(self, shape: tuple[int, ...], dtype: str) -> None:
        """Squares of them are turned in shared memory."""
        on_gpu.see_that_there_is(dtype)
        import cupy

        x, y = (samples(dtype, shape, seed).swapaxes(-1, -2) for seed in range(2))
        y = np.where(y > 0, x, y)
        graph = BENCH.traced(lambda x, y: where(eq(x, y), x, y), x, y)
        kernel, out = BENCH.on_gpus.compile(graph), cupy.full(x.shape, 77, x.dtype)
        there = cupy.asarray(np.ascontiguousarray(x.swapaxes(-1, -2))).swapaxes(-1, -2)
        kernel.run(there, cupy.asarray(y), out=(out,))
        (plan,) = kernel.state.unit().plans.values()
        assert plan.choice.variant.kind is Kind.TILES
        np.testing.assert_array_equal(out.get(), np.where(x == y, x, y))
