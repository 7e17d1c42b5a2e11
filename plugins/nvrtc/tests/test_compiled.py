"""The same kernels through NVRTC, which needs no GPU: machine code for three generations of them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mgb.ir import Kind as OpKind
from mgb.ops.declare import OPS
from mgb.ops.primitives import cast, sqrt
from mgb.ops.reduce import extent, reduce_max, reduce_sum
from mgb.ops.transcendental import exp
from mgb.passes.lower import lower
from mgb_conformance.cases import DTYPES, PARAMS, call, elementwise, of, operands, samples
from mgb_cuda import Device, Properties
from mgb_cuda.steps import steps
from mgb_nvrtc import compiler
from mgb_nvrtc.backend import Generated, traits
from mgb_nvrtc.geometry import choose
from mgb_nvrtc.source import prelude
from nvrtc_helpers import traced

pytestmark = pytest.mark.skipif(compiler.missing() is not None, reason=str(compiler.missing()))

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")

#: Registers with which half of the threads of a multiprocessor fit; a quarter.
REGISTERS, MORE = 64, 128

#: Bytes that a thread may spill where a kernel has a dozen functions of CUDA (their slow paths are calls,
#: around which values are put aside), or in a stage that takes no time.
CALLS = 256


class OnPaper(Device):
    """A GPU that nothing is launched on: it keeps what the kernels on it would take."""

    def __init__(self, architecture: str, multiprocessors: int = 132) -> None:
        number = int(architecture.removeprefix("sm_"))
        self.properties = Properties(architecture, divmod(number, 10), multiprocessors)
        self.usage: list[compiler.Usage] = []

    def key(self) -> str:
        return self.properties.architecture

    def toolchain(self) -> str:
        return compiler.version()

    def compile(self, source: str) -> bytes:
        found = compiler.usage(source, self.properties.architecture)
        assert found, "the assembler reports every kernel"
        self.usage += found
        return b"on paper"

    def load(self, image: bytes, names: Any) -> tuple[Any, ...]:
        return tuple(names)

    def launcher(self, function: Any, grid: Any, threads: int) -> Callable[[int, int], None]:
        raise NotImplementedError

    def address(self, array: Any) -> int:
        return 0

    stream = scratch = contiguous = launcher  # type: ignore[assignment]

    def upload(self, array: Any) -> Any:
        return array


class Drawn(Generated):
    """The backend of such a GPU."""

    name = "nvrtc_on_paper"
    traits = traits("gpu")

    def __init__(self, device: OnPaper) -> None:
        self.paper = device

    def devices(self, arrays: Any) -> Device:
        return self.paper


def check(
    function: Callable[..., Any], arrays: Any, architecture: str, registers: int = REGISTERS, spills: int = 0
) -> None:
    """Compile, and hold what each kernel takes against the budget."""
    device = OnPaper(architecture)
    graph = lower(of(function, *arrays), Drawn.traits)
    Drawn(device).compile(graph)
    for usage in device.usage:
        assert usage.stores <= spills and usage.loads <= spills, usage
        assert usage.registers <= registers, usage
        assert usage.shared <= device.properties.shared_bytes, usage


def softmax(x: Any) -> Any:
    e = exp(x - reduce_max(x, axis=(1,)))
    return e / reduce_sum(e, axis=(1,))


def normalise(x: Any, axis: tuple[int, ...]) -> Any:
    centred = x - reduce_sum(x, axis=axis) / extent(x, axis=axis)
    return centred / sqrt(reduce_sum(centred * centred, axis=axis) / extent(x, axis=axis) + 1e-5)


SHAPES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "chain": (lambda x: (x * 2 + 1) * x - 3, (1 << 20,)),
    "softmax of short rows": (softmax, (4096, 64)),
    "softmax of rows": (softmax, (4096, 1024)),
    "softmax of long rows": (softmax, (4096, 16_384)),
    "softmax of the longest that stay": (softmax, (1024, 32_768)),
    "softmax of longer ones": (softmax, (512, 65_536)),
    "layer norm": (lambda x: normalise(x, (1,)), (4096, 4096)),
    "batch statistics": (lambda x: normalise(x, (0,)), (4096, 512)),
    "one sum": (lambda x: reduce_sum(x, axis=(0, 1)), (4096, 4096)),
    "column sums": (lambda x: reduce_sum(x, axis=(0,)), (4096, 4096)),
}


class TestBudget:
    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    @pytest.mark.parametrize("name", SHAPES)
    def test_large_arrays(self, name: str, architecture: str) -> None:
        function, shape = SHAPES[name]
        check(function, [np.broadcast_to(np.float32(0), shape)], architecture)

    @pytest.mark.parametrize("dtype", ["float16", "float32", "uint8", "float64"])
    def test_loads_and_stores_are_of_16_bytes(self, dtype: str) -> None:
        x = np.broadcast_to(samples(dtype, (1,)), (1 << 20,))
        kernel = Drawn(OnPaper("sm_90")).compile(lower(of(lambda x: x * x + x, x), Drawn.traits))
        text = compiler.compile_source(prelude() + kernel.source, "compute_90")[0].decode()
        loads, stores = (re.findall(rf"{way}\.global\.(\S+)", text) for way in ("ld", "st"))
        wide = {"v2.f64", "v4.f32", "v4.u32", "v2.u64"}
        assert loads and stores and wide.issuperset((*loads, *stores)), (loads, stores)

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8"])
    def test_narrow_and_wide_elements(self, dtype: str) -> None:
        x = np.broadcast_to(samples(dtype, (1,)), (4096, 8192))
        check(lambda x: reduce_sum(x * x, axis=(1,)) + x, [x], "sm_90")

    @pytest.mark.parametrize("shape", [(2048, 2048), (300, 2048), (30, 2048)])
    def test_wide_sums_of_narrow_elements(self, shape: tuple[int, int]) -> None:
        """Sixteen elements of a byte are loaded at once; as many sums of 8 bytes would fill shared memory."""
        x, wide = np.broadcast_to(np.bool_(0), shape), np.dtype(np.int64)

        def parity(x: Any) -> Any:
            count = reduce_sum(cast(x, dtype=wide), axis=(0,))
            most = reduce_max(cast(x, dtype=wide) * count, axis=(0,))
            return cast(most + count, dtype=x.dtype)

        check(parity, [x], "sm_90", MORE)

    def test_120_inputs(self) -> None:
        arrays = [np.broadcast_to(np.float32(0), (1 << 20,))] * 120
        check(lambda *xs: sum(xs[1:], xs[0]), arrays, "sm_90", MORE)

    def test_120_inputs_that_all_step_differently(self) -> None:
        device = OnPaper("sm_90")
        arrays = [np.empty((4, 5 + k, 6 + k, 7 + k), np.float32)[:, :5, :6, :7] for k in range(120)]
        unit = Drawn(device).compile(traced(lambda *xs: sum(xs[1:], xs[0]), *arrays)).state.unit()
        out = np.empty((4, 5, 6, 7), np.float32)
        found = steps(unit.frame, [a.shape for a in (*arrays, out)], [a.strides for a in arrays])
        choice = choose(unit.frame, found, device.properties)
        unit.load(choice.variant)
        assert len(choice.variant.classes) == 120
        assert choice.variant.packing(unit.frame).size <= device.properties.parameter_bytes
        assert device.usage[-1].stores == 0


class TestEveryKernel:
    """Every word in every dtype, some for one architecture here, all for all in the long tier."""

    def compile(self, dtype: str, names: list[str], architecture: str) -> None:
        arrays = [samples(d.name, (4099,)) for d in operands(OPS[names[0]], dtype)]
        check(lambda *xs: [call(OPS[n])(*xs) for n in names], arrays, architecture, MORE, CALLS)

    def groups(self, dtype: str) -> dict[Any, list[str]]:
        """The ops with the same operands, a dozen in one kernel."""
        found: dict[Any, list[str]] = {}
        for d, name in elementwise():
            if d == dtype and name not in PARAMS:
                found.setdefault(operands(OPS[name], d), []).append(name)
        return {(k, i): names[i : i + 12] for k, names in found.items() for i in range(0, len(names), 12)}

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_a_group_of_each_dtype(self, dtype: str) -> None:
        groups = list(self.groups(dtype).values())
        self.compile(dtype, groups[len(dtype) % len(groups)], ARCHITECTURES[len(dtype) % 3])

    @pytest.mark.slow
    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_all(self, dtype: str, architecture: str) -> None:
        for names in self.groups(dtype).values():
            self.compile(dtype, names, architecture)

    @pytest.mark.slow
    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    @pytest.mark.parametrize("axis", [(0,), (1,), (0, 1)])
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_reductions(self, dtype: str, axis: tuple[int, ...], architecture: str) -> None:
        ops = [op for op in OPS.values() if op.kind is OpKind.REDUCE]
        for shape in ((300, 1111), (2048, 2048)):
            x = np.broadcast_to(samples(dtype, (1,)), shape)
            for op in ops:
                if dtype == "bool" and op.name in ("reduce_sum", "reduce_prod"):
                    continue
                check(lambda x, op=op: [op_of(op, x, axis)], [x], architecture, MORE, CALLS)


def op_of(op: Any, x: Any, axis: tuple[int, ...]) -> Any:
    from mgb.apply import apply

    return apply(op, x, axis=axis)


class TestErrors:
    def test_a_refused_kernel_keeps_its_text(self) -> None:
        with pytest.raises(compiler.NvrtcError, match=r"its text is in (\S+\.cu)") as caught:
            compiler.compile_source("__global__ void f() { nonsense; }", "sm_90")
        assert "nonsense" in str(caught.value)
        path = next(word for word in str(caught.value).split() if ".cu" in word).rstrip(":")
        assert Path(path).read_text() == "__global__ void f() { nonsense; }"

    @pytest.mark.parametrize(
        ("capability", "wanted"),
        [((9, 0), "sm_90"), ((8, 0), "sm_80"), ((8, 8), "sm_88"), ((9, 9), "sm_90"), ((99, 9), "compute_")],
    )
    def test_an_unknown_gpu_gets_the_nearest(
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

    def test_an_old_gpu_is_told_so(self) -> None:
        with pytest.raises(compiler.NvrtcError, match="install an older CUDA"):
            compiler.nearest((3, 5))
