"""The cost of a call with arguments of new shapes, and the memory left after calls with many shapes."""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import mgb
import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb import Tensor, optimizer
from mgb.autodiff import GradManager
from mgb.jit import trace

from mgb_bench.models import nets
from mgb_bench.peers import default_backends
from mgb_bench.plugin import Run

VOCABULARY, LONGEST, WIDTH = 65, 64, 64

#: The arguments of a call for a batch size and, where the model has sequences, their length.
Batch = Callable[[int, int], tuple[Tensor, Tensor]]
WAYS: dict[str, dict[str, Any]] = {"replay": {"run_body": True}, "without_host": {"without_host": True}}
BACKENDS = (default_backends()[0].upper(), "EAGER")


class GPT(M.Module):
    """Two blocks of causal attention between embeddings and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = M.Embedding(VOCABULARY, WIDTH), M.Embedding(LONGEST, WIDTH)
        self.blocks = [nets.Transformer(WIDTH, 4) for _ in range(2)]
        self.norm, self.head = M.LayerNorm(WIDTH), M.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map ``(batch, length)`` to logits, a row for each token."""
        x = self.tokens(tokens) + self.places(F.arange(tokens.shape[1]).astype("int32"))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).reshape(-1, VOCABULARY)


def training(model: M.Module, **options: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a step of Adam."""
    adam, manager = optimizer.Adam(model.parameters(), lr=1e-3), GradManager().attach(model.parameters())

    @trace(**options)
    def step(x: Tensor, label: Tensor) -> Tensor:
        with manager:
            loss: Tensor = F.nn.cross_entropy(model(x), label.reshape(-1))
            manager.backward(loss)
        adam.step().clear_grad()
        return loss

    return step


def tokens(batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Return a batch for `GPT`."""
    draw = np.random.default_rng(0).integers(0, VOCABULARY, (2, batch, length)).astype(np.int32)
    return mgb.tensor(draw[0]), mgb.tensor(draw[1])


def rows(batch: int, _: int) -> tuple[Tensor, Tensor]:
    """Return a batch for the perceptron."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 10, batch).astype(np.int32)
    return mgb.tensor(random.standard_normal((batch, 64), np.float32)), mgb.tensor(labels)


MODELS: dict[str, tuple[Callable[[], M.Module], Batch]] = {
    "MLP": (lambda: nets.MLP((64, 32, 10)), rows),
    "GPT": (GPT, tokens),
}

#: Batch size and length: the first two are there when the clock starts.
SIZES = ((16, 16), (20, 20), (17, 16), (23, 16), (33, 16), (16, 24), (16, 31), (19, 48), (40, 17))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_new_shape(name: str, way: str, backend: str, benchmark: Any) -> None:
    """Measure milliseconds of the first call with each shape, beyond what later calls with it take."""
    make, batch = MODELS[name]
    step = training(make(), backend=backend, **WAYS[way])
    known = len(SIZES[:2])

    def measure() -> list[tuple[float, float]]:
        return [_first_and_later(step, batch(*sizes)) for sizes in SIZES]

    pairs = benchmark.pedantic(measure, rounds=1, iterations=1)[known:]
    extra = sorted(first - later for first, later in pairs)
    row = [f"{extra[0]:.2f}", f"{statistics.median(extra):.2f}", f"{extra[-1]:.2f}"]
    later = f"{statistics.median(later for _, later in pairs):.2f}"
    columns = ["least", "median", "most", "a later call", "records"]
    _tell(benchmark, f"new shape: {name}, {way}, {backend}", columns, [*row, later, step.stats()["records"]])


def _first_and_later(step: Callable[..., Tensor], arguments: tuple[Tensor, ...]) -> tuple[float, float]:
    """Measure milliseconds of the first call with `arguments` and of the best of those that follow."""
    first, *later = itertools.islice(_milliseconds(step, arguments), 6)
    return first, min(later)


def _milliseconds(step: Callable[..., Tensor], arguments: tuple[Tensor, ...]) -> Iterator[float]:
    while True:
        start = time.perf_counter()
        step(*arguments).numpy()
        yield (time.perf_counter() - start) * 1e3


@pytest.mark.parametrize("way", WAYS)
def test_many_shapes(way: str, benchmark: Any, run: Run) -> None:
    """Measure records, variants and objects after calls with 300 batch sizes."""
    make, batch = MODELS["MLP"]
    step = training(make(), **WAYS[way])
    most = 60 if run.quick else 300

    def measure() -> list[int]:
        for size in range(2, most + 2):
            step(*batch(size, 0))
        gc.collect()
        return [most, step.stats()["records"], len(step.variants()), len(gc.get_objects())]

    row = benchmark.pedantic(measure, rounds=1, iterations=1)
    _tell(benchmark, f"many shapes: {way}", ["shapes", "records", "variants", "objects of Python"], row)


def _tell(benchmark: Any, case: str, columns: list[str], row: list[Any]) -> None:
    benchmark.extra_info.update(
        suite="shapes", case=case, size="", table={"columns": columns, "rows": [row]}, notes=()
    )
