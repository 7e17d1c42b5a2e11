"""The conformance suite on what PTX is made of, run by this CPU: a sample, and all in the long tier."""

from __future__ import annotations

import pytest

pytest.importorskip("torch_mlir", reason="MLIR is not installed: pip install torch-mlir==20261001")
pytest.importorskip("mgb_mlir", reason="the plugin is not installed: pip install ./plugins/mlir")
pytest.importorskip("llvmlite", reason="what makes PTX is not installed: pip install llvmlite")
pytest.importorskip("mgb_cuda", reason="what launches kernels is not installed: pip install ./plugins/cuda")

from mgb_cuda.testing.announce import register
from mgb_cuda.testing.conformance import Sample, tiers
from ptx_host import BACKEND

MGB_BACKEND = BACKEND.name
register(BACKEND)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int32", "uint8", "bool"])
class TestSample(Sample):
    pass


#: These start processes, train for long, or measure threads of the CPU, which is not what is in question.
APART = ("TestCache", "TestTraining", "TestThreads")

globals().update(tiers(quick=("TestIntegers", "TestLayouts"), without=APART))
