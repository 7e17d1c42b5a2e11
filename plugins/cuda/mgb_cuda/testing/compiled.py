"""Kernels as machine code of three generations of GPUs: the real compiler, which needs none of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from mgb.ir import Graph
from mgb.ir import Kind as OpKind
from mgb.ops.declare import OPS
from mgb.ops.reduce import reduce_sum
from mgb.tensor.apply import apply
from mgb_conformance.cases import DTYPES, PARAMS, call, elementwise, operands, samples

from ..device import Device, Properties
from ..launch import Unit
from ..steps import steps
from .arrays import HostArrays
from .bench import Bench
from .programs import normalise, softmax
from .suite import Suite

ARCHITECTURES = (80, 90, 100)

#: Registers with which half of the threads of a multiprocessor fit; a quarter.
REGISTERS, MORE = 64, 128

#: Bytes that a thread may spill where a kernel has a dozen functions of CUDA (their slow paths are calls,
#: around which values are put aside), or in a stage that takes no time.
CALLS = 256

#: Loads and stores of 16 bytes, as assemblies spell them.
WIDE = {"v2.f64", "v4.f32", "v4.u32", "v2.u64", "v2.b64", "v4.b32"}

#: What is computed, and of which shape.
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "chain": (lambda x: (x * 2 + 1) * x - 3, (1 << 20,)),
    "softmax of short rows": (softmax, (4096, 64)),
    "softmax of rows": (softmax, (4096, 1024)),
    "softmax of long rows": (softmax, (4096, 16_384)),
    "softmax of the longest that stay": (softmax, (1024, 32_768)),
    "softmax of longer ones": (softmax, (512, 65_536)),
    "layer norm": (normalise, (4096, 4096)),
    "batch statistics": (lambda x: normalise(x, (0,)), (4096, 512)),
    "one sum": (lambda x: reduce_sum(x, axis=(0, 1)), (4096, 4096)),
    "column sums": (lambda x: reduce_sum(x, axis=(0,)), (4096, 4096)),
}

#: Each for all architectures.
EACH = [pytest.param((name, a), id=f"{name}-{a}") for name in PROGRAMS for a in ARCHITECTURES]

#: Each for one of them here, for all in the long tier.
IN_TURN = [
    pytest.param(*p.values, id=p.id, marks=[] if (i // 3) % 3 == i % 3 else [pytest.mark.slow])
    for i, p in enumerate(EACH)
]


class OnPaper(HostArrays, Device):
    """A GPU that nothing is launched on: it keeps what the kernels on it would take.

    Parameters
    ----------
    usage : callable
        ``(text, 90) -> [Usage]``: what the kernels of a text take, by the report of the assembler.
    architecture : int
    multiprocessors : int, optional
    """

    def __init__(
        self, usage: Callable[[str, int], Sequence[Any]], architecture: int, multiprocessors: int = 132
    ) -> None:
        self.properties = Properties(f"sm_{architecture}", divmod(architecture, 10), multiprocessors)
        self.architecture, self._usage = architecture, usage
        self.usage: list[Any] = []

    def key(self) -> str:
        return self.properties.architecture

    def toolchain(self) -> str:
        return "the one that is installed"

    def compile(self, source: str) -> bytes:
        found = self._usage(source, self.architecture)
        assert found, "the assembler reports every kernel"
        self.usage += found
        return b"on paper"

    def load(self, image: bytes, names: Sequence[str]) -> tuple[Any, ...]:
        return tuple(names)

    def launcher(self, function: Any, grid: Any, threads: int) -> Callable[[int, int], None]:
        raise NotImplementedError


def like(dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return an array of this shape that takes no memory."""
    return np.broadcast_to(samples(dtype, (1,)).reshape(()), shape)


class Compiled(Suite):
    """Compiling, and holding what each kernel takes against a budget."""

    def usage(self, text: str, architecture: int) -> Sequence[Any]:
        """Return the resources that the kernels of a text take, by the report of the assembler."""
        raise NotImplementedError

    def paper(self, architecture: int = 90) -> OnPaper:
        return OnPaper(self.usage, architecture)

    def check(
        self, graph: Graph, architecture: int = 90, registers: int = REGISTERS, spills: int = 0
    ) -> None:
        device = self.paper(architecture)
        self.bench.given(device).compile(graph)
        self.hold(device, registers, spills)

    def hold(self, device: OnPaper, registers: int, spills: int = 0, shared: int = 0) -> None:
        """See that what was compiled for a device is within these bounds, or those of every device."""
        assert device.usage
        for usage in device.usage:
            assert usage.stores <= spills and usage.loads <= spills, usage
            assert usage.registers <= registers, usage
            assert usage.shared <= max(shared, device.properties.shared_bytes), usage


class Budgets(Compiled):
    """Tests of the resources that kernels of large arrays take.

    Attributes
    ----------
    tables : mapping
        Has the programs and architectures that are compiled as ``large``: `EACH` or `IN_TURN`.
    more : set of str
        The programs that may take `MORE` registers.
    narrow, crowd : int
        Registers that a kernel of elements of other sizes than 4 bytes may take, and one of 120 inputs.
    turning : int
        Bytes of shared memory that a kernel may ask for which turns a tile.
    """

    more: ClassVar[frozenset[str]] = frozenset()
    narrow: ClassVar[int]
    crowd: ClassVar[int]
    turning: ClassVar[int] = 0

    def assembly(self, graph: Graph) -> str:
        """Return the PTX of the kernel of a graph."""
        raise NotImplementedError

    def test_large_array_kernels_fit_the_register_budget(self, large: tuple[str, int]) -> None:
        name, architecture = large
        function, shape = PROGRAMS[name]
        graph = self.bench.traced(function, like("float32", shape))
        self.check(graph, architecture, MORE if name in self.more else REGISTERS)

    @pytest.mark.parametrize("name", [name for name, (_, shape) in PROGRAMS.items() if len(shape) == 2])
    def test_transposed_large_array_kernels_fit_the_register_budget(self, name: str) -> None:
        """Check transposed inputs, that is; outputs are row-major."""
        function, shape = PROGRAMS[name]
        device = self.paper()
        unit = unit_of(self.bench, device, self.bench.traced(function, like("float32", shape)))
        specs = [o.node.spec for o in unit.frame.arrays]
        found = steps(unit.frame, [s.shape for s in specs], [(4, 4 * shape[0])])
        unit.fitting(unit.choose(found), found, keep=False)
        self.hold(device, MORE, shared=self.turning)

    @pytest.mark.parametrize("dtype", ["float16", "float32", "uint8", "float64"])
    def test_loads_and_stores_are_of_16_bytes(self, dtype: str) -> None:
        graph = self.bench.traced(lambda x: x * x + x, like(dtype, (1 << 20,)))
        assert accesses(self.assembly(graph)) <= WIDE

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8"])
    def test_kernels_of_each_element_size_fit_the_register_budget(self, dtype: str) -> None:
        x = like(dtype, (4096, 8192))
        self.check(self.bench.traced(lambda x: reduce_sum(x * x, axis=(1,)) + x, x), registers=self.narrow)

    def test_kernel_of_120_inputs_fits_the_register_budget(self) -> None:
        arrays = [like("float32", (1 << 20,))] * 120
        self.check(self.bench.traced(lambda *xs: sum(xs[1:], xs[0]), *arrays), registers=self.crowd)


def unit_of(bench: Bench, device: Device, graph: Graph) -> Unit:
    """Return the kernels of a graph on a device, none of which is compiled yet."""
    unit: Unit = bench.given(device).load(graph, b"").state.unit()
    return unit


def accesses(assembly: str) -> set[str]:
    """Return how global memory is read and written: both are."""
    loads, stores = (set(re.findall(rf"{way}\.global\.(\S+)", assembly)) for way in ("ld", "st"))
    assert loads and stores
    return loads | stores


class EveryKernel(Compiled):
    """Every word in every dtype, some for one architecture here, all for all in the long tier.

    Attributes
    ----------
    registers : int
        That a kernel of a dozen words may take.
    """

    registers: ClassVar[int]

    def compile(self, dtype: str, names: list[str], architecture: int) -> None:
        arrays = [samples(d.name, (4099,)) for d in operands(OPS[names[0]], dtype)]
        graph = self.bench.traced(lambda *xs: [call(OPS[n])(*xs) for n in names], *arrays)
        self.check(graph, architecture, self.registers, CALLS)

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_group_of_ops_compiles_for_each_dtype(self, dtype: str) -> None:
        groups = list(dozens(dtype).values())
        self.compile(dtype, groups[len(dtype) % len(groups)], ARCHITECTURES[len(dtype) % 3])

    @pytest.mark.slow
    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_all_ops_compile_for_each_dtype_and_architecture(self, dtype: str, architecture: int) -> None:
        for names in dozens(dtype).values():
            self.compile(dtype, names, architecture)

    @pytest.mark.slow
    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    @pytest.mark.parametrize("axis", [(0,), (1,), (0, 1)])
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_reductions_fit_the_register_budget(
        self, dtype: str, axis: tuple[int, ...], architecture: int
    ) -> None:
        for op in (op for op in OPS.values() if op.kind is OpKind.REDUCE):
            if dtype == "bool" and op.name in ("reduce_sum", "reduce_prod"):
                continue
            for shape in ((300, 1111), (2048, 2048)):
                graph = self.bench.traced(lambda x, op=op: [apply(op, x, axis=axis)], like(dtype, shape))
                self.check(graph, architecture, self.registers, CALLS)


def dozens(dtype: str) -> dict[Any, list[str]]:
    """Return the words of a dtype with the same operands, a dozen together."""
    found: dict[Any, list[str]] = {}
    for d, name in elementwise():
        if d == dtype and name not in PARAMS:
            found.setdefault(operands(OPS[name], d), []).append(name)
    return {(k, i): names[i : i + 12] for k, names in found.items() for i in range(0, len(names), 12)}


class Refusals(Suite):
    """Tests of a text that the compiler rejects.

    Attributes
    ----------
    refused : str
        A text with an undefined word ``nonsense``.
    """

    refused: ClassVar[str]

    def compile(self, text: str) -> None:
        """Compile for some architecture."""
        raise NotImplementedError

    def test_rejected_kernel_source_is_saved_to_a_file(self) -> None:
        with pytest.raises(RuntimeError, match=r"its text is in \S+") as caught:
            self.compile(self.refused)
        assert "nonsense" in str(caught.value)
        path = str(caught.value).partition("its text is in ")[2].split()[0].rstrip(":")
        assert Path(path).read_text() == self.refused
