"""Whole training programs as users write them, small, each with the state that its steps change.

`PROGRAMS` has them by name. Each is made anew by its function, with fixed seeds, so that the same program can
run eagerly and traced from the same start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import mgb.module as M
import numpy as np
from mgb import Tensor, random, tensor

#: By the name of the program, what makes it.
PROGRAMS: dict[str, Callable[[], Program]] = {}


class Program(NamedTuple):
    """A step of training, what it is called with, and the Tensors that it changes.

    Parameters
    ----------
    step : callable
        Called with each of `batches`; returns a loss, or several.
    batches : list of tuple
    state : list of Tensor
        In this order in every copy of the program.
    between : callable
        Called with the number of each call before it: what the loop around the step does.
    settled : int
        From this call on, nothing is new.
    precision : str
        The narrowest dtype that it computes in.
    """

    step: Callable[..., Any]
    batches: list[tuple[Any, ...]]
    state: list[Tensor]
    between: Callable[[int], object] = lambda call: None
    settled: int = 2
    precision: str = "float32"


def program(make: Callable[[], Program]) -> Callable[[], Program]:
    """Enter `make` into `PROGRAMS`; it starts from seeds."""

    def seeded() -> Program:
        random.seed(17)
        made = make()
        draw = np.random.default_rng(23)
        for weight in made.state:  # the initial values are drawn by NumPy: they need no generator of ours
            if weight.dtype == np.float32 and weight.ndim > 1:
                bound = np.sqrt(3.0 / np.prod(weight.shape[1:]))
                weight[...] = tensor(draw.uniform(-bound, bound, weight.shape).astype(np.float32))
        return made

    PROGRAMS[make.__name__] = seeded
    return make


def floats(*shape: int, seed: int = 0) -> Tensor:
    return tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def integers(top: int, *shape: int, seed: int = 0) -> Tensor:
    return tensor(np.random.default_rng(seed).integers(0, top, shape).astype(np.int32))


def classification(size: tuple[int, ...], classes: int, calls: int = 4) -> list[tuple[Tensor, Tensor]]:
    """Batches of 8 inputs with labels."""
    return [(floats(8, *size, seed=call), integers(classes, 8, seed=call)) for call in range(calls)]


def tensors_of(*networks: M.Module) -> list[Tensor]:
    """Parameters and buffers, in the order of their names."""
    return [t for network in networks for t in network.tensors()]


class Life(NamedTuple):
    """What a program gave: the losses of each call, its state at the end, the body's runs by each call."""

    losses: list[np.ndarray]
    state: list[np.ndarray]
    runs: list[int]


def live(made: Program, wrap: Callable[[Any], Any]) -> Life:
    """Run a program to its end."""
    step = wrap(made.step)
    losses, by_call = [], []
    for call, batch in enumerate(made.batches):
        made.between(call)
        losses.append(np.array([loss.item() for loss in flat(step(*batch))]))
        by_call.append(step.stats()["body_runs"] if hasattr(step, "stats") else call + 1)
    return Life(losses, [t.numpy().copy() for t in made.state], by_call)


def flat(result: Any) -> Iterator[Tensor]:
    """The Tensors of a result."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        for part in result:
            yield from flat(part)
    else:
        yield result


import training_methods  # noqa: E402, F401
import training_networks  # noqa: E402, F401
