"""The cost of a call on the host: Python and the calls of the driver, for kernels alone and as a graph.

``python -m mgb_cuda.testing.host_cost`` on a GPU; with ``--stub`` on a driver that does nothing: what is left
is ours. Ways take turns, and one of them is a call of the driver for a launch that is prepared.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import timeit
from collections.abc import Callable
from operator import attrgetter
from time import process_time
from typing import Any

import numpy as np

from ..packing import Packet


def costs(
    backend: Any, traced: Callable[..., Any], asarray: Callable[..., Any]
) -> dict[str, tuple[float, float]]:
    """Measure microseconds of the processor for a call of one kernel, of ten, of a graph: least and median.

    As in a program, the strides of what no kernel writes alone are looked at.
    """
    x = np.zeros(1000, np.float32)
    kernel = backend.compile(traced(lambda x: x * 2 + 1, x))
    places = [([k], [k + 1]) for k in range(10)]
    given = [asarray(x.copy()) for _ in range(11)]
    one = backend.chain([kernel], places[:1], [0], False)
    each, graph = (backend.chain([kernel] * 10, places, [0], way) for way in (False, True))
    two = given[:2]
    plan, pointers, _ = kernel.state.unit(two).prepare(two[:1], two[1:])
    packet = Packet(plan.content, plan.places)
    plan.pack(packet.buffer, 0, *pointers)
    device = kernel.state.unit(two).device
    raw = device.sequence(plan.starts, [packet.table])
    stream = device.stream()
    ways = {
        "a launch that is prepared": lambda: raw(stream),
        "one kernel": lambda: one(two),
        "ten": lambda: each(given),
        "ten as a graph": lambda: graph(given),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            way()
            found[name].append(1e6 * timeit.timeit(way, number=TIMES, timer=process_time) / TIMES)
    return {name: (min(times), statistics.median(times)) for name, times in found.items()}


#: How often each way has its turn, and calls in a turn.
ROUNDS, TIMES = 21, 1000


class Placed(np.ndarray):  # type: ignore[type-arg]
    """An array that knows where it is."""

    place: int


def _placed(array: Any) -> Placed:
    found = array.view(Placed)
    found.place = array.ctypes.data
    return found  # type: ignore[no-any-return]


def main() -> int:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m mgb_cuda.testing.host_cost", description=__doc__)
    parser.add_argument(
        "--stub", action="store_true", help="LD_LIBRARY_PATH has the driver that does nothing"
    )
    given = parser.parse_args()
    from mgb_nvrtc.backend import Generated, Nvrtc, Toolchain

    from ..driver import CudaDevice
    from .bench import OnDevice, traced

    backend: Any = Nvrtc()
    asarray: Callable[..., Any] = np.asarray
    if given.stub:
        from .stub import StubArrays

        class Places(StubArrays):
            address = staticmethod(attrgetter("place"))  # as fast as CuPy's

        class OnStub(OnDevice, Generated):  # type: ignore[misc]
            name, traits = "on_stub", Nvrtc.traits

        backend = OnStub(CudaDevice(0, Toolchain(), Places()))
        asarray = _placed
    else:
        import cupy

        asarray = cupy.asarray
    found = costs(backend, lambda f, *xs: traced(f, xs, Nvrtc.traits), asarray)
    for name, (least, median) in found.items():
        print(f"{name}: {least:.2f} us, median {median:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
