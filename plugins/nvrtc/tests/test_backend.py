"""The backend object: saving, loading, several GPUs, and what is imported when."""

from __future__ import annotations

import numpy as np
import pytest
from mgb_cuda.testing import backends
from mgb_cuda.testing.host import missing
from nvrtc_helpers import BENCH


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
class TestSaved(backends.Saved):
    bench = BENCH

    def test_host_kernel_has_source_and_no_forecast(self) -> None:
        x = np.arange(1000, dtype=np.float32)
        backend = self.here()
        kernel = backend.compile(BENCH.traced(lambda x: x * 2 + 1, x))
        assert "mgb_0" in kernel.source and backend.expectation(kernel) == ""


class TestSeveralGpus(backends.SeveralGpus):
    bench = BENCH


class TestTraits(backends.Described):
    bench = BENCH
    package = "mgb_nvrtc"
