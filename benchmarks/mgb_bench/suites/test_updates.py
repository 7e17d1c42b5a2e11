"""Optimizer steps over one large tensor, and over many small ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mgb_bench.arrays import Arrays
from mgb_bench.case import MI, TOLERANCES, Case, Size, Tolerance, Traffic
from mgb_bench.ways.updates import truth, ways

#: As in a residual network: biases, small matrices, convolutions.
SHAPES: tuple[tuple[int, ...], ...] = ((64,), (256,), (64, 64), (128, 64), (16, 16, 3, 3))

#: Steps whose result is compared: from the second on the moments matter.
STEPS = 3


def _one(size: int, generator: np.random.Generator) -> Arrays:
    return tuple(generator.standard_normal(size, np.float32) for _ in range(2))


def _many(count: int, generator: np.random.Generator) -> Arrays:
    return tuple(generator.standard_normal(shape, np.float32) for _ in range(2) for shape in _shapes(count))


def _shapes(count: int) -> list[tuple[int, ...]]:
    return [SHAPES[i % len(SHAPES)] for i in range(count)]


def _total(count: int) -> int:
    return sum(map(math.prod, _shapes(count)))


def _traffic(reads: int, writes: int, elements: Callable[[int], int]) -> Callable[[int], Traffic]:
    return lambda size: Traffic(
        elements(size) * 4 * reads, elements(size) * 4 * writes, (reads, writes), True
    )


#: Parameter, gradient and states are read, all but the gradient written. LAMB needs the length of the whole
#: step before it can take it: then parameter and states are read once more.
MOVES = {"SGD": (3, 2), "Adam": (4, 3), "AdamW": (4, 3), "LAMB": (7, 3)}

#: LAMB multiplies by lengths, which are sums over the whole tensor.
TOLERANCE = {"LAMB": TOLERANCES | {"float32": Tolerance(2e-4, 2e-4)}}

TITLES = {"SGD": "SGD with momentum"}


def _cases() -> list[Case]:
    cases = []
    for name, moves in MOVES.items():
        title = TITLES.get(name, name)
        same = (truth(name, STEPS), ways(name))
        more: Any = {"tolerances": TOLERANCE.get(name, TOLERANCES)}
        cases += [
            Case(
                f"{title}, one tensor", "updates", (MI, 16 * MI), _one, *same,
                _traffic(*moves, lambda size: size), calls=STEPS, quick=(16 * MI,), **more,
            ),
            Case(
                f"{title}, small tensors", "updates", (200,), _many, *same,
                _traffic(*moves, _total), calls=STEPS, **more,
            ),
        ]  # fmt: skip
    return cases


CASES = _cases()


def small(case: Case) -> Size:
    """Return a size for tests."""
    return 10 if "small" in case.name else 999


def test_updates(race: Any, case: Case, size: Size) -> None:
    race(case, size)
