"""The backend object: saving, loading, several GPUs, and what is imported when."""

from __future__ import annotations

import pytest
from mgb_cuda.testing import backends
from mgb_cuda.testing.host import missing
from nvrtc_helpers import BENCH


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
class TestSaved(backends.Saved):
    bench = BENCH


class TestSeveralGpus(backends.SeveralGpus):
    bench = BENCH


class TestTraits(backends.Described):
    bench = BENCH
    package = "mgb_nvrtc"
