"""Kernels in a row get the very parameters that each of them gets alone, on the stream of the call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mgb.ops.reduce import reduce_sum
from mgb_cuda import Properties
from mgb_cuda.chain import Chain
from mgb_cuda.testing import host, stub
from mgb_nvrtc import compiler
from nvrtc_helpers import OnHost, traced
from test_launch_graphs import run as on_stub

TABLE = np.arange(12, dtype=np.float32).reshape(3, 4)


class Noting(host.HostDevice):
    """Keeps the grid and the parameters of each launch, as long as `sizes` says."""

    def __init__(self) -> None:
        super().__init__(properties=Properties("host", (9, 0), 64))
        self.noted: list[tuple[Any, bytes]] = []
        self.sizes: list[int] = []
        self._memory = np.zeros(1 << 20, np.uint8)

    def launcher(self, function: Any, grid: tuple[int, int], threads: int) -> Callable[[int, int], None]:
        launch = super().launcher(function, grid, threads)

        def run(stream: int, table: int) -> None:
            first = ctypes.c_void_p.from_address(table).value
            size = self.sizes[len(self.noted) % len(self.sizes)] if self.sizes else 0
            self.noted.append((grid, ctypes.string_at(first, size)))
            launch(stream, table)

        return run

    def scratch(self, nbytes: int) -> tuple[int, object]:
        """The same each time, so that its addresses can be compared."""
        return self._memory.ctypes.data // 256 * 256 + 256, self._memory


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that begins at a multiple of 64 bytes."""
    raw = np.empty(array.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.mark.skipif(host.missing() is not None, reason=str(host.missing()))
class TestParameters:
    """Of a kernel, one with a constant, two launches that share scratch memory, and one that reads all."""

    def kernels(self, device: Noting) -> tuple[list[Any], list[Any], list[np.ndarray]]:
        """The units, their wiring, and arrays."""
        backend = OnHost(device)
        small, long = np.zeros((3, 4), np.float32), np.zeros((2, 60_000), np.float32)
        graphs = [
            traced(lambda x, y: x * y + 1, small, small),
            traced(lambda x: x + TABLE, small),
            traced(lambda x: x - reduce_sum(x, axis=(1,)), long),
            traced(lambda x, y: [x - y, x * 2], small, small),
        ]
        wiring = [([0, 1], [3]), ([3], [4]), ([2], [5]), ([4, 0], [6, 7])]
        shapes = [small.shape] * 2 + [long.shape] + [small.shape] * 2 + [long.shape] + [small.shape] * 2
        random = np.random.default_rng(0)
        arrays = [aligned(random.normal(size=s).astype(np.float32)) for s in shapes]
        return [backend.compile(g).state.unit() for g in graphs], wiring, arrays

    @pytest.mark.parametrize("launch_graph", [None, False])
    def test_chain_parameters_match_separate_kernels(self, launch_graph: bool | None) -> None:
        device = Noting()
        units, wiring, arrays = self.kernels(device)
        chain = Chain(lambda arrays: units, wiring, [0, 1, 2], launch_graph)
        chain.run(arrays)
        plans = [next(iter(u.plans.values())) for u in units]
        device.sizes = [len(p.content) for p in plans for _ in p.starts]
        assert len(device.sizes) == 5 and any(p.scratch for p in plans)
        for k in (None, *range(len(arrays)), None, 0):  # one array after the other is another one
            if k is not None:
                arrays[k] = aligned(arrays[k])
            notes = []
            for run in (lambda: chain.run(arrays), lambda: self.one_by_one(units, wiring, arrays)):
                device.noted.clear()
                run()
                notes.append(list(device.noted))
            assert notes[0] == notes[1] and len(notes[0]) == 5

    def one_by_one(self, units: list[Any], wiring: list[Any], arrays: list[np.ndarray]) -> None:
        for unit, (reads, writes) in zip(units, wiring, strict=True):
            unit.run(*(arrays[i] for i in reads), out=[arrays[i] for i in writes])

    def test_empty_arrays_launch_nothing(self) -> None:
        device, x = Noting(), np.zeros((0, 4), np.float32)
        unit = OnHost(device).compile(traced(lambda x: x * 2 + 1, np.zeros((3, 4), np.float32))).state.unit()
        chain = Chain(lambda arrays: [unit] * 2, [([0], [1]), ([1], [2])], [0])
        for _ in range(2):
            chain.run([x, x.copy(), x.copy()])
        assert not device.noted


MISSING = compiler.missing() or stub.missing()


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_each_call_uses_the_current_stream(stub_folder: Path) -> None:
    """More streams than launches are kept ready for, the null stream among them."""
    script = """
f, x = trace(step, cuda_graph=False), array()
f(x)
streams, found = [cupy.cuda.Stream.null, *(cupy.cuda.Stream() for _ in range(20))], []
for stream in 2 * streams:
    with stream:
        found.append([n[-1] for n in call(f, x)["launches"]] == 5 * [stream.ptr])
print(json.dumps(found))
"""
    assert on_stub(stub_folder, script) == [True] * 42
