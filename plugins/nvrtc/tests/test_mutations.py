"""The host finds wrong kernels: a removed barrier, a wrong mask, an index off by one must each be caught."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mgb.ir import Spec
from mgb.ops.reduce import reduce_max, reduce_min, reduce_sum
from mgb.ops.transcendental import exp
from mgb.tracing import graph_of
from mgb_conformance.drive import ConformanceError, Driver
from mgb_conformance.judge import judge, problem
from mgb_cuda import LaunchError, Properties
from mgb_cuda.testing.host import HostDevice, missing
from nvrtc_helpers import OnHost

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def rows(x: Any) -> list[Any]:
    """A softmax that shows its folds, and some that have no use for what nobody has loaded."""
    top = reduce_max(x, axis=(1,))
    e = exp(x - top)
    whole = reduce_sum(e, axis=(1,))
    return [e / whole, top, whole, reduce_sum(x * top, axis=(1,)), reduce_min(x, axis=(1,))]


def columns(x: Any) -> list[Any]:
    first = reduce_sum(x, axis=(0,))
    second = reduce_sum(x * (first * 0.0001), axis=(0,))
    return [x * second, first, second]


def row_sum(x: Any) -> Any:
    return reduce_sum(x * 2, axis=(1,))


def pieces(x: Any) -> Any:
    return x * 2 + 1


#: What is run, on arrays of this shape.
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "rows of a warp": (rows, (63, 100)),
    "rows of a block": (rows, (40, 1800)),
    "an odd row": (row_sum, (1, 5003)),
    "shared rows": (row_sum, (2, 530_000)),
    "columns": (columns, (65, 36)),
    "shared columns": (columns, (60_000, 12)),
    "pieces": (pieces, (5003,)),
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
    "a fold that starts wrong": (r"\(float\)0;", "(float)1;"),
}

#: Enough to share rows among more blocks than a warp has threads.
PROPERTIES = Properties("host", (9, 0), multiprocessors=32)


class Mutant(HostDevice):
    """Changes one place of each kernel before it is compiled."""

    def __init__(self, pattern: str, into: str, which: int) -> None:
        super().__init__(properties=PROPERTIES)
        self.pattern, self.into, self.which = re.compile(pattern), into, which

    def compile(self, source: str) -> bytes:
        head, cut, text = source.partition("typedef int I;")
        places = list(self.pattern.finditer(text))
        if self.which < len(places):
            place = places[self.which]
            text = text[: place.start()] + place.expand(self.into) + text[place.end() :]
        return super().compile(head + cut + text)


def places(pattern: str, source: str) -> int:
    return len(re.findall(pattern, source.partition("typedef int I;")[2]))


def sample(program: str) -> np.ndarray:
    """An array in which the place of each element matters: that of the largest is all over the rows."""
    _, shape = PROGRAMS[program]
    x = np.random.default_rng(5).uniform(0.5, 1, shape).astype(np.float32)
    if "columns" in program:
        return np.sort(x, axis=0)
    if x.ndim == 2:
        x *= 1 + np.arange(len(x), dtype=np.float32)[:, None] % 5
        x[::2].sort(axis=1)
    return x


def faults(program: str, device: HostDevice) -> Iterator[str]:
    """What is wrong with the results, warps run in either order."""
    function, _ = PROGRAMS[program]
    x = sample(program)
    graph = graph_of(function, Spec(x.shape, x.dtype))
    driver = Driver(OnHost(device))
    for device.reverse in (False, True):
        try:
            found = driver.run(graph, [x])
        except (ConformanceError, LaunchError) as error:
            yield str(error)
        else:
            yield from filter(None, (problem(g, w) for g, w in zip(found, judge(graph, [x]), strict=True)))


QUICK = ("rows of a block", "columns", "pieces")
TIERS = [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in PROGRAMS]


@pytest.mark.parametrize("program", TIERS)
class TestMutations:
    def test_the_kernel_itself_is_right(self, program: str) -> None:
        assert not list(faults(program, HostDevice(properties=PROPERTIES)))

    @pytest.mark.parametrize("mutation", MUTATIONS)
    def test_each_mutant_is_caught(self, program: str, mutation: str) -> None:
        device = HostDevice(properties=PROPERTIES)
        list(faults(program, device))
        count = max(places(MUTATIONS[mutation][0], source) for source in device.sources)
        if not count:
            pytest.skip(f"the kernel has no place for it: {MUTATIONS[mutation][0]}")
        missed = [k for k in range(count) if not any(faults(program, Mutant(*MUTATIONS[mutation], which=k)))]
        assert not missed, f"of {count} places these are not caught: {missed}\n{device.sources[-1]}"


#: Puts the input right before memory that cannot be read; a kernel that looks there ends the process.
FENCED = """
import ctypes, mmap, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from test_mutations import FENCED_MUTATIONS, PROGRAMS, PROPERTIES, Mutant, sample
from nvrtc_helpers import OnHost, call, traced
from mgb_cuda.testing.host import HostDevice

program, mutation = sys.argv[2:]
x = sample(program)
size = -(-x.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
memory = mmap.mmap(-1, size + mmap.PAGESIZE)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
libc = ctypes.CDLL(None)
assert libc.mprotect(ctypes.c_void_p(start + size), mmap.PAGESIZE, 0) == 0
first = (size - x.nbytes) // x.itemsize
fenced = np.frombuffer(memory, x.dtype, x.size, first * x.itemsize).reshape(x.shape)
fenced[...] = x
device = Mutant(*FENCED_MUTATIONS[mutation], which=0) if mutation else HostDevice(properties=PROPERTIES)
graph = traced(PROGRAMS[program][0], fenced)
kernel = OnHost(device).compile(graph)
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
    def test_nothing_is_read_past_the_end_of_an_array(self, program: str) -> None:
        assert self.run(program, "") == 0

    @pytest.mark.parametrize("mutation", FENCED_MUTATIONS)
    def test_the_fence_holds(self, mutation: str) -> None:
        assert self.run("rows of a warp", mutation) == -signal.SIGSEGV
