"""The host finds wrong kernels: a removed barrier, a wrong mask, an index off by one must each be caught."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from mgb.ops.reduce import reduce_sum
from mgb_cuda.testing import mutations
from mgb_cuda.testing.host import missing
from mgb_cuda.testing.mutations import columns, rows, tiers
from nvrtc_helpers import BENCH
from nvrtc_texts import GENERATED

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def row_sum(x: Any) -> Any:
    return reduce_sum(x * 2, axis=(1,))


def pieces(x: Any) -> Any:
    return x * 2 + 1


#: What is run, on arrays of this shape; on enough multiprocessors to share rows among more blocks than a warp
#: has threads.
PROGRAMS: dict[str, mutations.Program] = {
    "rows of a warp": (rows, (63, 100), 32),
    "rows of a block": (rows, (40, 1800), 32),
    "an odd row": (row_sum, (1, 5003), 32),
    "shared rows": (row_sum, (2, 530_000), 32),
    "columns": (columns, (65, 36), 32),
    "shared columns": (columns, (60_000, 12), 32),
    "pieces": (pieces, (5003,), 32),
}

#: What is changed, and into what; each place where the pattern stands is tried on its own.
MUTATIONS: dict[str, tuple[str, str]] = {
    "no barrier": (r"__syncthreads\(\);", ""),
    "a barrier for some": (r"__syncthreads\(\);", "if (threadIdx.x > 40) __syncthreads();"),
    "a shuffle for some": (r"(t\d_\d) = (\S.*from_lane.*);", r"if (threadIdx.x % 32 != 3) \1 = \2;"),
    "the wrong lane": (r"away = (\d+);", r"away = \1 / 2;"),
    "a lane too many": (r"at \+ v < end\) p\.y", "at + v <= end) p.y"),
    "a lane too few": (r"at \+ v < end", "at + v + 1 < end"),
    "vectors past the end": (r"if \(at \+ (\d) <= end\) store", r"if (at < end) store"),
    "elements left out": (r"if \(at < end\)", "if (at + 4 < end)"),
    "rows past the end": (r"(x \* (?!1 )\d+ \+ team\) \* \d;\n +const bool live = mine) < p", r"\1 <= p"),
    "rows left out": (r"mine < p\.rows", "mine + 4 < p.rows"),
    "the wrong place": (r"const I at = (.*);", r"const I at = \1 + 4;"),
    "a slot twice": (r"\bs \* (\d+)", r"s / 2 * \1"),
    "a warp left out": (r"w = 1; w", "w = 2; w"),
    "a thread left out": (r"r < (\d+);", r"r < \1 - 1;"),
    "a chunk left out": (r"c < p\.chunks", "c + 1 < p.chunks"),
    "chunks that overlap": (r"blockIdx\.y \* p\.chunk\b", "blockIdx.y * (p.chunk - 16)"),
    "rows that overlap": (r"(const I b\d = i\d) \* p\.s0_0", r"\1 * 4"),
    "the wrong place in shared memory": (r"m0\[lane / 32\]", "m0[0]"),
    "a fold that starts wrong": (r"\(float\)0x0\.0p\+0f;", "(float)1;"),
}

TIERS = tiers(PROGRAMS, quick=("rows of a block", "columns", "pieces"))


class TestMutations(mutations.Mutations):
    bench = BENCH
    programs, mutations, after = PROGRAMS, MUTATIONS, GENERATED
    tables: ClassVar = {"program": TIERS, "mutation": MUTATIONS}


#: Puts the input right before memory that cannot be read; a kernel that looks there ends the process.
FENCED = """
import ctypes, mmap, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from test_mutations import FENCED_MUTATIONS, PROGRAMS
from mgb_cuda.testing.mutations import sample
from nvrtc_helpers import BENCH, call
from nvrtc_texts import mutant

program, mutation = sys.argv[2:]
function, shape, multiprocessors = PROGRAMS[program]
x = sample(program, shape)
size = -(-x.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
memory = mmap.mmap(-1, size + mmap.PAGESIZE)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
libc = ctypes.CDLL(None)
assert libc.mprotect(ctypes.c_void_p(start + size), mmap.PAGESIZE, 0) == 0
first = (size - x.nbytes) // x.itemsize
fenced = np.frombuffer(memory, x.dtype, x.size, first * x.itemsize).reshape(x.shape)
fenced[...] = x
device = BENCH.device(multiprocessors)
if mutation:
    device = mutant(*FENCED_MUTATIONS[mutation], which=0, multiprocessors=multiprocessors)
graph = BENCH.traced(function, fenced)
kernel = BENCH.here(device).compile(graph)
got, want = call(kernel.run, graph, [fenced]), call(kernel.run, graph, [x])
assert all(np.allclose(g, w, rtol=1e-5) for g, w in zip(got, want))
"""

FENCED_MUTATIONS = {
    "slots past the end": (r"if \(at < end\)", "if (true)"),
    "rows past the end": (r"const I row = live \? mine : 0;", "const I row = mine + 1;"),
}


class TestFenced:
    def run(self, program: str, mutation: str) -> int:
        command = [sys.executable, "-c", FENCED, str(Path(__file__).parent), program, mutation]
        return subprocess.run(command, capture_output=True, timeout=100).returncode

    @pytest.mark.parametrize("program", TIERS)
    def test_no_read_past_the_end_of_an_array(self, program: str) -> None:
        assert self.run(program, "") == 0

    @pytest.mark.parametrize("mutation", FENCED_MUTATIONS)
    def test_fence_catches_out_of_bounds_reads(self, mutation: str) -> None:
        assert self.run("rows of a warp", mutation) == -signal.SIGSEGV
