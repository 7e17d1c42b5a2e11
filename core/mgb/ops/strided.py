"""Elements of an array at places that are sums of steps along axes: windows, diagonals, counted places."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..ir import Kind, Op, Spec
from ..runtime.device import array_module
from .declare import declare

Shape = tuple[int, ...]


def _infer(x: Spec, shape: Shape, starts: Shape, steps: tuple[Shape, ...]) -> Spec:
    for length, start, own in zip(x.shape, starts, steps, strict=True):
        far = [step * (d - 1) for step, d in zip(own, shape, strict=True)]
        low, high = start + sum(f for f in far if f < 0), start + sum(f for f in far if f > 0)
        if 0 not in shape and not (low >= 0 and high < length):
            raise ShapeError(f"strided: places {low} to {high} of an axis of {length} elements of {x.shape}")
    return Spec(shape, x.dtype)


def _moved(_old: Shape, strides: Shape, shape: Shape, starts: Shape, steps: tuple[Shape, ...]) -> Shape:
    pairs = list(zip(strides, steps, strict=True))
    return tuple(sum(stride * own[k] for stride, own in pairs) if d != 1 else 0 for k, d in enumerate(shape))


def _eager(x: Any, shape: Shape, starts: Shape, steps: tuple[Shape, ...]) -> Any:
    first = x[tuple(slice(start, None) for start in starts)] if 0 not in shape else x
    strides = _moved(x.shape, x.strides, shape, starts, steps)
    if isinstance(x, np.ndarray):
        view = partial(np.lib.stride_tricks.as_strided, writeable=False)
    else:
        view = array_module("gpu0").lib.stride_tricks.as_strided
    return view(first, shape, strides)


strided = declare(
    Op(
        "strided",
        Kind.LAYOUT,
        _infer,
        _eager,
        differentiable=False,
        moves=_moved,
        meaning="Elements of `x`: along each axis of `x`, element ``(i, j, ...)`` of `shape` is at "
        "``start + i * step + j * step' + ...``, with the numbers of `starts` and `steps`. All places exist. "
        "What is indexed by places that count so becomes this; it is not recorded.",
    )
)
