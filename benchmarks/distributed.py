"""Exchanges between processes: buckets beside the bare sum, the speed of several ranks, what overlap hides.

``python -m mgb.distributed.run -n 2 benchmarks/distributed.py`` needs ``mgb[mpich]``. Everything is timed in
turn within one run, minimum and median are printed. Processes of one machine exchange by its cores, which
leaves nothing to hide: ``--wire 0.2`` plays a network of 0.2 GB/s, and each exchange takes at least as long.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import mgb
import mgb.distributed as dist
import mgb.functional as F
import mgb.module as M
import mgb.optimizer as optim
import numpy as np
from mgb.autodiff import GradManager
from mgb.distributed import collective
from mgb.jit import trace
from mgb_mpi.communicator import MpiChannel

GRADIENTS = 42
MIB = 1 << 20


def play(bytes_per_second: float) -> None:
    """Let each exchange take as long as a network would, one after the other, and no time of a core."""
    start, free = MpiChannel.start, [0.0]

    class Played:
        def __init__(self, ticket: Any, nbytes: int) -> None:
            free[0] = self.end = max(time.perf_counter(), free[0]) + 20e-6 + nbytes / bytes_per_second
            self.ticket = ticket

        def test(self) -> bool:
            return self.ticket.test() and time.perf_counter() >= self.end

    def played(self: Any, what: Any, source: Any, target: Any) -> Played:
        array = source if target is None else target
        return Played(start(self, what, source, target), array.nbytes)

    MpiChannel.start = played  # type: ignore[method-assign]


def race(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Measure milliseconds of each, in turn."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for function in ways.values():
        function()
    for _ in range(rounds):
        for name, function in ways.items():
            dist.group_barrier()
            begin = time.perf_counter()
            function()
            times[name].append(1e3 * (time.perf_counter() - begin))
    return times


def told(*words: object) -> None:
    """Print, on rank 0."""
    if dist.get_rank() == 0:
        print(*words, flush=True)


def buckets(rounds: int) -> None:
    """Measure one bucket of 42 gradients, and 42 exchanges, beside the sum in place that MPI has."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD.Dup()
    for size in (4096, 65536, 400_000):
        grads = [mgb.tensor(np.ones(size, "f4")) for _ in range(GRADIENTS)]
        whole = np.zeros(GRADIENTS * size, "f4")
        ways = {
            "bare": lambda whole=whole: comm.Allreduce(MPI.IN_PLACE, whole),
            "one bucket": lambda grads=grads: collective.all_reduce_packed(
                *grads, group="world", number=GRADIENTS
            ),
            "one by one": lambda grads=grads: [collective.all_reduce_sum(g, group="world") for g in grads],
        }
        times = race(ways, rounds)
        for name, found in times.items():
            ratios = (f(found) / f(times["bare"]) for f in (min, statistics.median))
            told(
                f"{whole.nbytes / MIB:.1f} MiB, {name}: ratio to bare %.2f (minimum), %.2f (median)"
                % (*ratios,)
            )


def training(communicates: bool, overlaps: bool, rows: int, bucket: float) -> Callable[[], object]:
    """Return a compiled training step of 21 layers, each 384 wide."""
    os.environ["MGB_DISTRIBUTED_OVERLAP"] = str(int(overlaps))  # read when a program is compiled
    layers = [M.Linear(384, 384) for _ in range(GRADIENTS // 2)]
    params = [p for layer in layers for p in layer.parameters()]
    callback = dist.make_allreduce_cb("mean", bucket=int(bucket * MIB))
    gm = GradManager().attach(params, callbacks=callback if communicates else None)
    opt = optim.SGD(params, lr=1e-3)

    @trace
    def step(x: Any) -> Any:
        with gm:
            y = x
            for layer in layers:
                y = F.relu(layer(y)) * 0.5
            loss = (y * y).mean()
            gm.backward(loss)
            opt.step().clear_grad()
        return loss

    x = mgb.tensor(np.random.default_rng(dist.get_rank()).normal(size=(rows, 384)).astype("f4"))
    for _ in range(3):
        step(x).item()
    return lambda: step(x).numpy()


def overlap(rows: int, bucket: float, rounds: int) -> tuple[float, float, float]:
    """Measure how much of the communication the rest of the step hides: medians of milliseconds.

    Returns
    -------
    none, waits, overlaps : float
        A step without communication, and what it costs besides to wait for it and to overlap it.
    """
    ways = {
        name: training(name != "none", name == "overlaps", rows, bucket)
        for name in ("none", "waits", "overlaps")
    }
    times = race(ways, rounds)
    none, waits, overlaps = (np.array(times[name]) for name in ways)
    for name, function in (("minimum", np.min), ("median", np.median)):
        costs = function(waits) - function(none), function(overlaps) - function(none)
        told(f"{name} of {function(none):.1f} ms: {costs[0]:.1f} more to wait, {costs[1]:.1f} overlapped")
    costs = np.median(waits - none), np.median(overlaps - none)
    told(f"median within rounds: {100 * (1 - costs[1] / costs[0]):.0f}% of the waiting hidden")
    return float(np.median(none)), float(costs[0]), float(costs[1])


def speedup(rows: int, bucket: float, rounds: int) -> None:
    """Measure a batch by rank 0 alone, while others sleep, beside the same batch by all ranks, a part each.

    Time of the processor tells what it is where other programs want the cores as well: an exchange between
    processes of one machine is work, and what waits sleeps.
    """
    alone = training(False, False, rows, bucket)
    together = training(True, False, rows // dist.get_world_size(), bucket)
    spent: dict[str, list[float]] = {"alone": [], "together": []}

    def timed(name: str, step: Callable[[], object]) -> None:
        begin = time.process_time()
        step()
        spent[name].append(1e3 * (time.process_time() - begin))

    ways = {
        "alone": lambda: timed("alone", alone) if dist.get_rank() == 0 else None,
        "together": lambda: timed("together", together),
    }
    times = race(ways, rounds)
    for name, found in (("clock", times), ("processor", spent)):
        one, every = np.array(found["alone"] or [0]), np.array(found["together"])
        told(
            f"{rows} rows, {name}: rank 0 alone {one.min():.0f} ms, {dist.get_world_size()} ranks "
            f"{every.min():.0f} ms: {one.min() / every.min():.2f} times as fast (minimum), "
            f"{np.median(one) / np.median(every):.2f} (medians)"
        )


def fitted(rounds: int) -> tuple[float, float]:
    """Fit milliseconds of an empty exchange, and of a MiB more, between two: least squares of the ratios."""
    sizes, found = [2**k for k in range(10, 25, 2)], []
    for size in sizes:
        x = mgb.tensor(np.zeros(size // 4, "f4"))
        found.append(min(race({"x": lambda x=x: collective.all_reduce_sum(x, group="world")}, rounds)["x"]))
    rows = np.array([[1 / t, size / MIB / t] for size, t in zip(sizes, found, strict=True)])
    latency, per_mib = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)[0]
    worst = max(abs(rows @ [latency, per_mib] - 1))
    told(f"between two: {latency:.3f} ms and {per_mib:.2f} ms for each MiB, at worst {worst:.0%} off")
    return latency, per_mib


def predict(latency: float, per_mib: float, step: tuple[float, float, float], bucket: float) -> None:
    """Print what the model says of more ranks, each with cores of its own, as many rows on each.

    With n ranks an exchange takes ceil(log2 n) times the latency, and 2 (n - 1) / n times the bytes go over
    the wire of each. What a step of two that waits takes beyond that is work of the cores, as packing, and
    stays. Of all this the share that was hidden between two is hidden again, up to the time of the backward
    pass, which is two thirds of a step.
    """
    none, waits, overlaps = step
    size = GRADIENTS / 2 * 384 * 385 * 4 / MIB
    exchanges = math.ceil(size / bucket)
    own = waits - exchanges * latency - size * per_mib
    for n in (2, 8, 64, 1024):
        costs = own + exchanges * math.ceil(math.log2(n)) * latency + size * per_mib * 2 * (n - 1) / n
        seen = costs - min(max(0.0, 1 - overlaps / waits) * costs, none * 2 / 3)
        told(
            f"{n} ranks: a step of {none:.0f} ms takes {none + costs:.0f} ms where it waits and "
            f"{none + seen:.0f} ms overlapped, {none / (none + seen):.0%} of the speed of ranks alone"
        )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wire", type=float, default=0.0, metavar="GB_PER_SECOND", help="play a network")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--bucket", type=float, default=2.0, metavar="MIB")
    parser.add_argument("--rounds", type=int, default=25)
    given = parser.parse_args()
    if given.wire:
        play(1e9 * given.wire)
    dist.init_process_group()
    if not given.wire:
        buckets(given.rounds)
        speedup(given.rows * 4, given.bucket, given.rounds)
    step = overlap(given.rows, given.bucket, given.rounds)
    predict(*fitted(given.rounds), step, given.bucket)


if __name__ == "__main__":
    main()
