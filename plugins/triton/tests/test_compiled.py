"""The same kernels through Triton's compiler, which needs no GPU: machine code for three kinds of them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mgb.apply import apply
from mgb.ir import Kind as OpKind
from mgb.ops.declare import OPS
from mgb.ops.primitives import cast, sqrt
from mgb.ops.reduce import extent, reduce_max, reduce_sum
from mgb.ops.transcendental import exp
from mgb.passes.lower import lower
from mgb_conformance.cases import DTYPES, PARAMS, call, elementwise, of, operands, samples
from mgb_cuda import Device, Properties
from mgb_cuda.steps import steps
from mgb_triton import compiler
from mgb_triton.backend import Generated, traits
from mgb_triton.geometry import candidates, choose
from mgb_triton.source import texts

pytestmark = pytest.mark.skipif(compiler.missing() is not None, reason=str(compiler.missing()))

ARCHITECTURES = (80, 90, 100)

#: Registers with which half of the threads of a multiprocessor fit; a quarter.
REGISTERS, MORE = 64, 128

#: Bytes that a thread may spill where a kernel has a dozen functions of CUDA: their slow paths are calls,
#: around which values are put aside.
CALLS = 256


class OnPaper(Device):
    """A GPU that nothing is launched on: it keeps what the kernels on it would take."""

    def __init__(self, architecture: int, multiprocessors: int = 132) -> None:
        self.properties = Properties(f"sm_{architecture}", divmod(architecture, 10), multiprocessors)
        self.architecture = architecture
        self.usage: list[compiler.Usage] = []

    def key(self) -> str:
        return self.properties.architecture

    def toolchain(self) -> str:
        return compiler.version()

    def compile(self, source: str) -> bytes:
        self.usage.append(compiler.usage(source, self.architecture))
        return b"on paper"

    def load(self, image: bytes, names: Sequence[str]) -> tuple[Any, ...]:
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

    name = "triton_on_paper"
    traits = traits("gpu")

    def __init__(self, device: OnPaper) -> None:
        self.paper = device

    def devices(self, arrays: Any) -> Device:
        return self.paper


def check(
    function: Callable[..., Any], arrays: Any, architecture: int, registers: int = REGISTERS, spills: int = 0
) -> None:
    """Compile, and hold what each kernel takes against the budget."""
    device = OnPaper(architecture)
    Drawn(device).compile(lower(of(function, *arrays), Drawn.traits))
    assert device.usage
    for usage in device.usage:
        assert usage.stores <= spills and usage.loads <= spills, usage
        assert usage.registers <= registers, usage
        assert usage.shared <= device.properties.shared_bytes, usage


def like(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """An array of this shape that takes no memory."""
    return np.broadcast_to(samples(dtype, (1,)), shape)


def printed(function: Callable[..., Any], *arrays: Any, architecture: int = 90) -> list[str]:
    """The texts of the kernels for row-major arrays like these."""
    unit = (
        Drawn(OnPaper(architecture))
        .kernels(lower(of(function, *arrays), Drawn.traits), lambda _: OnPaper(architecture), None)
        .unit()
    )
    specs = [o.node.spec for o in unit.frame.arrays]
    strides = [np.empty(s.shape, np.int8).strides for s in specs]
    sized = [tuple(n * s.dtype.itemsize for n in st) for st, s in zip(strides, specs, strict=True)]
    found = steps(unit.frame, [s.shape for s in specs], sized[: len(specs) - unit.outputs])
    return [text for text, _ in texts(unit.frame, unit.choose(found).variant)]


def ptx(text: str, architecture: int = 90) -> str:
    found: str = compiler.build(text, architecture).asm["ptx"]
    return found


def softmax(x: Any) -> Any:
    e = exp(x - reduce_max(x, axis=(1,)))
    return e / reduce_sum(e, axis=(1,))


def normalise(x: Any, axis: tuple[int, ...]) -> Any:
    centred = x - reduce_sum(x, axis=axis) / extent(x, axis=axis)
    return centred / sqrt(reduce_sum(centred * centred, axis=axis) / extent(x, axis=axis) + 1e-5)


#: name: what is computed, of which shape, and the registers that it may take.
SHAPES: dict[str, tuple[Callable[..., Any], tuple[int, ...], int]] = {
    "chain": (lambda x: (x * 2 + 1) * x - 3, (1 << 20,), REGISTERS),
    "softmax of short rows": (softmax, (4096, 64), REGISTERS),
    "softmax of rows": (softmax, (4096, 1024), REGISTERS),
    "softmax of long rows": (softmax, (4096, 16_384), MORE),
    "softmax of the longest that stay": (softmax, (1024, 32_768), MORE),
    "softmax of longer ones": (softmax, (512, 65_536), MORE),
    "layer norm": (lambda x: normalise(x, (1,)), (4096, 4096), REGISTERS),
    "batch statistics": (lambda x: normalise(x, (0,)), (4096, 512), MORE),
    "one sum": (lambda x: reduce_sum(x, axis=(0, 1)), (4096, 4096), REGISTERS),
    "column sums": (lambda x: reduce_sum(x, axis=(0,)), (4096, 4096), MORE),
}


#: Each on one architecture here, on all in the long tier.
QUICK_AND_LONG = [
    pytest.param(name, a, marks=[] if i % 3 == k else [pytest.mark.slow])
    for i, name in enumerate(SHAPES)
    for k, a in enumerate(ARCHITECTURES)
]


class TestBudget:
    @pytest.mark.parametrize(("name", "architecture"), QUICK_AND_LONG)
    def test_large_arrays(self, name: str, architecture: int) -> None:
        function, shape, registers = SHAPES[name]
        check(function, [like("float32", shape)], architecture, registers)

    @pytest.mark.parametrize("dtype", ["float16", "float32", "uint8", "float64"])
    def test_loads_and_stores_are_of_16_bytes(self, dtype: str) -> None:
        (text,) = printed(lambda x: x * x + x, like(dtype, (1 << 20,)))
        loads, stores = (re.findall(rf"{way}\.global\.(\S+)", ptx(text)) for way in ("ld", "st"))
        wide = {"v2.b64", "v4.b32"}
        assert loads and stores and wide.issuperset((*loads, *stores)), (loads, stores)

    @pytest.mark.parametrize("length", [1_000_001, 1_000_002])
    def test_so_they_are_where_the_length_is_odd(self, length: int) -> None:
        """All but those of the last tile; no other text has both."""
        for function in (lambda x: x * x + x, lambda x: reduce_sum(x, axis=(0,))):
            found = re.findall(r"ld\.global\.(\S+)", ptx(printed(function, like("float32", (length,)))[0]))
            assert set(found) == {"v4.b32", "b32"}, found

    def test_so_are_those_of_rows_and_of_broadcasts(self) -> None:
        x, row = like("float32", (4096, 1000)), like("float32", (1000,))
        for function, arrays in (
            (lambda x, row: x * row + x, [x, row]),
            (softmax, [x]),
            (lambda x: normalise(x, (0,)), [like("float32", (64, 1 << 16))]),
        ):
            for text in printed(function, *arrays):
                found = re.findall(r"(?:ld|st)\.global\.(\S+)", ptx(text))
                assert found and set(found) == {"v4.b32"}, (found, text)

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8"])
    def test_narrow_and_wide_elements(self, dtype: str) -> None:
        check(lambda x: reduce_sum(x * x, axis=(1,)) + x, [like(dtype, (4096, 8192))], 90, MORE)

    def test_120_inputs(self) -> None:
        check(lambda *xs: sum(xs[1:], xs[0]), [like("float32", (1 << 20,))] * 120, 90, 255)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", SHAPES)
    def test_all_that_are_tried(self, name: str) -> None:
        """Every candidate of the search compiles; one that spills is slow, not wrong."""
        function, shape, _ = SHAPES[name]
        graph = lower(of(function, like("float32", shape)), Drawn.traits)
        device = OnPaper(90)
        unit = Drawn(device).kernels(graph, lambda _: device, None).unit()
        specs = [o.node.spec for o in unit.frame.arrays]
        found = steps(unit.frame, [s.shape for s in specs], [(4 * shape[-1], 4)[-len(shape) :]])
        first = choose(unit.frame, found, device.properties)
        for choice in candidates(unit.frame, found, device.properties, first):
            for text, _ in texts(unit.frame, choice.variant):
                assert compiler.usage(text, 90).shared <= 227 << 10


class TestNumbers:
    """What is written of numbers is what the assembler is given."""

    def test_nothing_is_contracted_and_no_number_is_lost(self) -> None:
        (text,) = printed(lambda x: (x * 2 + 1) * x / (x - 3), like("float32", (1 << 20,)))
        found = ptx(text)
        assert "fma.rn" not in found and ".ftz" not in found and ".approx" not in found
        assert "div.rn.f32" in found

    def test_denormals_pass_through_the_functions(self) -> None:
        """The library would read and write 0 for them if it were told to."""
        names = ("log", "log1p", "tanh", "erf", "floor", "sqrt")
        (text,) = printed(lambda x: [call(OPS[n])(x) for n in names], like("float32", (1 << 20,)))
        found = ptx(text)
        assert "sqrt.rn.f32" in found
        assert not re.findall(r"(?:add|mul|fma|cvt|min|max|sub)\S*\.ftz\S*", found)

    def test_bfloat16_is_rounded_by_the_hardware(self) -> None:
        (text,) = printed(lambda x: cast(x, dtype=np.dtype("bfloat16")), like("float32", (1 << 20,)))
        assert re.search(r"cvt\.rn\.bf16", ptx(text))


class TestEveryKernel:
    """Every word in every dtype, some for one architecture here, all for all in the long tier."""

    def compile(self, dtype: str, names: list[str], architecture: int) -> None:
        arrays = [samples(d.name, (4099,)) for d in operands(OPS[names[0]], dtype)]
        check(lambda *xs: [call(OPS[n])(*xs) for n in names], arrays, architecture, 255, CALLS)

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
    def test_all(self, dtype: str, architecture: int) -> None:
        for names in self.groups(dtype).values():
            self.compile(dtype, names, architecture)

    @pytest.mark.slow
    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    @pytest.mark.parametrize("axis", [(0,), (1,), (0, 1)])
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_reductions(self, dtype: str, axis: tuple[int, ...], architecture: int) -> None:
        ops = [op for op in OPS.values() if op.kind is OpKind.REDUCE]
        for shape in ((300, 1111), (2048, 2048)):
            for op in ops:
                if dtype == "bool" and op.name in ("reduce_sum", "reduce_prod"):
                    continue
                check(
                    lambda x, op=op: [apply(op, x, axis=axis)], [like(dtype, shape)], architecture, 255, CALLS
                )


class TestErrors:
    REFUSED = "SIGNATURE = {}\nALIGNED = []\nWARPS = 4\n\n\n@jit\ndef mgb_0():\n    nonsense + 1\n"

    def test_a_refused_kernel_keeps_its_text(self) -> None:
        with pytest.raises(compiler.TritonError, match=r"its text is in (\S+\.py)") as caught:
            compiler.compile_source(self.REFUSED, 90)
        assert "nonsense" in str(caught.value)
        path = next(word for word in str(caught.value).split() if ".py" in word).rstrip(":")
        assert Path(path).read_text() == self.REFUSED

    @pytest.mark.parametrize(
        ("capability", "wanted"), [((9, 0), 90), ((8, 0), 80), ((8, 5), 80), ((9, 9), 90), ((10, 0), 100)]
    )
    def test_an_unknown_gpu_gets_the_nearest(
        self, capability: tuple[int, int], wanted: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        compiler.nearest.cache_clear()
        with caplog.at_level(logging.WARNING, "mgb.triton"):
            assert compiler.nearest(capability) == wanted
        assert (capability == divmod(wanted, 10)) == (not caplog.records)

    @pytest.mark.parametrize("capability", [(3, 5), (99, 0)])
    def test_one_of_another_generation_is_told_so(self, capability: tuple[int, int]) -> None:
        with pytest.raises(compiler.TritonError, match="MGB_JIT_BACKEND=NVRTC"):
            compiler.nearest(capability)

    @pytest.mark.parametrize(("version", "serves"), [("3.9.0", True), ("3.9.1+git", True), ("3.6.0", False), ("3.10.0", False)])  # fmt: skip # noqa: E501
    def test_versions(self, version: str, serves: bool) -> None:
        problem = compiler.unsupported(version)
        assert (problem is None) is serves
        assert serves or (
            f"Triton {version} is installed" in str(problem) and "pip install 'triton" in str(problem)
        )

    def test_nothing_is_left_in_the_cache_of_triton(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
        (text,) = printed(lambda x: x + 1.25, like("float32", (1 << 20,)))
        assert compiler.compile_source(text, 90).image.startswith(b"\x7fELF")
        assert not list(tmp_path.iterdir())
