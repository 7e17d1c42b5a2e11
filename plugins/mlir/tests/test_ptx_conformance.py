"""The conformance suite on what PTX is made of, run by this CPU: a sample, and all in the long tier."""

from __future__ import annotations

import pytest

pytest.importorskip("torch_mlir", reason="MLIR is not installed: pip install torch-mlir==20261001")
pytest.importorskip("mgb_mlir", reason="the plugin is not installed: pip install ./plugins/mlir")
pytest.importorskip("llvmlite", reason="what makes PTX is not installed: pip install llvmlite")

import mgb_conformance as suite
from mgb.plugins import manager
from mgb_conformance import TestIntegers as TestIntegers
from mgb_conformance import TestLayouts as TestLayouts
from mgb_conformance import TestReductions as TestReductions
from mgb_conformance.cases import elementwise
from mgb_conformance.drive import Driver
from mgb_conformance.test_elementwise import BATCHES
from ptx_host import BACKEND, Plugin

MGB_BACKEND = BACKEND.name

if not manager.has_plugin(MGB_BACKEND):
    manager.register(Plugin, name=MGB_BACKEND)


class TestSample:
    @pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int32", "uint8", "bool"])
    def test_every_op(self, driver: Driver, dtype: str) -> None:
        for d, name in elementwise():
            if d == dtype:
                BATCHES.ask(driver, d, name)


#: These start processes, train for long, or measure threads of the CPU, which is not what is in question.
APART = {"TestCache", "TestTraining", "TestThreads"}

for _tier in set(suite.__all__) - {"TestIntegers", "TestLayouts", "TestReductions", *APART}:
    globals()[_tier] = pytest.mark.slow(type(_tier, (getattr(suite, _tier),), {}))
