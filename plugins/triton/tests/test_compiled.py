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
from mgb_cuda.testing import compiled
from mgb_cuda.testing.compiled import IN_TURN, MORE, PROGRAMS, like
from mgb_cuda.testing.programs import normalise, softmax
from mgb_triton import compiler
from mgb_triton.geometry import candidates, choose
from mgb_triton.source import texts
from triton_helpers import BENCH
from triton_texts import printed, ptx, usage

pytestmark = pytest.mark.skipif(compiler.missing() is not None, reason=str(compiler.missing()))


class Compiled(compiled.Compiled):
    """By Triton."""

    bench = BENCH
    usage = staticmethod(usage)


def assembly(function: Callable[..., Any], *arrays: Any) -> str:
    """The PTX of what takes one kernel."""
    (text,) = printed(BENCH.traced(function, *arrays))
    return ptx(text)


class TestBudget(Compiled, compiled.Budgets):
    tables: ClassVar = {"large": IN_TURN}
    narrow, crowd = MORE, 255
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
    def test_so_they_are_where_the_length_is_odd(self, length: int) -> None:
        """All but those of the last tile; no other text has both."""
        for function in (lambda x: x * x + x, lambda x: reduce_sum(x, axis=(0,))):
            first = printed(BENCH.traced(function, like("float32", (length,))))[0]
            found = re.findall(r"ld\.global\.(\S+)", ptx(first))
            assert set(found) == {"v4.b32", "b32"}, found

    def test_so_are_those_of_rows_and_of_broadcasts(self) -> None:
        x, row = like("float32", (4096, 1000)), like("float32", (1000,))
        for function, arrays in (
            (lambda x, row: x * row + x, [x, row]),
            (softmax, [x]),
            (lambda x: normalise(x, (0,)), [like("float32", (64, 1 << 16))]),
        ):
            for text in printed(BENCH.traced(function, *arrays)):
                found = re.findall(r"(?:ld|st)\.global\.(\S+)", ptx(text))
                assert found and set(found) == {"v4.b32"}, (found, text)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", PROGRAMS)
    def test_all_that_are_tried(self, name: str) -> None:
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
    """What is written of numbers is what the assembler is given."""

    def test_nothing_is_contracted_and_no_number_is_lost(self) -> None:
        found = assembly(lambda x: (x * 2 + 1) * x / (x - 3), like("float32", (1 << 20,)))
        assert "fma.rn" not in found and ".ftz" not in found and ".approx" not in found
        assert "div.rn.f32" in found

    def test_denormals_pass_through_the_functions(self) -> None:
        """The library would read and write 0 for them if it were told to."""
        names = ("log", "log1p", "tanh", "erf", "floor", "sqrt")
        found = assembly(lambda x: [call(OPS[n])(x) for n in names], like("float32", (1 << 20,)))
        assert "sqrt.rn.f32" in found
        assert not re.findall(r"(?:add|mul|fma|cvt|min|max|sub)\S*\.ftz\S*", found)

    def test_bfloat16_is_rounded_by_the_hardware(self) -> None:
        found = assembly(lambda x: cast(x, dtype=np.dtype("bfloat16")), like("float32", (1 << 20,)))
        assert re.search(r"cvt\.rn\.bf16", found)


class TestEveryKernel(Compiled, compiled.EveryKernel):
    registers = 255


class TestErrors(compiled.Refusals):
    refused = "SIGNATURE = {}\nALIGNED = []\nWARPS = 4\n\n\n@jit\ndef mgb_0():\n    nonsense + 1\n"

    def compile(self, text: str) -> None:
        compiler.compile_source(text, 90)

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
        (text,) = printed(BENCH.traced(lambda x: x + 1.25, like("float32", (1 << 20,))))
        assert compiler.compile_source(text, 90).image.startswith(b"\x7fELF")
        assert not list(tmp_path.iterdir())
