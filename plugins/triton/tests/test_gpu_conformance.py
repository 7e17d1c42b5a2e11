"""The conformance suite on a real GPU: a sample, and all in the long tier."""

from __future__ import annotations

import pytest
from mgb_triton import Triton

PROBLEM = Triton().probe()
if PROBLEM is not None:
    pytest.skip(PROBLEM, allow_module_level=True)

from mgb_cuda.testing.conformance import tiers  # noqa: E402

MGB_BACKEND = "triton"
pytestmark = pytest.mark.gpu

globals().update(tiers(quick={"TestCache", "TestContract", "TestFusion", "TestLayouts"}))
