"""The conformance suite, run on this backend."""

import pytest

pytest.importorskip("torch_mlir", reason="MLIR is not installed: pip install torch-mlir==20261001")
pytest.importorskip("mgb_mlir", reason="the plugin is not installed: pip install ./plugins/mlir")

from mgb_conformance import *  # noqa: F403

MGB_BACKEND = "mlir"
