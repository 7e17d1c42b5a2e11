"""The conformance suite, run on this backend."""

import pytest

pytest.importorskip("halide", reason="Halide is not installed: pip install halide")
pytest.importorskip("mgb_halide", reason="the plugin is not installed: pip install ./plugins/halide")

from mgb_conformance import *  # noqa: F403

MGB_BACKEND = "halide"
