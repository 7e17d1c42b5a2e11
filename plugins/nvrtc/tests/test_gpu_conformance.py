"""The whole conformance suite on a real GPU."""

from __future__ import annotations

import pytest
from mgb_nvrtc import Nvrtc

PROBLEM = Nvrtc().probe()
if PROBLEM is not None:
    pytest.skip(PROBLEM, allow_module_level=True)

from mgb_conformance import *  # noqa: E402, F403

MGB_BACKEND = "nvrtc"
pytestmark = pytest.mark.gpu
