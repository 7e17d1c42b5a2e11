"""Reductions, running sums, softmax and its like."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from mgb import dtypes
from mgb.functional import softmaxes
from mgb.ops import elementwise as words
from mgb.ops.bodies.transcendental import log
from mgb.ops.creation import along
from mgb.ops.declare import normalize_axis
from mgb.ops.layout import concat, cut_along, reshape, reverse
from mgb.ops.methods import average
from mgb.ops.primitives import cast, eq, mul, sqrt
from mgb.ops.reduce import Axes, reduce_max, reduce_min, reduce_prod, reduce_sum
from mgb.ops.scans import cumsum_
from mgb.ops.sort import argmax_, argmin_
from mgb.tensor import Tensor

from ..values import Host
from .elementwise import ints, like, number
from .table import operator


def _mean(x: Tensor, axis: Axes) -> Tensor:
    return like(average(x, axis), x)


_REDUCTIONS: dict[str, Callable[[Tensor, Axes], Tensor]] = {
    "ReduceL1": lambda x, axis: reduce_sum(words.abs(x), axis=axis),
    "ReduceL2": lambda x, axis: like(sqrt(reduce_sum(words.square(x), axis=axis)), x),
    "ReduceLogSum": lambda x, axis: like(log(reduce_sum(x, axis=axis)), x),
    "ReduceLogSumExp": lambda x, axis: like(softmaxes.logsumexp(_float(x), axis, True), x),
    "ReduceMax": lambda x, axis: reduce_max(x, axis=axis),
    "ReduceMean": _mean,
    "ReduceMin": lambda x, axis: reduce_min(x, axis=axis),
    "ReduceProd": lambda x, axis: reduce_prod(x, axis=axis),
    "ReduceSum": lambda x, axis: reduce_sum(x, axis=axis),
    "ReduceSumSquare": lambda x, axis: reduce_sum(words.square(x), axis=axis),
}


def _float(x: Tensor) -> Tensor:
    return x if x.dtype in dtypes.FLOATS else cast(x, dtype=dtypes.float64)


def _declare(name: str, reduction: Callable[[Tensor, Axes], Tensor]) -> None:
    def row(
        x: Tensor, axes: Host | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        given = () if axes is None else ints(axes)
        axis = normalize_axis(name, given if given or noop_with_empty_axes else None, x.ndim)
        return without(reduction(x, axis), () if keepdims else axis)

    operator(name)(row)


for _name, _reduction in _REDUCTIONS.items():
    _declare(_name, _reduction)


def without(x: Tensor, axes: Axes) -> Tensor:
    """Return `x` without `axes`, whose lengths are 1."""
    if not axes:
        return x
    return reshape(x, shape=tuple(d for i, d in enumerate(x.shape) if i not in axes))


# where the extreme stands


def _declare_place(name: str, place: Callable[..., Tensor]) -> None:
    def row(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        axes = normalize_axis(name, axis, x.ndim)
        if select_last_index:
            out = x.shape[axes[0]] - 1 - place(reverse(x, axes), axis=axes)
        else:
            out = place(x, axis=axes)
        return without(cast(out, dtype=dtypes.int64), () if keepdims else axes)

    operator(name)(row)


_declare_place("ArgMax", argmax_)
_declare_place("ArgMin", argmin_)


# running sums


@operator("CumSum")
def cumsum(x: Tensor, axis: Host, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _running(_sums, 0, x, axis, exclusive, reverse)


@operator("CumProd")
def cumprod(x: Tensor, axis: Host, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _running(_products, 1, x, axis, exclusive, reverse)


def _sums(x: Tensor, axis: int) -> Tensor:
    return cumsum_(x, axis=axis)


def _products(x: Tensor, axis: int) -> Tensor:
    """Return each element times those before it, in steps that double the reach."""
    reach = 1
    while reach < x.shape[axis]:
        head = cut_along(x, axis, 0, reach)
        tail = mul(cut_along(x, axis, reach, x.shape[axis]), cut_along(x, axis, 0, x.shape[axis] - reach))
        x, reach = concat(head, tail, axis=axis), 2 * reach
    return x


def _running(
    scan: Callable[[Tensor, int], Tensor], neutral: int, x: Tensor, axis: Host, exclusive: int, backwards: int
) -> Tensor:
    (place,) = normalize_axis("CumSum", int(number(axis)), x.ndim)
    if backwards:
        x = reverse(x, (place,))
    if exclusive and x.shape[place]:
        first = cut_along(x, place, 0, 1)
        first = first * 0 + neutral if neutral else first * 0
        x = concat(like(first, x), cut_along(x, place, 0, x.shape[place] - 1), axis=place)
    out = scan(x, place)
    return reverse(out, (place,)) if backwards else out


# softmax


@operator("Softmax")
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return softmaxes.softmax(x, axis)


@operator("LogSoftmax")
def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return softmaxes.logsoftmax(x, axis)


@operator("Hardmax")
def hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    axes = normalize_axis("Hardmax", axis, x.ndim)
    first = argmax_(x, axis=axes)
    return cast(eq(along(x.shape, axes, np.int32, x.device), first), dtype=x.dtype)
