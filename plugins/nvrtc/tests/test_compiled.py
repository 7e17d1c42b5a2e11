"""The same kernels through NVRTC, which needs no GPU: machine code for three generations of them."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

import numpy as np
import pytest
from mgb.ir import Graph
from mgb.ops.primitives import cast
from mgb.ops.reduce import reduce_max, reduce_sum
from mgb_cuda.geometry import choose
from mgb_cuda.steps import steps
from mgb_cuda.testing import compiled, ledgers
from mgb_cuda.testing.compiled import EACH, MORE, REGISTERS
from mgb_nvrtc import compiler
from mgb_nvrtc.backend import Toolchain
from mgb_nvrtc.source import prelude
from nvrtc_helpers import BENCH
from nvrtc_texts import usage

pytestmark = pytest.mark.skipif(compiler.missing() is not None, reason=str(compiler.missing()))


class Compiled(compiled.Compiled):
    """By NVRTC."""

    bench = BENCH
    usage = staticmethod(usage)


class TestBudget(Compiled, compiled.Budgets):
    tables: ClassVar = {"large": EACH}
    narrow, crowd = REGISTERS, MORE

    def assembly(self, graph: Graph) -> str:
        text = prelude() + BENCH.given(self.paper()).compile(graph).source
        return compiler.compile_source(text, "compute_90")[0].decode()

    @pytest.mark.parametrize("shape", [(2048, 2048), (300, 2048), (30, 2048)])
    def test_wide_sums_of_narrow_elements_fit_the_register_budget(self, shape: tuple[int, int]) -> None:
        """Sixteen elements of a byte are loaded at once; as many sums of 8 bytes would fill shared memory."""
        wide = np.dtype(np.int64)

        def parity(x: Any) -> Any:
            count = reduce_sum(cast(x, dtype=wide), axis=(0,))
            most = reduce_max(cast(x, dtype=wide) * count, axis=(0,))
            return cast(most + count, dtype=x.dtype)

        self.check(BENCH.traced(parity, np.broadcast_to(np.bool_(0), shape)), registers=MORE)

    def test_120_inputs_with_different_strides_fit_the_budget(self) -> None:
        device = self.paper()
        arrays = [np.empty((4, 5 + k, 6 + k, 7 + k), np.float32)[:, :5, :6, :7] for k in range(120)]
        graph = BENCH.traced(lambda *xs: sum(xs[1:], xs[0]), *arrays)
        unit = BENCH.given(device).compile(graph).state.unit()
        out = np.empty((4, 5, 6, 7), np.float32)
        found = steps(unit.frame, [a.shape for a in (*arrays, out)], [a.strides for a in arrays])
        choice = choose(unit.frame, found, device.properties)
        unit.load(choice.variant, keep=False)
        assert len(choice.variant.classes) == 120
        assert choice.variant.packing(unit.frame).size <= device.properties.parameter_bytes
        assert len(device.usage) == 2 and device.usage[-1].stores == 0


class TestLedgers(ledgers.Ledgers):
    bench, toolchain = BENCH, Toolchain()
    tables: ClassVar = {"weighed": ledgers.IN_TURN}


class TestEveryKernel(Compiled, compiled.EveryKernel):
    registers = MORE


class TestErrors(compiled.Refusals):
    refused = "__global__ void f() { nonsense; }"

    def compile(self, text: str) -> None:
        compiler.compile_source(text, "sm_90")

    @pytest.mark.parametrize(
        ("capability", "wanted"),
        [((9, 0), "sm_90"), ((8, 0), "sm_80"), ((8, 8), "sm_88"), ((9, 9), "sm_90"), ((99, 9), "compute_")],
    )
    def test_unknown_gpu_uses_the_nearest_architecture(
        self, capability: tuple[int, int], wanted: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        compiler.nearest.cache_clear()
        with caplog.at_level(logging.WARNING, "mgb.nvrtc"):
            found = compiler.nearest(capability)
        assert found.startswith(wanted)
        exact = found == "sm_{}{}".format(*capability)
        assert exact == (not caplog.records)
        image, _ = compiler.compile_source('extern "C" __global__ void f() {}', found)
        assert image.startswith(b"\x7fELF") is found.startswith("sm_")

    def test_unsupported_old_gpu_raises(self) -> None:
        with pytest.raises(compiler.NvrtcError, match="install an older CUDA"):
            compiler.nearest((3, 5))
