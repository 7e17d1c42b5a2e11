"""On a real GPU: the shapes of tiles, dtypes and joined calls of the other tests, with CuPy's arrays."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from mgb_cuda.testing import on_gpu
from mgb_cuda.testing.programs import normalise, wanted
from mgb_triton import tuning
from triton_geometries import GEOMETRIES
from triton_helpers import BENCH

PROBLEM = BENCH.on_gpus.probe()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(PROBLEM is not None, reason=str(PROBLEM))]


class TestOnGpu(on_gpu.OnGpu):
    bench = BENCH
    tables: ClassVar = {"geometry": GEOMETRIES}

    @pytest.mark.parametrize("shape", [(1 << 22,), (4096, 1024), (64, 1 << 17)])
    def test_measured_variants_are_correct(
        self, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tuning, "_known", {})
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        axis = (len(shape) - 1,)
        (found,) = self.run(BENCH.traced(lambda x: normalise(x, axis), x), x)
        assert np.abs(found - wanted(normalise, x, axis)).max() <= 2e-5
