"""The cases of the suite for GPUs, in functions that every contestant has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """A computation of the suite.

    Attributes
    ----------
    name : str
    shape : tuple of int
    inputs : int
        How many arrays are read.
    writes : float
        Elements written, as a share of the shape's.
    rule : callable
        ``rule(w, *xs)`` over the words of `Words`, with arrays of that shape.
    turned : int
        How many of the inputs, from the first one on, lie in memory with their axes in the other order.
    """

    name: str
    shape: tuple[int, ...]
    inputs: int
    writes: float
    rule: Callable[..., Any]
    turned: int = 0

    def nbytes(self) -> int:
        """Return the least that has to move."""
        return int(4 * np.prod(self.shape, dtype=np.int64) * (self.inputs + self.writes))

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        """Return row-major inputs, of which the first ones are to be turned."""
        random, shapes = np.random.default_rng(0), [self.shape[::-1]] * self.turned
        shapes += [self.shape] * (self.inputs - self.turned)
        return [random.standard_normal(shape, dtype=np.float32) for shape in shapes]

    def views(self, w: Any, arrays: Sequence[Any]) -> list[Any]:
        """Return the arguments of the rule: where a library has views, nothing is moved for it."""
        return [w.turned(a) for a in arrays[: self.turned]] + list(arrays[self.turned :])


def _chain(w: Any, a: Any, b: Any) -> Any:
    x = (a + b) * b - a
    x = (x * b + a) * 0.5
    return w.tanh(x) * a + w.exp(-(b * b))


def _gelu(w: Any, x: Any) -> Any:
    return 0.5 * x * (1.0 + w.tanh(0.7978845608 * (x + 0.044715 * (x * x * x))))


def _softmax(w: Any, x: Any) -> Any:
    e = w.exp(x - w.max(x))
    return e / w.sum(e)


def _layer_norm(w: Any, x: Any) -> Any:
    n = float(x.shape[-1])
    centred = x - w.sum(x) / n
    return centred / w.sqrt(w.sum(centred * centred) / n + 1e-5)


def _row_sums(w: Any, x: Any) -> Any:
    return w.sum(x * x)


def _turned_sum(w: Any, a: Any, b: Any) -> Any:
    return a * 2.0 + b


CASES = (
    Case("chain", (1 << 13, 1 << 13), 2, 1.0, _chain),
    Case("gelu", (1 << 13, 1 << 13), 1, 1.0, _gelu),
    Case("softmax", (1 << 14, 1 << 12), 1, 1.0, _softmax),
    Case("layer norm", (1 << 14, 1 << 12), 1, 1.0, _layer_norm),
    Case("row sums", (1 << 14, 1 << 12), 1, 1.0 / (1 << 12), _row_sums),
    Case("transposed input", (1 << 14, 1 << 12), 2, 1.0, _turned_sum, turned=1),
)


class Words:
    """The functions that a rule is written in; rows are along the last axis and keep it."""

    def __init__(self, module: Any, keep: str = "keepdims", **others: Callable[..., Any]) -> None:
        axis = "dim" if keep == "keepdim" else "axis"
        row = {axis: -1, keep: True}
        self.exp, self.tanh, self.sqrt = module.exp, module.tanh, module.sqrt
        self.sum = lambda x: module.sum(x, **row)
        self.turned = lambda x: module.swapaxes(x, 0, 1)
        self.max = others.get("max", lambda x: module.max(x, **row))
