"""Registers a backend that runs the generated CUDA C++ on the host, for these tests and what they start."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

if find_spec("mgb_cuda") and find_spec("mgb_nvrtc"):
    from mgb_cuda.testing.announce import announced, register
    from nvrtc_helpers import BACKEND

    register(BACKEND)
    found_by_other_processes = announced(BACKEND.name, HERE / "nvrtc_helpers.py")
