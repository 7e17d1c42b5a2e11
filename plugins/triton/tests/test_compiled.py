"""The same kernels through Triton's compiler, which needs no GPU: machine code for three kinds of them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from mgb.ir import Graph
from mgb.ops.declare import OPS
from mgb.ops.primitives import cast
from mgb.ops.reduce import reduce_sum
from mgb_conformance.cases import call
from mgb_cuda.steps import steps
from mgb_cuda.testing import compiled, ledgers
from mgb_cuda.testing.compiled import IN_TURN, MORE, PROGRAMS, WIDE, like
from mgb_cuda.testing.programs import normalise, softmax
from mgb_triton import compiler
from mgb_triton.backend import Toolchain
from mgb_triton.geometry import candidates, choose
from mgb_triton.source import texts
from triton_helpers import BENCH
from triton_texts import accesses as tiles
from triton_texts import printed, ptx, usage

pytestmark = pytest.mark.skipif(compiler.missing() is not None, reason=str(compiler.missing()))


SLOW = (pytest.mark.slow,)

#: What is held against budgets here; the rest is in the long tier.
WEIGHED = ("gelu f16", "softmax 1Ki", "softmax 16Ki f16", "log-sum-exp 50304", "weight and bias 8Ki")


class Compiled(compiled.Compiled):
    """By Triton."""

    bench = BENCH
    usage = staticmethod(usage)


def assembly(function: Callable[..., Any], *arrays: Any) -> str:
    """The PTX of what takes one kernel."""
    (text,) = printed(BENCH.traced(function, *arrays))
    return ptx(text)


def slow(value: Any) -> Any:
    """A parameter of the long tier."""
    return pytest.param(value, marks=pytest.mark.slow)


def across(x: Any, y: Any) -> Any:
    """A sum of what lies in two ways."""
    return reduce_sum(x * y, axis=(1,))


def double(x: Any) -> Any:
    return x * 2 + 1


class TestBudget(Compiled, compiled.Budgets):
    tables: ClassVar = {"large": IN_TURN}
    narrow, crowd, turning = MORE, 255, 64 << 10
    more = frozenset(
        {
            "softmax of long rows",
            "softmax of the longest that stay",
            "softmax of longer ones",
            "batch statistics",
            "column sums",
        }
    )

    def assembly(self, graph: Graph) -> str:
        (text,) = printed(graph)
        return ptx(text)

    @pytest.mark.parametrize("length", [1_000_001, 1_000_002])
    def test_loads_are_16_bytes_wide_for_odd_lengths(self, length: int) -> None:
        """All but those of the last tile; no other text has both."""
        for function in (lambda x: x * x + x, lambda x: reduce_sum(x, axis=(0,))):
            first = printed(BENCH.traced(function, like("float32", (length,))))[0]
            found = re.findall(r"ld\.global\.(\S+)", ptx(first))
            assert set(found) == {"v4.b32", "b32"}, found

    def test_row_and_broadcast_accesses_are_16_bytes_wide(self) -> None:
        x, row = like("float32", (4096, 1000)), like("float32", (1000,))
        for function, arrays in (
            (lambda x, row: x * row + x, [x, row]),
            (softmax, [x]),
            (lambda x: normalise(x, (0,)), [like("float32", (64, 1 << 16))]),
        ):
            for text in printed(BENCH.traced(function, *arrays)):
                found = re.findall(r"(?:ld|st)\.global\.(\S+)", ptx(text))
                assert found and set(found) == {"v4.b32"}, (found, text)

    @pytest.mark.parametrize("axis", [(0,), (1,), (0, 1)], ids=["first", "last", "both"])
    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    def test_transposed_loads_are_16_bytes_wide(self, dtype: str, axis: tuple[int, ...]) -> None:
        """Whichever axis is folded."""
        x = like(dtype, (4096, 8192))
        graph = BENCH.traced(lambda x: reduce_sum(x, axis=axis), x)
        for text in printed(graph, strides=[(x.itemsize, 4096 * x.itemsize)])[:1]:
            found = set(re.findall(r"ld\.global\.(\S+)", ptx(text)))
            assert found and found <= WIDE, (found, text)

    @pytest.mark.parametrize("length", [200, 1024, 2048, 8192])
    @pytest.mark.parametrize("function", [softmax, slow(normalise), across, slow(double)])
    def test_transposed_operands_are_accessed_by_whole_sectors(self, function: Any, length: int) -> None:
        """A transposed array beside one that is not: each is loaded or stored as it lies."""
        arrays = [like("float32", (4096, length))] * (2 if function is across else 1)
        down, along = (1, 4096), (length, 1)
        strides = [(4, 4 * 4096), (4 * length, 4)][: len(arrays)]
        texts = printed(BENCH.traced(function, *arrays), strides=strides)
        loads = [a for a in tiles(texts[0]) if a.name == "load"]
        stores = [a for a in tiles(texts[-1]) if a.name == "store"]
        other = loads[1] if function is across else stores[0]
        assert (loads[0].fast, loads[0].used(down, 4)) == (0, 1)
        assert (other.fast, other.used(along, 4)) == (1, 1)

    @pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
    @pytest.mark.parametrize("count", [1, slow(3), 12, slow(60)])
    def test_tiles_of_transposed_arrays_do_not_spill(self, dtype: str, count: int) -> None:
        """Half of the arrays are transposed; none spills, however many there are."""
        arrays = [like(dtype, (4096, 1024))] * count
        item = arrays[0].itemsize
        ways = [(item, 4096 * item), (1024 * item, item)]
        graph = BENCH.traced(lambda *xs: sum(xs[1:], xs[0] + xs[0]), *arrays)
        (text,) = printed(graph, strides=[ways[k % 2] for k in range(count)])
        for k, access in enumerate(tiles(text)):
            where = ways[k % 2 if k < count else 1]
            assert access.used((where[0] // item, where[1] // item), item) == 1, (k, access)
        (found,) = usage(text, 90)
        assert found.stores == found.loads == 0 and found.registers <= MORE
        assert found.shared <= 48 << 10

    @pytest.mark.slow
    @pytest.mark.parametrize("name", PROGRAMS)
    def test_every_tuning_candidate_compiles(self, name: str) -> None:
        """Every candidate of the search compiles; one that spills is slow, not wrong."""
        function, shape = PROGRAMS[name]
        graph, device = BENCH.traced(function, like("float32", shape)), self.paper()
        backend: Any = BENCH.given(device)
        unit = backend.kernels(graph, backend.devices, None).unit()
        specs = [o.node.spec for o in unit.frame.arrays]
        found = steps(unit.frame, [s.shape for s in specs], [(4 * shape[-1], 4)[-len(shape) :]])
        first = choose(unit.frame, found, device.properties)
        for choice in candidates(unit.frame, found, device.properties, first):
            for text, _ in texts(unit.frame, choice.variant):
                assert compiler.usage(text, 90).shared <= 227 << 10


class TestNumbers:
    """The arithmetic of a text reaches the assembler unchanged."""

    def test_no_fma_contraction_or_flush_to_zero(self) -> None:
        found = assembly(lambda x: (x * 2 + 1) * x / (x - 3), like("float32", (1 << 20,)))
        assert "fma.rn" not in found and ".ftz" not in found and ".approx" not in found
        assert "div.rn.f32" in found

    def test_functions_do_not_flush_denormals(self) -> None:
        """The library would read and write 0 for them if it were told to."""
        names = ("log", "log1p", "tanh", "erf", "floor", "sqrt")
        found = assembly(lambda x: [call(OPS[n])(x) for n in names], like("float32", (1 << 20,)))
        assert "sqrt.rn.f32" in found
        assert not re.findall(r"(?:add|mul|fma|cvt|min|max|sub)\S*\.ftz\S*", found)

    def test_bfloat16_is_rounded_by_the_hardware(self) -> None:
        found = assembly(lambda x: cast(x, dtype=np.dtype("bfloat16")), like("float32", (1 << 20,)))
        assert re.search(r"cvt\.rn\.bf16", found)


class TestLedgers(ledgers.Ledgers):
    bench, toolchain = BENCH, Toolchain()
    beyond: ClassVar = {
        "softmax 64Ki": {"reads", "instructions"},
        "long layer norm": {"reads"},
        "softmax 256Ki": {"instructions"},
        "weight and bias 16Ki": {"blocks"},
        "weight and bias 32Ki": {"spills"},
        "batch statistics": {"under way"},
        "log-sum-exp 50257": {"instructions"},
    }
    tables: ClassVar = {
        "weighed": [
            pytest.param((name, a), id=f"{name}-{a}", marks=() if (name in WEIGHED) and a == 90 else SLOW)
            for name in ledgers.CASES
            for a in ledgers.ARCHITECTURES
        ]
    }


class TestEveryKernel(Compiled, compiled.EveryKernel):
    registers = 255


class TestErrors(compiled.Refusals):
    refused = "SIGNATURE = {}\nALIGNED = []\nWARPS = 4\n\n\n@jit\ndef mgb_0():\n    nonsense + 1\n"

    def compile(self, text: str) -> None:
        compiler.compile_source(text, 90)

    @pytest.mark.parametrize(
        ("capability", "wanted"), [((9, 0), 90), ((8, 0), 80), ((8, 5), 80), ((9, 9), 90), ((10, 0), 100)]
    )
    def test_unknown_gpu_uses_the_nearest_architecture(
        self, capability: tuple[int, int], wanted: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        compiler.nearest.cache_clear()
        with caplog.at_level(logging.WARNING, "mgb.triton"):
            assert compiler.nearest(capability) == wanted
        assert (capability == divmod(wanted, 10)) == (not caplog.records)

    @pytest.mark.parametrize("capability", [(3, 5), (99, 0)])
    def test_gpu_of_an_unsupported_generation_raises(self, capability: tuple[int, int]) -> None:
        with pytest.raises(compiler.TritonError, match="MGB_JIT_BACKEND=NVRTC"):
            compiler.nearest(capability)

    @pytest.mark.parametrize(("version", "serves"), [("3.9.0", True), ("3.9.1+git", True), ("3.6.0", True), ("3.5.1", False), ("3.10.0", False)])  # fmt: skip # noqa: E501
    def test_unsupported_triton_versions_are_reported(self, version: str, serves: bool) -> None:
        problem = compiler.unsupported(version)
        assert (problem is None) is serves
        assert serves or (
            f"Triton {version} is installed" in str(problem) and "pip install 'triton" in str(problem)
        )

    def test_compilation_leaves_the_triton_cache_empty(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
        (text,) = printed(BENCH.traced(lambda x: x + 1.25, like("float32", (1 << 20,))))
        assert compiler.compile_source(text, 90).image.startswith(b"\x7fELF")
        assert not list(tmp_path.iterdir())
