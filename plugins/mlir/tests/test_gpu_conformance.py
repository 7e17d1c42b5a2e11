"""The conformance suite on a real GPU: a sample, and all in the long tier."""

from __future__ import annotations

import pytest

pytest.importorskip("torch_mlir", reason="MLIR is not installed: pip install torch-mlir==20261001")
gpu = pytest.importorskip("mgb_mlir.gpu", reason="not installed: pip install ./plugins/cuda")

PROBLEM = gpu.MlirPtx().probe()
if PROBLEM is not None:
    pytest.skip(PROBLEM, allow_module_level=True)

from mgb_cuda.testing.conformance import tiers  # noqa: E402

MGB_BACKEND = "mlir_ptx"
pytestmark = pytest.mark.gpu

globals().update(tiers(quick={"TestIntegers", "TestLayouts", "TestReductions"}))
