"""What every printer must agree on: the dtype that values are held in, and how reductions fold."""

from __future__ import annotations

from functools import cache

import numpy as np
from mgb.ir import Node

#: The dtypes whose values a kernel holds as another one between load and store.
HELD = {"float16": "float32", "bfloat16": "float32"}

#: The reductions: the op that folds two elements.
FOLDS = {"reduce_sum": "add", "reduce_prod": "mul", "reduce_max": "maximum", "reduce_min": "minimum"}


def held(node: Node) -> str:
    """The name of the dtype that a kernel computes the value of `node` in."""
    return _held(node.spec.dtype)


@cache
def _held(dtype: np.dtype[np.generic]) -> str:
    return HELD.get(dtype.name, dtype.name)  # NumPy takes microseconds to spell a name


def wide(fold: Node) -> str:
    """The dtype in which chunks are added up: float64 for float32, which costs nothing."""
    sums = fold.op.name in ("reduce_sum", "reduce_prod")
    return "float64" if sums and fold.spec.dtype.name == "float32" else held(fold)


def identity(fold: Node) -> float:
    """What a reduction of nothing is."""
    dtype = fold.spec.dtype
    if fold.op.name in ("reduce_sum", "reduce_prod"):
        return int(fold.op.name == "reduce_prod")
    least = fold.op.name == "reduce_max"
    if dtype.kind == "b":
        return not least
    if dtype.kind in "fV":
        return -np.inf if least else np.inf
    return int(np.iinfo(dtype).min if least else np.iinfo(dtype).max)
