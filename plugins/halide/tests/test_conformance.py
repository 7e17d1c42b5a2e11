"""The conformance suite, run on this backend."""

import pytest

pytest.importorskip("halide", reason="Halide is not installed")

from mgb_conformance import *  # noqa: F403

MGB_BACKEND = "halide"
