"""The whole conformance suite on a real GPU."""

from __future__ import annotations

import pytest

pytest.importorskip("torch_mlir", reason="MLIR is not installed: pip install torch-mlir==20261001")
gpu = pytest.importorskip("mgb_mlir.gpu", reason="not installed: pip install ./plugins/cuda")

PROBLEM = gpu.MlirPtx().probe()
if PROBLEM is not None:
    pytest.skip(PROBLEM, allow_module_level=True)

from mgb_conformance import *  # noqa: E402, F403

MGB_BACKEND = "mlir_ptx"
pytestmark = pytest.mark.gpu
