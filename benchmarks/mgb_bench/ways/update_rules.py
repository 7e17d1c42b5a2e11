"""The update rules of optimizers for one tensor, for the peers that have no optimizers of their own.

In every function `p` is the parameter, `g` its gradient, `t` the number of the step, from 1 on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

LR, MOMENTUM, BETA1, BETA2, EPSILON = 0.01, 0.9, 0.9, 0.999, 1e-8

#: By optimizer: how much each takes from the parameters themselves.
DECAY = {"SGD": 0.0, "Adam": 0.0, "AdamW": 0.01, "LAMB": 0.01}

#: By optimizer: how many arrays of the parameter's shape it remembers.
STATES = {"SGD": 1, "Adam": 2, "AdamW": 2, "LAMB": 2}


def pure(name: str, xp: Any) -> Callable[..., tuple[Any, ...]]:
    """Make ``rule(p, g, t, *states) -> (new p, *new states)`` in the array library `xp`, with new arrays."""

    def sgd(p: Any, g: Any, t: Any, velocity: Any) -> tuple[Any, ...]:
        velocity = MOMENTUM * velocity + g
        return p - LR * velocity, velocity

    def adam(p: Any, g: Any, t: Any, mean: Any, square: Any) -> tuple[Any, ...]:
        mean, square = BETA1 * mean + (1 - BETA1) * g, BETA2 * square + (1 - BETA2) * g * g
        step = (mean / (1 - BETA1**t)) / (xp.sqrt(square / (1 - BETA2**t)) + EPSILON) + DECAY[name] * p
        rate = LR * xp.sqrt((p * p).sum()) / xp.sqrt((step * step).sum()) if name == "LAMB" else LR
        return p - rate * step, mean, square

    return sgd if name == "SGD" else adam


def in_place(name: str) -> Callable[..., None]:
    """Make ``rule(p, g, t, room, *states)`` in NumPy: `room` is two arrays to work in."""

    def sgd(p: Any, g: Any, t: int, room: Any, velocity: Any) -> None:
        np.multiply(velocity, np.float32(MOMENTUM), out=velocity)
        np.add(velocity, g, out=velocity)
        np.multiply(velocity, np.float32(LR), out=room[0])
        np.subtract(p, room[0], out=p)

    def adam(p: Any, g: Any, t: int, room: Any, mean: Any, square: Any) -> None:
        step, other = room
        np.multiply(mean, np.float32(BETA1), out=mean)
        np.multiply(g, np.float32(1 - BETA1), out=step)
        np.add(mean, step, out=mean)
        np.multiply(square, np.float32(BETA2), out=square)
        np.multiply(g, g, out=step)
        np.multiply(step, np.float32(1 - BETA2), out=step)
        np.add(square, step, out=square)
        np.multiply(square, np.float32(1 / (1 - BETA2**t)), out=step)
        np.sqrt(step, out=step)
        np.add(step, np.float32(EPSILON), out=step)
        np.divide(mean, step, out=step)
        np.multiply(step, np.float32(1 / (1 - BETA1**t)), out=step)
        if DECAY[name]:
            np.multiply(p, np.float32(DECAY[name]), out=other)
            np.add(step, other, out=step)
        rate = LR * np.linalg.norm(p) / np.linalg.norm(step) if name == "LAMB" else LR
        np.multiply(step, np.float32(rate), out=step)
        np.subtract(p, step, out=p)

    return sgd if name == "SGD" else adam


def loop(name: str) -> Callable[..., None]:
    """Make ``rule(p, g, t, *states)`` as loops for Numba, over flat arrays."""
    from numba import prange

    lr, momentum, decay = (np.float32(v) for v in (LR, MOMENTUM, DECAY[name]))
    b1, b2, c1, c2, eps = (np.float32(v) for v in (BETA1, BETA2, 1 - BETA1, 1 - BETA2, EPSILON))

    def sgd(p: Any, g: Any, t: int, velocity: Any) -> None:
        for i in prange(p.size):
            velocity[i] = momentum * velocity[i] + g[i]
            p[i] -= lr * velocity[i]

    def adam(p: Any, g: Any, t: int, mean: Any, square: Any) -> None:
        whole1, whole2 = np.float32(1 / (1 - BETA1**t)), np.float32(1 / (1 - BETA2**t))
        for i in prange(p.size):
            mean[i] = b1 * mean[i] + c1 * g[i]
            square[i] = b2 * square[i] + c2 * g[i] * g[i]
            step = (mean[i] * whole1) / (math.sqrt(square[i] * whole2) + eps)
            p[i] -= lr * (step + decay * p[i])

    def lamb(p: Any, g: Any, t: int, mean: Any, square: Any) -> None:
        whole1, whole2 = np.float32(1 / (1 - BETA1**t)), np.float32(1 / (1 - BETA2**t))
        ours, theirs = 0.0, 0.0
        for i in prange(p.size):
            mean[i] = b1 * mean[i] + c1 * g[i]
            square[i] = b2 * square[i] + c2 * g[i] * g[i]
            step = (mean[i] * whole1) / (math.sqrt(square[i] * whole2) + eps) + decay * p[i]
            ours += p[i] * p[i]
            theirs += step * step
        rate = lr * np.float32(math.sqrt(ours / theirs))
        for i in prange(p.size):
            step = (mean[i] * whole1) / (math.sqrt(square[i] * whole2) + eps) + decay * p[i]
            p[i] -= rate * step

    loops: dict[str, Callable[..., None]] = {"SGD": sgd, "Adam": adam, "AdamW": adam, "LAMB": lamb}
    return loops[name]
