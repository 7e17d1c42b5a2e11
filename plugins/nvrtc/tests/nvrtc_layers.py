"""The layers of verification that need no GPU, each as a function: it raises where something is wrong.

| layer | what it sees |
| --- | --- |
| host | results of the very text, run by the host: also alignment, masks, barriers, either order of blocks |
| device | the instructions of the half of the prelude that the host does not run |
| image | names and bounds in the machine code, against what is launched |
| budget | what the machine code costs |
| stub | what reaches a driver: streams, contexts, parameters |
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mgb.ops.primitives import where
from mgb.ops.reduce import reduce_max, reduce_min, reduce_sum
from mgb_conformance.cases import of
from mgb_conformance.judge import judge, problem
from mgb_cuda import Properties
from mgb_cuda.generated import usual
from mgb_cuda.testing import stub
from mgb_cuda.testing.bench import call
from mgb_cuda.testing.host import HostDevice
from mgb_cuda.testing.ledgers import Ledgers, OnScales
from mgb_cuda.testing.programs import log_sum, normalise, softmax
from mgb_cuda.testing.table import CASES
from mgb_nvrtc import compiler
from mgb_nvrtc.backend import Toolchain
from mgb_nvrtc.source import prelude
from nvrtc_fence import fenced
from nvrtc_helpers import BENCH

#: What a program computes, of arrays of which shapes, on how many multiprocessors; one that needs clusters
#: is on a GPU that has them.
Program = tuple[Callable[..., Any], tuple[tuple[int, ...], ...], int]
WITH_CLUSTERS = Properties("host", (9, 0), 4)

PROGRAMS: dict[str, Program] = {
    "pieces": (lambda x: x * 2 + 1, ((5003,),), 4),
    "askew": (lambda x: x * 2 + 1, ((5004,),), 4),
    "channels": (lambda x, c: x * c, ((16, 5, 49), (5, 1)), 4),
    "rows": (lambda x: [softmax(x), reduce_max(x, axis=(1,)), reduce_min(x, axis=(1,))], ((41, 1800),), 32),
    "short rows": (softmax, ((41, 100),), 4),
    "odd rows": (normalise, ((44, 1111),), 4),
    "long sums": (log_sum, ((6, 40_000),), 1),
    "long norms": (normalise, ((6, 40_000),), 1),
    "shared sums": (lambda x: [log_sum(x), reduce_sum(x, axis=(1,))], ((3, 60_001),), 16),
    "shared norms": (normalise, ((2, 60_008),), 16),
    "clusters": (softmax, ((3, 40_000),), 4),
    "columns": (lambda x: reduce_sum(x * 2, axis=(0,)), ((300, 300),), 4),
    "selected": (lambda x: where(x == x, x, reduce_max(x, axis=(1,))), ((70, 40),), 4),
}


def sample(shape: tuple[int, ...], special: bool) -> np.ndarray:
    """Rising rows, so that a maximum moves; some have numbers that are none."""
    x = np.random.default_rng(3).normal(size=shape).astype(np.float32) * 3 + 2
    if x.ndim == 2 and special:
        x.sort(axis=1)
        x[1, 5], x[2, 7], x[0, : x.shape[1] // 2] = np.nan, -np.inf, -np.inf
    return x


def guarded(x: np.ndarray) -> np.ndarray:
    """A copy at a multiple of 16 bytes, before numbers that nobody writes."""
    memory = np.full(x.size + 16, 77, x.dtype)
    found: np.ndarray = memory[: x.size].reshape(x.shape)
    found[...] = x
    return found


def host(name: str) -> None:
    """Results of a program, before memory that cannot be read and at multiples of 16 bytes."""
    function, shapes, multiprocessors = PROGRAMS[name]
    arrays = [sample(s, len(shapes) == 1 and s[0] > 2) for s in shapes]
    graph = of(function, *arrays)
    wants = judge(graph, arrays)
    device = HostDevice(properties=WITH_CLUSTERS) if name == "clusters" else BENCH.device(multiprocessors)
    kernel = BENCH.here(device).compile(BENCH.traced(function, *arrays))
    for device.reverse in (False, True):
        for place in (fenced, guarded):
            given = [place(x) for x in arrays]
            if name == "askew":
                given = [np.concatenate([x[:1], x])[1:] for x in given]
            out = [place(np.full(o.spec.shape, 77, o.spec.dtype)) for o in graph.outputs]
            kernel.run(*given, out=out)
            for found, want in zip(out, wants, strict=True):
                wrong = problem(found, want)
                assert wrong is None, wrong
                assert place is fenced or (found.base[-16:] == 77).all(), "written beyond the end"


def joined(_: str = "") -> None:
    """Updates of parameters of different sizes that share a launch."""
    random = np.random.default_rng(0)
    arrays = [random.normal(size=n).astype(np.float32) for n in (5, 2000, 17, 1024, 4096)]
    device = BENCH.device(4)
    backend = BENCH.here(device)
    kernel = backend.compile(BENCH.traced(lambda p: p * 3, arrays[0]))
    run = backend.join([kernel] * len(arrays)).run
    out = [np.zeros_like(a) for a in arrays]
    run(*arrays, out=out)
    for found, a in zip(out, arrays, strict=True):
        np.testing.assert_array_equal(found, a * 3)


def chained(_: str = "") -> None:
    """Two kernels in a row, called again with other arrays."""
    x = np.arange(10, dtype=np.float32)
    backend = BENCH.here(BENCH.device(4))
    kernel = backend.compile(BENCH.traced(lambda x: x * 3, x))
    run = backend.chain([kernel, kernel], [([0], [1]), ([1], [2])], range(3))
    for step in range(3):
        arrays = [x + step, np.zeros_like(x), np.zeros_like(x)]
        run(arrays)
        np.testing.assert_array_equal(arrays[2], (x + step) * 9)


#: Functions of the half of the prelude that the host does not run: the type of what each is given, and the
#: instructions that make its result, in order.
DEVICE: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "from_f16(x)": ("uint16_t", "float", ("cvt.f32.f16",)),
    "to_f16(x)": ("float", "uint16_t", ("cvt.rn.f16.f32",)),
    "from_bf16(x)": ("uint16_t", "float", ("shl.b32",)),
    "to_bf16(x)": ("float", "uint16_t", ("cvt.rn.bf16.f32",)),
    "to_odd(x)": ("double", "float", ("cvt.rz.f32.f64", "or.b32")),
    "to_odd((int32_t)x)": ("int32_t", "float", ("cvt.rz.f32.s32", "or.b32")),
    "to_odd((uint32_t)x)": ("uint32_t", "float", ("cvt.rz.f32.u32", "or.b32")),
    "to_odd((int64_t)x)": ("int64_t", "float", ("cvt.rz.f32.s64", "or.b32")),
    "to_odd((uint64_t)x)": ("uint64_t", "float", ("cvt.rz.f32.u64", "or.b32")),
    "maximum<float>(x, 2)": ("float", "float", ("max.NaN.f32",)),
    "minimum<float>(x, 2)": ("float", "float", ("min.NaN.f32",)),
    "exp_term(x)": ("float", "float", ("mul", "0f3FB8AA3B", "ex2.approx.ftz.f32")),
    "x == 0 ? INFINITY : x": ("float", "float", ("0f7F800000",)),
    "*in_block(a, b != a)": ("float", "float", ("mapa.u64",)),
    "(cluster_sync(), x)": (
        "float",
        "float",
        ("barrier.cluster.arrive.release.aligned", "barrier.cluster.wait.acquire.aligned"),
    ),
    "x == 0 ? NAN : x": ("float", "float", ("0f7FFFFFFF",)),
}


def device(_: str = "") -> None:
    """Each function as PTX."""
    kernels = [
        f'extern "C" __global__ void mgb_{k}(const {given} *a, {made} *b) '
        f"{{ const {given} x = *a; *b = {text}; }}"
        for k, (text, (given, made, _)) in enumerate(DEVICE.items())
    ]
    assembly = compiler.compile_source(prelude() + "\n".join(kernels), "compute_90")[0].decode()
    bodies = re.split(r"\.entry mgb_\d+", assembly)[1:]
    for body, (text, (_given, _made, wanted)) in zip(bodies, DEVICE.items(), strict=True):
        at = 0
        for word in wanted:
            at = body.find(word, at) + 1
            assert at, f"{text} is not made by {wanted}:\n{body}"
        assert "to_odd" not in text or "cvt.rn" not in body, f"{text} rounds to nearest:\n{body}"


def image(case: str) -> None:
    """Names and bounds of the kernels of a case."""
    scales = OnScales(Toolchain(), 90)
    graph = BENCH.traced(CASES[case].function, *arrays_of(case))
    unit = BENCH.given(scales).load(graph, b"").state.unit()
    found, choice = usual(unit)
    unit.fitting(choice, found, keep=False)


def arrays_of(case: str) -> list[Any]:
    from mgb_cuda.testing.compiled import like

    return [like(CASES[case].dtype, shape) for shape in CASES[case].shapes]


class _Weighed(Ledgers):
    bench, toolchain = BENCH, Toolchain()


def budget(case: str) -> None:
    """Check the cost of the kernels of a case."""
    weighed = _Weighed()
    found = weighed.ledger(CASES[case], 90)
    assert not weighed.broken(CASES[case], found, 90), found
    assert all(e.loads == 16 for e in found.entries if e.under_way) or "50257" in case, found


STUB = """
import sys, threading
sys.path.insert(0, {folder!r})
{before}
import numpy as np
from mgb_cuda.testing.stub import Notes, StubArrays
from nvrtc_helpers import BENCH
notes, arrays = Notes(), StubArrays()
backend = BENCH.given(BENCH.driver(arrays))
x = np.zeros(100, np.float32)
kernel = backend.compile(BENCH.traced(lambda x: x * 2 + 1, x))
run = backend.chain([kernel, kernel], [([0], [1]), ([1], [2])], range(3))
for arrays.current in (0x6000, 0x7000, 0x6000):
    notes.watch(8)
    given = [x, x.copy(), x.copy()]
    run(given)
    found = notes.launches()
    assert [n["stream"] for n in found] == [arrays.current] * 2, found
    first = [int.from_bytes(n["parameters"][:8], "little") for n in found]
    assert first == [arrays.address(a) for a in given[:2]], (first, given)
    assert all(n["name"] == "mgb_0" and n["block"][0] == 256 for n in found), found
notes.watch(8)
thread = threading.Thread(target=run, args=([x, x.copy(), x.copy()],))
thread.start()
thread.join()
found = notes.launches()
assert len(found) == 2 and all(n["context"] for n in found), "a thread that no context was current in"
"""


def on_stub(before: str = "") -> None:
    """Check the calls that reach a driver, in a process of its own, which begins with `before`."""
    with tempfile.TemporaryDirectory() as folder:
        stub.build(Path(folder))
        stub.run(Path(folder), STUB.format(folder=str(Path(__file__).parent), before=before), MGB_CACHE="0")


LAYERS: dict[str, Callable[[str], None]] = {
    "host": host, "joined": joined, "chained": chained, "device": device, "image": image, "budget": budget,
    "stub": on_stub,
}  # fmt: skip

__all__ = ["LAYERS", "PROGRAMS", "call"]
