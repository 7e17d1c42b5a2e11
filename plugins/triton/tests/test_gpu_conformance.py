"""The whole conformance suite on a real GPU."""

from __future__ import annotations

import pytest
from mgb_triton import Triton

PROBLEM = Triton().probe()
if PROBLEM is not None:
    pytest.skip(PROBLEM, allow_module_level=True)

from mgb_conformance import *  # noqa: E402, F403

MGB_BACKEND = "triton"
pytestmark = pytest.mark.gpu
