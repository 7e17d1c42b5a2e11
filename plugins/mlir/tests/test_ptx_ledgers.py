"""The cost of kernels of MLIR_PTX for each element, in the machine code of NVIDIA's assembler."""

from __future__ import annotations

from typing import ClassVar

import pytest

pytest.importorskip("torch_mlir", reason="MLIR is not installed: pip install torch-mlir==20261001")
pytest.importorskip("mgb_mlir", reason="the plugin is not installed: pip install ./plugins/mlir")
pytest.importorskip("llvmlite", reason="what makes PTX is not installed: pip install llvmlite")
pytest.importorskip("mgb_cuda", reason="what launches kernels is not installed: pip install ./plugins/cuda")

from mgb_cuda import sass
from mgb_cuda.testing import ledgers
from mgb_cuda.testing.bench import Bench
from mgb_cuda.testing.compiled import ARCHITECTURES
from mgb_cuda.testing.table import CASES
from ptx_assembler import Assembled, needs_ptxas
from ptx_host import BENCH

pytestmark = needs_ptxas

#: Instructions for each element are at most so many times those of NVRTC.
NEAR = 1.3

#: What is weighed at each run, and compared; all cases and architectures are in the long tier.
WEIGHED = ("gelu f16", "softmax 16Ki", "weight and bias 32Ki", "column sum", "log-sum-exp 50257")
COMPARED = ("bias", "gelu", "softmax 1Ki")


class TestLedgers(ledgers.Ledgers):
    bench, toolchain = BENCH, Assembled()
    beyond: ClassVar = {name: {"reads"} for name in ("softmax 64Ki", "long layer norm")}  # it has no clusters
    tables: ClassVar = {
        "weighed": [
            pytest.param(
                (name, a), id=f"{name}-{a}", marks=() if name in WEIGHED and a == 90 else pytest.mark.slow
            )
            for name in CASES
            for a in ARCHITECTURES
        ]
    }


class OfNvrtc(ledgers.Ledgers):
    __test__ = False
    bench: ClassVar[Bench]


@pytest.mark.skipif(sass.missing() is not None, reason=str(sass.missing()))
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if name in COMPARED else pytest.mark.slow) for name in CASES
])  # fmt: skip
def test_instruction_count_is_close_to_nvrtc(name: str) -> None:
    backend = pytest.importorskip("mgb_nvrtc.backend", reason="not installed: pip install ./plugins/nvrtc")
    if backend.compiler.missing() is not None:
        pytest.skip(str(backend.compiler.missing()))

    class Given(ledgers.OnDevice, backend.Generated):  # type: ignore[name-defined, misc]
        name, traits = "nvrtc_given", backend.traits("gpu")

    other = OfNvrtc()
    other.bench, other.toolchain = Bench(backend.Nvrtc, Given, Given, None, None), backend.Toolchain()  # type: ignore[misc, arg-type]
    wanted = other.ledger(CASES[name], 90).instructions
    assert TestLedgers().ledger(CASES[name], 90).instructions <= NEAR * wanted
