"""The conformance suite on the generated text, run by the host: a sample here, the whole in the long tier."""

from __future__ import annotations

import pytest
from mgb_cuda.testing.conformance import Sample, tiers
from mgb_cuda.testing.host import missing

MGB_BACKEND = "nvrtc_on_host"
pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8"])
class TestSample(Sample):
    pass


globals().update(tiers(quick={"TestCache", "TestContract", "TestFusion", "TestLayouts"}))
