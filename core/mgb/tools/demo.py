"""`mgb demo`: a small convolutional network learns handwritten digits, eagerly and then compiled."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import functional as F
from .. import module as M
from .. import optimizer, random
from ..autodiff import GradManager
from ..data import batches, load_digits
from ..jit import trace
from ..tensor import Tensor, tensor

#: See `holding`.
__tracing__ = {"*": "watched"}

#: Largest difference that two loss curves may show. Both are float32, but sums run in another order, and a
#: few hundred steps of Adam can make a rounding of 1e-7 grow a thousandfold and more.
TOLERANCE = 1e-3
#: From so many cores on that other programs take, the report says so.
BUSY = 0.15
SEED = 7
BATCH = 64

Step = Callable[[Tensor, Tensor], Tensor]

#: What is compared: a name, and what turns a step function into what is called.
WAYS: tuple[tuple[str, Callable[[Step], Any]], ...] = (
    ("eager", lambda f: f),
    ("@trace(run_body=True)", lambda f: trace(f, run_body=True)),
    ("@trace", trace),
)

#: What the report has of each, beside its name.
COLUMNS = ("fastest step", "speed-up", "last loss", "accuracy", "loss differs by")


class DigitsNet(M.Module):
    """Two convolutions with batch normalisation, one pooling, one linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = M.Conv2d(1, 16, 3, padding=1, bias=False)
        self.norm1 = M.BatchNorm2d(16)
        self.conv2 = M.Conv2d(16, 32, 3, padding=1, bias=False)
        self.norm2 = M.BatchNorm2d(32)
        self.pool = M.MaxPool2d(2)
        self.head = M.Linear(32 * 4 * 4, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm1(self.conv1(x)))
        x = self.pool(F.relu(self.norm2(self.conv2(x))))
        logits: Tensor = self.head(F.flatten(x, 1))
        return logits


@dataclass
class Run:
    """One training: what it did and how long each step took, in seconds."""

    name: str
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    accuracy: float = 0.0
    step: Any = None

    @property
    def fastest(self) -> float:
        """Of the steps after the first two, which record and compile; other programs only lengthen a step."""
        return min(self.seconds[2:])


class Training:
    """A fresh network from the same seed; `wrap` turns its step function into what is called."""

    def __init__(self, name: str, wrap: Callable[[Step], Any]) -> None:
        random.seed(SEED)
        self._model = model = DigitsNet()
        model.train()
        adam = optimizer.Adam(model.parameters(), lr=2e-3)
        manager = GradManager().attach(model.parameters())

        def step(data: Tensor, label: Tensor) -> Tensor:
            with manager:
                loss = F.loss.cross_entropy(model(data), label)
                manager.backward(loss)
                adam.step().clear_grad()
            return loss

        self.run = Run(name, step=wrap(step))

    def step(self, data: np.ndarray[Any, Any], label: np.ndarray[Any, Any]) -> float:
        """Take one step; its loss."""
        start = time.perf_counter()
        loss: float = self.run.step(tensor(data), tensor(label)).item()
        self.run.seconds.append(time.perf_counter() - start)
        self.run.losses.append(loss)
        return loss

    def test(self, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> None:
        """Note the share of `images` that the network tells right."""
        self._model.eval()
        predicted = self._model(tensor(images)).numpy().argmax(1)
        self.run.accuracy = float((predicted == labels).mean())


def train(
    ways: Sequence[tuple[str, Callable[[Step], Any]]],
    epochs: int,
    advance: Callable[[int, float], None] = lambda place, loss: None,
) -> list[Run]:
    """Train a network in each of `ways`, step by step in turns: what slows the machine slows all of them.

    Parameters
    ----------
    ways : sequence of pairs
        A name, and what turns a step function into what is called.
    epochs : int
    advance : callable
        Is told the place of a way and the loss, after each step.
    """
    images, labels, test_images, test_labels = load_digits()
    trainings = [Training(name, wrap) for name, wrap in ways]
    order = list(range(len(trainings)))
    for data, label in _epochs(images, labels, epochs):
        for place in order:
            advance(place, trainings[place].step(data, label))
        order = order[1:] + order[:1]
    for training in trainings:
        training.test(test_images, test_labels)
    return [training.run for training in trainings]


def _epochs(
    images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], epochs: int
) -> Iterator[tuple[Any, Any]]:
    for epoch in range(epochs):
        yield from batches(images, labels, BATCH, seed=SEED + epoch)


class Others:
    """The share of this process's cores that other programs use, from its creation on; Linux only."""

    def __init__(self) -> None:
        self._then = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float] | None:
        """Return the time, what the cores have worked, and what this process has, all in seconds."""
        try:
            cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
            lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
            busy = [map(int, (*words[1:4], *words[6:9])) for words in lines if words[0] in cores]
            worked = sum(map(sum, busy)) / os.sysconf("SC_CLK_TCK")  # without idle, and waiting for disks
        except (AttributeError, OSError, ValueError):
            return None
        return time.perf_counter(), worked, time.process_time()

    def cores(self) -> float:
        """Return the average number of cores they have used since; 0 where the system does not report it."""
        now = self._now()
        if self._then is None or now is None:
            return 0.0
        elapsed, worked, own = (b - a for a, b in zip(self._then, now, strict=True))
        return max(0.0, worked - own) / max(elapsed, 1e-9)


def main(quick: bool = False, picture: str | None = None) -> int:
    """Train in all ways and print what came of it; 1 when the loss curves part or a network did not learn.

    Parameters
    ----------
    quick : bool
        Two epochs, and no demand on the accuracy.
    picture : str, optional
        Also write what is printed to this SVG file.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(record=picture is not None, width=96 if picture is not None else None)
    epochs = 2 if quick else 15
    steps = epochs * (len(load_digits()[0]) // BATCH)
    columns = (TextColumn("{task.description:28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    others = Others()
    with Progress(*columns, TextColumn("loss {task.fields[loss]:.4f}"), console=console) as progress:
        tasks = [progress.add_task(name, total=steps, loss=float("nan")) for name, _ in WAYS]

        def advance(place: int, loss: float) -> None:
            progress.update(tasks[place], advance=1, loss=loss)

        runs = train(WAYS, epochs, advance)
    status = report(console, runs, others.cores(), learned=0.0 if quick else 0.97)
    if picture is not None:
        console.save_svg(picture, title="mgb demo")
    return status


def report(console: Any, runs: Sequence[Run], others: float, learned: float) -> int:
    """Print the table and the verdict; the exit status. `others` is how many cores other programs took."""
    from rich.table import Column, Table

    eager = runs[0]
    table = Table(Column(no_wrap=True), *COLUMNS)
    worst = 0.0
    for run in runs:
        apart = max(abs(a - b) for a, b in zip(eager.losses, run.losses, strict=True))
        worst = max(worst, apart)
        table.add_row(
            run.name,
            f"{run.fastest * 1e3:.2f} ms",
            f"{eager.fastest / run.fastest:.2f}x",
            f"{run.losses[-1]:.4f}",
            f"{run.accuracy:.1%}",
            f"{apart:.1e}",
        )
    console.print(table)
    console.print(_described(runs[-1].step))
    console.print("steps were taken in turns, one of each way after the other")
    if others > BUSY:
        console.print(f"the machine was busy: other programs took {others:.1f} cores; times may be too long")
    same = worst <= TOLERANCE
    learnt = all(r.accuracy >= learned for r in runs)
    console.print(f"loss curves {'agree' if same else 'PART'}: {worst:.1e} (tolerance {TOLERANCE:.0e})")
    if not learnt:
        console.print(f"test accuracy is below {learned:.0%}")
    return 0 if same and learnt else 1


def _described(traced: trace[..., Any]) -> str:
    """Describe one compiled training step."""
    programs = traced.variants()[0].programs
    fused = [kernel for p in programs for kernel in p.kernels if kernel is not None]
    single = sum(not step.fused for p in programs for step in p.steps)
    return (
        f"backend {traced.backend}: each step runs {len(fused)} fused groups "
        f"({len(set(map(id, fused)))} kernels) and {single} single ops"
    )
