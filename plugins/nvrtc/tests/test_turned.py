"""Rows of several arrays of which some lie across the others: blocks that turn them, against NumPy."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from mgb import config
from mgb.ops.reduce import reduce_max, reduce_sum
from mgb_cuda.steps import steps
from mgb_cuda.testing import mutations
from mgb_cuda.testing.compiled import MORE, like, unit_of
from mgb_cuda.testing.host import missing
from mgb_cuda.testing.mutations import rows
from mgb_cuda.testing.programs import check, log_sum, normalise, rows_of, softmax
from mgb_cuda.testing.variants import Variants, limited
from mgb_cuda.tiling import row_pitch
from mgb_cuda.variant import Kind
from mgb_nvrtc import compiler
from nvrtc_helpers import BENCH
from nvrtc_texts import GENERATED, on_paper

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is on disk would not be compiled, and not be changed before."""
    monkeypatch.setenv(config.CACHE.name, "0")


class TestRows(Variants):
    bench = BENCH

    @pytest.mark.parametrize("function", [softmax, normalise], ids=lambda f: f.__name__)
    @pytest.mark.parametrize(
        ("shape", "holds"),
        [
            ((64, 256), lambda v: v.stays and v.team == 32),
            ((45, 300), lambda v: v.stays and v.team == 32),
            ((33, 1111), lambda v: v.stays and v.team == 64 and v.threads == 512),
            ((33, 2000), lambda v: v.stays and v.across == 8),
            ((40, 5001), lambda v: v.online and not v.stays),
        ],
        ids=["even", "odd", "a warp is part of a team", "the longest that stay", "long"],
    )
    def test_transposed_row_reductions_match_numpy(
        self, shape: tuple[int, int], holds: Any, function: Any
    ) -> None:
        x = np.asfortranarray(rows_of("plain", shape))
        (found,), variant = self.run(lambda x: function(x, (1,)), BENCH.device(4), x)
        assert variant.kind is Kind.ROWS and variant.turned == (0,) and holds(variant), variant
        check(function, x, (1,), found)

    @pytest.mark.parametrize("dtype", ["uint8", "float16", "int64", "float64"])
    def test_transposed_rows_of_other_dtypes(self, dtype: str) -> None:
        x = (np.arange(90 * 140).reshape(70, 180) % 11).astype(dtype).T
        (found,), variant = self.run(lambda x: x - reduce_max(x, axis=(1,)), BENCH.device(4), x)
        assert variant.turned == (0,) and variant.across * x.itemsize >= 32
        np.testing.assert_array_equal(found, x - x.max(1, keepdims=True))

    def test_several_transposed_inputs_and_reduced_axes(self) -> None:
        """Of four axes, of which two are folded; a row and a column beside what is turned."""
        random = np.random.default_rng(0)
        shape = (3, 40, 5, 33)
        x = random.normal(size=(33, 5, 3, 40)).astype(np.float32).transpose(2, 3, 1, 0)
        y = random.normal(size=(3, 5, 33, 40)).astype(np.float32).transpose(0, 3, 1, 2)
        z = random.normal(size=shape).astype(np.float32)
        row, column = z[:1, :1, :1], z[:, :, :1, :1].copy()

        def function(x: Any, y: Any, z: Any, row: Any, column: Any) -> list[Any]:
            s = reduce_sum(x * y + z * row, axis=(2, 3))
            return [x * column + s, s, reduce_max(y * z, axis=(2, 3))]

        arrays = x, y, z, row, column
        found, variant = self.run(function, BENCH.device(4), *arrays)
        assert variant.turned == (0, 1)
        x, y, z, row, column = (a.astype(np.float64) for a in arrays)
        s = (x * y + z * row).sum((2, 3), keepdims=True)
        wants = [x * column + s, s, (y * z).max((2, 3), keepdims=True)]
        for got, want in zip(found, wants, strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)

    @pytest.mark.parametrize("most", [512, 128, 32])
    def test_blocks_of_too_few_threads_do_not_transpose(self, most: int) -> None:
        x = np.asfortranarray(rows_of("plain", (33, 2000)))
        (found,), variant = self.run(lambda x: softmax(x), limited(BENCH.device(4), most), x)
        assert variant.threads <= most and bool(variant.turned) is (most == 512)
        check(softmax, x, (1,), found)

    @pytest.mark.parametrize(
        ("shape", "multiprocessors"), [((31, 500), 1), ((64, 500), 9)], ids=["few rows", "few blocks"]
    )
    def test_rows_are_not_transposed_where_it_does_not_pay(
        self, shape: tuple[int, int], multiprocessors: int
    ) -> None:
        x = np.asfortranarray(rows_of("plain", shape))
        _, variant = self.run(lambda x: softmax(x), BENCH.device(multiprocessors), x)
        assert not variant.turned

    def test_larger_array_keeps_its_row_order(self) -> None:
        """A table that lies across, and is read again for each matrix of a stack."""
        x = np.random.default_rng(0).normal(size=(20, 40, 100)).astype(np.float32)
        table = np.ones((1, 100, 40), np.float32).transpose(0, 2, 1)
        _, variant = self.run(lambda x, t: reduce_sum(x * t, axis=(2,)), BENCH.device(4), x, table)
        assert not variant.turned and variant.lanes == 4

    @pytest.mark.parametrize("itemsize", [1, 2, 4])
    @pytest.mark.parametrize(("team", "across"), [(32, 8), (64, 8), (128, 8), (16, 16), (8, 32)])
    def test_transposed_elements_are_spread_over_all_banks(
        self, team: int, across: int, itemsize: int
    ) -> None:
        pitch, threads = row_pitch(team, across, itemsize), np.arange(32)
        words = (threads % across * pitch + threads // across) * itemsize // 4
        in_bank = [len(set(words[words % 32 == bank])) for bank in range(32)]
        assert max(in_bank) <= 4 // itemsize, "two elements of a word are stored one after the other"


MUTATIONS: dict[str, tuple[str, str]] = {
    "a removed barrier": (r"__syncthreads\(\);", ""),
    "a row too few": (r"other < p\.rows", "other + 1 < p.rows"),
    "the wrong row": (r"\.x \* (\d+) \+ beside", r".x * \1 + (beside ^ 1)"),
    "the wrong rows": (r"\(I\)blockIdx\.x \* (\d+) \+ beside", r"(I)blockIdx.x * (\1 - 1) + beside"),
    "an element too few": (r"at < p\.length", "at + 1 < p.length"),
    "an index off by one": (r"(s \* \d+ \+ )down", r"\1(down ^ 1)"),
    "a slot too far": (r"s \* (\d+) \+ down", r"s * (\1 + 1) + down"),
    "handed to another team": (r"there\[team", "there[(team ^ 1)"),
    "handed to another thread": (r"\+ lane\]", "+ (lane ^ 1)]"),
    "a pitch too short": (r"there\[(team|beside) \* (\d+)", r"there[\1 * (\2 - 8)"),
    "the totals of another team": (r"team \* (\d+) \+ w\]", r"(team ^ 1) * \1 + w]"),
    "a tile that some teams leave out": (r"tile < p\.length", "tile < end - 1"),
}


class TestMutations(mutations.Mutations):
    """In arrays that are transposed."""

    bench = BENCH
    programs: ClassVar = {
        "rows": (rows, (45, 300), 4),
        "rows of wide teams": (rows, (37, 1111), 4),
        "long rows": (lambda x: [log_sum(x), softmax(x)], (37, 2501), 4),
    }
    mutations = MUTATIONS
    tables: ClassVar = {"program": programs, "mutation": MUTATIONS}
    after = GENERATED

    def test_each_mutation_changes_some_kernel(self) -> None:
        """A pattern that stands nowhere would catch nothing."""
        texts = [text for program in self.programs for text in self.texts(program)]
        for name, (pattern, _) in self.mutations.items():
            assert any(mutations.places(pattern, text) for text in texts), name

    def truth(self, program: str) -> tuple[Any, Any, Any]:
        graph, x, wants = super().truth(program)
        return graph, np.asfortranarray(x), wants


#: What keeps loads of others' rows inside an array, and a mask that lets one too many pass.
MASKS = {
    "": (r"\A", ""),
    "a row too many": (r"other < p\.rows", "other <= p.rows"),
    "an element too many": (r"at < p\.length", "at <= p.length"),
}

#: Puts the input right before memory that cannot be read.
FENCED = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from test_turned import MASKS
from nvrtc_fence import fenced
from nvrtc_helpers import OnHost, call, traced
from nvrtc_texts import mutant
from mgb_cuda.testing.programs import check, softmax

x = fenced(np.random.default_rng(0).normal(size=(301, 45)).astype(np.float32)).T
pattern, into = MASKS[sys.argv[2]]
device = mutant(pattern, into, 0, 4)
graph = traced(softmax, x)
(got,) = call(OnHost(device).compile(graph).run, graph, [x])
check(softmax, x, (1,), got)
assert any("turning" in text for text in device.sources)
"""


class TestFenced:
    @pytest.mark.parametrize("mask", MASKS)
    def test_no_read_past_the_end_of_an_array(self, mask: str) -> None:
        command = [sys.executable, "-c", FENCED, str(Path(__file__).parent), mask]
        done = subprocess.run(command, capture_output=True, timeout=100)
        assert done.returncode == (-signal.SIGSEGV if mask else 0), done.stderr.decode()


class TestCompiled:
    @pytest.mark.skipif(compiler.missing() is not None, reason=str(compiler.missing()))
    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    @pytest.mark.parametrize(("length", "architecture"), [(200, 80), (1024, 90), (2048, 80), (8192, 100)])
    @pytest.mark.parametrize("function", [softmax, normalise], ids=lambda f: f.__name__)
    def test_transposed_rows_do_not_spill_registers(
        self, function: Any, length: int, architecture: int, dtype: str
    ) -> None:
        device, x = on_paper(architecture), like(dtype, (8192, length))
        unit = unit_of(BENCH, device, BENCH.traced(function, x))
        found = steps(unit.frame, [x.shape] * 2, [(x.itemsize, 8192 * x.itemsize)])
        choice = unit.choose(found)
        unit.fitting(choice, found, keep=False)
        assert choice.variant.turned
        for usage in device.usage:
            assert usage.stores == usage.loads == 0 and usage.registers <= MORE, usage
