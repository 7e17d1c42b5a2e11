"""Reductions as their rows have them: how two elements fold, what nothing is, what sums are kept in."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np

from ..ir import Node, Reduction
from ..ops.declare import OPS


def reductions(words: Container[str]) -> tuple[str, ...]:
    """The reductions that a backend prints which folds two elements by `words`."""
    return tuple(name for name, op in OPS.items() if op.reduction and op.reduction.combine.name in words)


def combine(fold: Node) -> str:
    """The name of the op that folds two elements."""
    return _row(fold).combine.name


def identity(fold: Node) -> Any:
    """What a reduction of nothing is, as a number of Python."""
    return _row(fold).identity(fold.spec.dtype)


def accumulator(fold: Node) -> np.dtype[Any]:
    """The dtype in which the folds of many elements are folded."""
    return _row(fold).accumulator(fold.spec.dtype)


def _row(fold: Node) -> Reduction:
    assert fold.op.reduction is not None
    return fold.op.reduction
