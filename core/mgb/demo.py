"""`mgb demo`: a small convolutional network learns handwritten digits, eagerly and then compiled."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from . import functional as F
from . import module as M
from . import optimizer, random
from .autodiff import GradManager
from .data import batches, load_digits
from .jit import trace
from .tensor import Tensor, tensor

#: See `holding`.
__tracing__ = {"*": "watched"}

#: Largest difference that two loss curves may show. Both are float32, but sums run in another order, and a
#: few hundred steps of Adam can make a rounding of 1e-7 grow a thousandfold and more.
TOLERANCE = 1e-3
SEED = 7
BATCH = 64

Step = Callable[[Tensor, Tensor], Tensor]


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
    def median(self) -> float:
        """Of the steps after the first two, which record and compile."""
        return statistics.median(self.seconds[2:])


def train(
    name: str, wrap: Callable[[Step], Any], epochs: int, advance: Callable[[float], None] = lambda loss: None
) -> Run:
    """Train a fresh network from the same seed; `wrap` turns the step function into what is called."""
    random.seed(SEED)
    images, labels, test_images, test_labels = load_digits()
    model = DigitsNet()
    model.train()
    adam = optimizer.Adam(model.parameters(), lr=2e-3)
    manager = GradManager().attach(model.parameters())

    def step(data: Tensor, label: Tensor) -> Tensor:
        with manager:
            loss = F.loss.cross_entropy(model(data), label)
            manager.backward(loss)
            adam.step().clear_grad()
        return loss

    run = Run(name, step=wrap(step))
    for data, label in _epochs(images, labels, epochs):
        start = time.perf_counter()
        loss = run.step(tensor(data), tensor(label)).item()
        run.seconds.append(time.perf_counter() - start)
        run.losses.append(loss)
        advance(loss)
    model.eval()
    predicted = model(tensor(test_images)).numpy().argmax(1)
    run.accuracy = float((predicted == test_labels).mean())
    return run


def _epochs(
    images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], epochs: int
) -> Iterator[tuple[Any, Any]]:
    for epoch in range(epochs):
        yield from batches(images, labels, BATCH, seed=SEED + epoch)


def main(quick: bool = False, picture: str | None = None) -> int:
    """Train both ways and print what came of it; 1 when the loss curves part or the network did not learn.

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
    ways: list[tuple[str, Callable[[Step], Any]]] = [
        ("eager", lambda f: f),
        ("@trace(run_body=True)", lambda f: trace(f, run_body=True)),
        ("@trace", trace),
    ]
    runs = []
    columns = (TextColumn("{task.description:28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("loss {task.fields[loss]:.4f}"), console=console) as progress:
        for name, wrap in ways:
            task = progress.add_task(name, total=steps, loss=float("nan"))
            advance = partial(_advance, progress, task)
            runs.append(train(name, wrap, epochs, advance))
    status = report(console, runs, learned=0.0 if quick else 0.97)
    if picture is not None:
        console.save_svg(picture, title="mgb demo")
    return status


def _advance(progress: Any, task: Any, loss: float) -> None:
    progress.update(task, advance=1, loss=loss)


def report(console: Any, runs: list[Run], learned: float) -> int:
    """Print the table and the verdict; the exit status."""
    from rich.table import Table

    eager = runs[0]
    table = Table("", "median step", "speed-up", "last loss", "accuracy", "loss differs by")
    worst = 0.0
    for run in runs:
        apart = max(abs(a - b) for a, b in zip(eager.losses, run.losses, strict=True))
        worst = max(worst, apart)
        table.add_row(
            run.name,
            f"{run.median * 1e3:.2f} ms",
            f"{eager.median / run.median:.2f}x",
            f"{run.losses[-1]:.4f}",
            f"{run.accuracy:.1%}",
            f"{apart:.1e}",
        )
    console.print(table)
    console.print(_described(runs[1].step))
    same = worst <= TOLERANCE
    learnt = all(r.accuracy >= learned for r in runs)
    console.print(f"loss curves {'agree' if same else 'PART'}: {worst:.1e} (tolerance {TOLERANCE:.0e})")
    if not learnt:
        console.print(f"test accuracy is below {learned:.0%}")
    return 0 if same and learnt else 1


def _described(traced: trace[..., Any]) -> str:
    """What one compiled training step is made of."""
    programs = traced.variants()[0].programs
    fused = [kernel for p in programs for kernel in p.kernels if kernel is not None]
    single = sum(not step.fused for p in programs for step in p.steps)
    return (
        f"backend {traced.backend}: each step runs {len(fused)} fused groups "
        f"({len(set(map(id, fused)))} kernels) and {single} single ops"
    )
