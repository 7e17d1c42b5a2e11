"""Memory against repeated steps, for both ways to compute values again.

``python benchmarks/memory_curves.py`` makes training steps of 50 layers. Each method is given a series of
budgets; what it makes of one is a program, whose peak and steps are counted. Its calls are timed in turn with
those of all others, and their results compared bit by bit with the plain program's. It prints a table; with
``--out`` it writes ``memory.json``, ``memory.md`` and a plot for each network.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mgb import Tensor, module, optimizer
from mgb.autodiff import GradManager
from mgb.errors import MemoryBudgetError
from mgb.executor import DTRConfig, SublinearMemoryConfig
from mgb.executor.remat.peak import memory_report
from mgb.jit import trace
from mgb_bench import plots

LAYERS = 50

#: Budgets, as shares of the plain peak.
SHARES = (0.8, 0.6, 0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15, 0.1)

MIB = 1 << 20


@dataclass(frozen=True)
class Point:
    """The result of a method for a budget.

    Attributes
    ----------
    method : str
    budget : float
        Share of the plain peak that was requested; 0: as little as possible.
    peak : int
        Bytes of a call, inputs apart.
    share : float
        Of the plain peak.
    steps : float
        Steps that run, over the steps of the plain program.
    seconds : float
        Median time of a call.
    slower : float
        Median over the rounds of the time of a call over that of the plain program.
    """

    method: str
    budget: float
    peak: int
    share: float
    steps: float
    seconds: float = 0.0
    slower: float = 0.0


# networks


def mlp() -> tuple[list[module.Module], tuple[int, ...]]:
    """Make linear layers of one width with ReLU, and a batch."""
    parts = [part for _ in range(LAYERS) for part in (module.Linear(128, 128), module.ReLU())]
    return parts, (4096, 128)


def conv() -> tuple[list[module.Module], tuple[int, ...]]:
    """Make convolutions with batch norm and ReLU, and a batch of images."""
    layer = (lambda: module.Conv2d(8, 8, 3, padding=1), lambda: module.BatchNorm2d(8), module.ReLU)
    return [make() for _ in range(LAYERS) for make in layer], (16, 8, 64, 64)


NETWORKS = {"mlp": mlp, "conv": conv}


def training_step(network: str, **options: Any) -> tuple[Any, Tensor]:
    """Return a traced step of SGD with momentum from fixed parameters, and a batch."""
    draw = np.random.default_rng(0)
    parts, shape = NETWORKS[network]()
    net = module.Sequential(*parts)
    for p in net.parameters():
        p._reset(Tensor(draw.standard_normal(p.shape) * 0.1, dtype="float32"))
    sgd = optimizer.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    manager = GradManager().attach(net.parameters())

    @trace(without_host=True, symbolic=True, **options)
    def step(x: Tensor) -> Tensor:
        with manager:
            loss = (net(x) ** 2).mean()
            manager.backward(loss)
        sgd.step().clear_grad()
        return loss

    return step, Tensor(draw.standard_normal(shape), dtype="float32")


# curves


def report_of(step: Any, x: Tensor) -> Any:
    """Return the memory report of the program of a call, which is made."""
    step(x)
    return memory_report(step.variants()[0].programs[0])


def series(network: str) -> dict[Point, Callable[[], Any]]:
    """Return the plain program and what the methods make of it, each with a call."""
    step, x = training_step(network)
    plain = report_of(step, x)
    found: dict[Point, Callable[[], Any]] = {}

    def add(method: str, budget: float, **options: Any) -> None:
        step, x = training_step(network, **options)
        report = report_of(step, x)
        peak, ran = report.peak, (report.steps + report.again) / plain.steps
        point = Point(method, budget, peak, peak / plain.peak, ran)
        known = {(p.method, p.peak, p.steps) for p in found}
        if (method, peak, ran) not in known:
            found[point] = lambda: step(x)

    add("plain", 1.0)
    for share in (*SHARES, 0.0):
        bound = int(share * plain.peak / MIB)
        config = SublinearMemoryConfig(thresh_nr_try=40, lb_memory_mb=bound)
        add("sublinear", share, sublinear_memory_config=config)
    search = SublinearMemoryConfig(genetic_nr_iter=30)
    add("sublinear, genetic", 0.0, sublinear_memory_config=search)
    for share in SHARES:
        try:
            add("DTR", share, dtr_config=DTRConfig(int(share * plain.peak), evictee_minimum_size=1 << 16))
        except MemoryBudgetError as error:
            smallest = DTRConfig(error.smallest, evictee_minimum_size=1 << 16)
            add("DTR", error.smallest / plain.peak, dtr_config=smallest)
            break
    return found


def timed(found: Mapping[Point, Callable[[], Any]], rounds: int) -> list[Point]:
    """Return the points with the time of a call, one call of each in each round."""
    losses = {point: [call().numpy() for _ in range(2)] for point, call in found.items()}
    wanted = next(iter(losses.values()))
    assert all(
        a.tobytes() == b.tobytes() for got in losses.values() for a, b in zip(got, wanted, strict=True)
    )
    samples: dict[Point, list[float]] = {point: [] for point in found}
    for _ in range(rounds):
        for point, call in found.items():
            start = time.perf_counter()
            call().numpy()
            samples[point].append(time.perf_counter() - start)
    plain = next(iter(samples.values()))
    return [
        Point(
            **asdict(point)
            | {
                "seconds": statistics.median(seconds),
                "slower": statistics.median(s / p for s, p in zip(seconds, plain, strict=True)),
            }
        )
        for point, seconds in samples.items()
    ]


# the report


def table(points: Sequence[Point]) -> str:
    """Return the figures as Markdown."""
    rows = ["| method | asked for | peak | of the plain peak | steps run | time of a call |"]
    rows.append("| --- | ---: | ---: | ---: | ---: | ---: |")
    for p in points:
        asked = f"{p.budget:.0%}" if p.budget else "least"
        cells = (f"{p.peak / MIB:.1f} MiB", f"{p.share:.1%}", f"{p.steps:.2f} x", f"{p.slower:.2f} x")
        rows.append(f"| {p.method} | {asked} | {' | '.join(cells)} |")
    return "\n".join(rows)


def plot(network: str, points: Sequence[Point]) -> str:
    """Return both curves, as SVG."""
    names = [name for name in ("sublinear", "DTR") if any(p.method == name for p in points)]
    curves = {n: sorted((p.steps, 100 * p.share) for p in points if p.method == n) for n in names}
    most = max(p.steps for p in points)
    marks = {mark: f"{mark:g} x" for mark in (1, 1.2, 1.5, 2, 3, 4, 6, 8) if mark < 1.1 * most}
    return plots.lines(
        f"{network}, {LAYERS} layers: peak over steps run", curves, marks, "% of the plain peak"
    )


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="a folder for memory.json, memory.md and the plots")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    arguments = parser.parse_args()
    found = {network: timed(series(network), arguments.rounds) for network in arguments.networks}
    for network, points in found.items():
        print(f"\n{network}, {LAYERS} layers\n\n{table(points)}")
    if arguments.out is not None:
        write(arguments.out, found)


def write(folder: Path, found: Mapping[str, Sequence[Point]]) -> None:
    """Write the figures, a page, and the plots."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {network: [asdict(p) for p in points] for network, points in found.items()}
    (folder / "memory.json").write_text(json.dumps(data, indent=1) + "\n")
    parts = [
        "# Memory against repeated steps",
        f"Training steps of {LAYERS} layers, by `python benchmarks/memory_curves.py --out docs/benchmarks`."
        " The plain program runs each step once; peaks are of a call, its inputs apart; times are medians of"
        " rounds in which each program is called once. The results of all programs are equal bit by bit.",
    ]
    for network, points in found.items():
        (folder / f"memory_{network}.svg").write_text(plot(network, points) + "\n")
        parts += [f"## {network}", f"![{network}](memory_{network}.svg)", table(points)]
    (folder / "memory.md").write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
