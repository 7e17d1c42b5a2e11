"""Training loops that nobody decorated: eager, with `mgb.jit.auto`, with `@trace`.

``python benchmarks/auto_jit.py`` trains networks in turns, one step each way. It prints the median time of a
step, the speed-up over eager, which share of the speed-up of `@trace` is reached, and by how much losses
differ; before that, what a deferred op costs: the time of a chain of them less that of its compiled program.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import mgb
import numpy as np
from mgb import optimizer
from mgb.autodiff import GradManager
from mgb.data import batches, load_digits
from mgb.functional import nn
from mgb.jit import auto, trace
from mgb.module import Module
from mgb.tools.demo import DigitsNet
from mgb_bench.models.mgb_step import build
from mgb_bench.models.workload import WORKLOADS

#: Steps before the first that counts: each way records, or waits, and compiles.
WARM = 6


@dataclass
class Way:
    """One way to train: a step that gives the loss, and what became of it."""

    step: Callable[[Any, Any], Any]
    around: Callable[[], Any]
    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def run(self, data: Any, label: Any) -> None:
        """Take one step and read the loss."""
        start = time.perf_counter()
        with self.around():
            self.losses.append(self.step(mgb.tensor(data), mgb.tensor(label)).item())
        self.seconds.append(time.perf_counter() - start)

    def median(self) -> float:
        """Of the steps after the first ones."""
        return statistics.median(self.seconds[WARM:])

    def least(self) -> float:
        """Likewise."""
        return min(self.seconds[WARM:])


def digits() -> Module:
    """The network of ``mgb demo``."""
    mgb.random.seed(7)
    model = DigitsNet()
    model.train()
    return model


def step_of(model: Module) -> Callable[[Any, Any], Any]:
    """One training step with Adam."""
    adam = optimizer.Adam(model.parameters(), lr=1e-3)
    manager = GradManager().attach(model.parameters())

    def step(data: Any, label: Any) -> Any:
        with manager:
            loss = nn.cross_entropy(model(data), label)
            manager.backward(loss)
            adam.step().clear_grad()
        return loss

    return step


def ways_of(make: Callable[[], Module]) -> dict[str, Way]:
    """Each with a network of its own."""
    return {
        "eager": Way(step_of(make()), nullcontext),
        "auto": Way(step_of(make()), auto),
        "@trace": Way(trace(step_of(make())), nullcontext),
        "@trace(without_host=True)": Way(trace(step_of(make()), without_host=True), nullcontext),
    }


def feed(name: str, steps: int) -> list[tuple[Any, Any]]:
    """Batches."""
    if name == "digits":
        images, labels, *_ = load_digits()
        epochs = (
            pair for epoch in range(1 + steps // 20) for pair in batches(images, labels, 64, seed=epoch)
        )
        return [pair for pair, _ in zip(epochs, range(steps), strict=False)]
    return [WORKLOADS[name].data()] * steps


def overhead(ops: int = 300, rounds: int = 60) -> float:
    """Seconds for each of `ops` deferred small ops, that of their program taken off."""
    x = mgb.tensor(np.ones(4, np.float32))
    session = auto(after=1)

    def chain() -> Any:
        y = x
        for _ in range(ops // 3):
            y = (y * 0.5 + x) - y
        return y

    traced = trace(without_host=True)(chain)
    times: dict[str, list[float]] = {"auto": [], "program": []}
    for _ in range(rounds):
        for name, function in (("auto", chain), ("program", traced)):
            start = time.perf_counter()
            with session if name == "auto" else nullcontext():
                function().numpy()
            times[name].append(time.perf_counter() - start)
    deferred, program = (statistics.median(times[name][WARM:]) for name in ("auto", "program"))
    return (deferred - program) / ops


def main() -> None:
    """Print a table for each network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=["digits", "MLP", "small conv net"])
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    print(f"a deferred op: {overhead() * 1e6:.2f} us")
    for name in options.networks:
        ways = ways_of(digits if name == "digits" else lambda name=name: build(WORKLOADS[name]))
        for data, label in feed(name, options.steps):
            for way in ways.values():
                way.run(data, label)
        print(f"{name}, {options.steps - WARM} steps that count")
        eager, traced = ways["eager"], ways["@trace"]
        for label, way in ways.items():
            gain = eager.median() / way.median()
            apart = max(abs(a - b) for a, b in zip(eager.losses, way.losses, strict=True))
            share = gain / (eager.median() / traced.median())
            print(
                f"  {label:26} median {way.median() * 1e3:8.2f} ms  min {way.least() * 1e3:8.2f} ms"
                f"  {gain:5.2f}x  {share:4.0%} of @trace's  loss differs by {apart:.1e}"
            )


if __name__ == "__main__":
    main()
