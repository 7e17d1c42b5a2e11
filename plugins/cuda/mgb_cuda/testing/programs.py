"""The programs of the shared tests, and their exact results."""

from __future__ import annotations

from typing import Any

import numpy as np
from mgb.ops.bodies.transcendental import exp, log
from mgb.ops.primitives import lt, sqrt, where
from mgb.ops.reduce import extent, reduce_max, reduce_sum

Axes = tuple[int, ...]
Array = np.ndarray[Any, Any]


def total(x: Any, axis: Axes) -> Any:
    return reduce_sum(x, axis=axis)


def softmax(x: Any, axis: Axes = (1,)) -> Any:
    e = exp(x - reduce_max(x, axis=axis))
    return e / reduce_sum(e, axis=axis)


def normalise(x: Any, axis: Axes = (1,)) -> Any:
    centred = x - reduce_sum(x, axis=axis) / extent(x, axis=axis)
    return centred / sqrt(reduce_sum(centred * centred, axis=axis) / extent(x, axis=axis) + 1e-5)


def log_sum(x: Any, axis: Axes = (1,)) -> Any:
    """Compute it with a shift, not the maximum where that is infinite, as the functional layer does."""
    top = reduce_max(x, axis=axis)
    shift = where(lt(top - top, 1), top, 0)
    return log(reduce_sum(exp(x - shift), axis=axis)) + shift


def wanted(function: Any, x: Array, axis: Axes) -> Array:
    """Compute `total`, `softmax` or `normalise` of `x` in float64."""
    x = x.astype(np.float64)
    if function is total:
        return x.sum(axis=axis, keepdims=True)
    if function is softmax:
        e = np.exp(x - x.max(axis=axis, keepdims=True))
        return e / e.sum(axis=axis, keepdims=True)
    return (x - x.mean(axis=axis, keepdims=True)) / np.sqrt(x.var(axis=axis, keepdims=True) + 1e-5)


def check(function: Any, x: Array, axis: Axes, found: Array) -> None:
    """Hold `found` against `wanted`: within a few roundings of float32 of what is added."""
    scale = np.abs(x).sum(axis=axis, keepdims=True, dtype=np.float64) if function is total else 8.0
    assert np.abs(found - wanted(function, x, axis)).max() <= 2e-6 * np.max(scale)


#: Rows that are hard on folds that are found in one pass.
KINDS = ("plain", "rising", "falling", "far from 0", "outliers", "all the same", "special")


def rows_of(kind: str, shape: tuple[int, int]) -> Array:
    """Return rows of one of `KINDS`, six at least."""
    x = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    if kind == "rising":
        return np.sort(x * 10, axis=1)
    if kind == "falling":
        return np.sort(x * 10, axis=1)[:, ::-1].copy()
    if kind == "far from 0":
        return x + np.float32(3000)
    if kind == "outliers":
        x[:, ::97] *= 1e4
        x[:, 0] = 1e6
    if kind == "all the same":
        x[...] = x[:, :1]
    if kind == "special":
        x[0, 5], x[1, 7], x[2, 11], x[3, 13] = np.nan, np.inf, -np.inf, -np.inf
        x[3, 14], x[4] = np.inf, -np.inf
        x[5, 1:] = -np.inf
    return x
