"""Order: sorting, the first largest elements, where the extreme stands, running sums.

NaN counts as greater than every number, as in NumPy.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import ShapeError
from ..ir import Kind, Op, Spec
from ..tensor import Tensor
from . import ordering
from .creation import along
from .declare import declare, normalize_axis
from .eager import running_sum
from .index import gather_, scatter_
from .layout import cut_along, reshape, reverse
from .methods import accumulated
from .primitives import eq, logical_not, logical_or, where
from .reduce import Axes, highest, reduce_max, reduce_min, reduced_shape

Shape = tuple[int, ...]


# sorting


def _order_infer(x: Spec, axis: int, descending: bool) -> Spec:
    return Spec(x.shape, dtypes.int32)


argsort_ = declare(Op("argsort", Kind.OPAQUE, _order_infer, ordering.order, differentiable=False))


def _sorted_body(x: Tensor, axis: int, descending: bool) -> Tensor:
    return gather_(x, argsort_(x, axis=axis, descending=descending), axis=axis)


def _sorted_grad(g: Tensor, _y: Spec, x: Tensor, axis: int, descending: bool) -> tuple[Tensor]:
    return (scatter_(g, g, argsort_(x, axis=axis, descending=descending), axis=axis),)


#: ``sort(x, axis=, descending=)``: the elements in order.
sort_ = declare(
    Op(
        "sort",
        Kind.OPAQUE,
        lambda x, axis, descending: Spec(x.shape, x.dtype),
        ordering.sort,
        _sorted_grad,
        _sorted_body,
    )
)


def _first(x: Any, k: int, axis: int, descending: bool) -> Any:
    _check_first(x.shape[axis], k)
    return ordering.first(x, k, axis, descending)


def _check_first(length: int, k: int) -> None:
    if not 0 <= k <= length:
        raise ShapeError(f"topk: k = {k} of an axis of length {length}")


def _first_infer(x: Spec, k: int, axis: int, descending: bool) -> Spec:
    _check_first(x.shape[axis], k)
    return Spec((*x.shape[:axis], k, *x.shape[axis + 1 :]), dtypes.int32)


#: ``argtopk(x, k=, axis=, descending=)``: where the first `k` elements in order stand.
argtopk = declare(Op("argtopk", Kind.OPAQUE, _first_infer, _first, differentiable=False))


def argsort(inp: Tensor, descending: bool = False, axis: int = -1) -> Tensor:
    """The int32 indices that put `inp` in order along `axis`; the order is stable."""
    return argsort_(inp, axis=normalize_axis("argsort", axis, inp.ndim)[0], descending=bool(descending))


def sort(inp: Tensor, descending: bool = False, dim: int = -1) -> tuple[Tensor, Tensor]:
    """`inp` in order along the axis `dim`.

    Returns
    -------
    values, indices : Tensor
        ``values = gather(inp, dim, indices)``; the indices are int32. The two zeros are equal: among the
        values they may stand in another order than the indices say.
    """
    place = normalize_axis("sort", operator.index(dim), inp.ndim)[0]
    values = sort_(inp, axis=place, descending=bool(descending))
    return values, argsort_(inp, axis=place, descending=bool(descending))


def topk(
    inp: Tensor, k: int, descending: bool = True, kth_only: bool = False, no_sort: bool = False
) -> tuple[Tensor, Tensor]:
    """The `k` greatest elements of the last axis, or the least.

    Parameters
    ----------
    inp : Tensor of shape (..., n)
        The elements.
    k : int
        Of more than n there are n.
    descending : bool
        The greatest ones, the greatest of all first; False: the least ones, the least of all first.
    kth_only : bool
        Only the `k`-th, of shape (...).
    no_sort : bool
        Their order does not matter; they are in order nevertheless.

    Returns
    -------
    values, indices : Tensor of shape (..., min(k, n)), or (...) with `kth_only`
        The indices are int32.

    Raises
    ------
    ShapeError
        `k` is negative, or with `kth_only` there is no element that it counts to.
    """
    axis = normalize_axis("topk", -1, inp.ndim)[0]
    k = min(int(k), inp.shape[axis])
    indices = argtopk(inp, k=k, axis=axis, descending=bool(descending))
    if not kth_only:
        return gather_(inp, indices, axis=axis), indices
    if k == 0:
        raise ShapeError(f"topk: no k-th element of {inp.shape}: kth_only=True takes k from 1 on, of some")
    last = cut_along(indices, axis, k - 1, k)
    value, shape = gather_(inp, last, axis=axis), inp.shape[:-1]
    return reshape(value, shape=shape), reshape(last, shape=shape)


# where the extreme stands


def _place_infer(x: Spec, axis: Axes) -> Spec:
    if not all(x.shape[a] for a in axis):
        raise ShapeError(f"argmax or argmin of nothing: {x.shape} has no elements along {axis}")
    return Spec(reduced_shape(x.shape, axis), dtypes.int32)


def _place_body(x: Tensor, best: Tensor, axis: Axes) -> Tensor:
    """The first place among the folded axes that holds `best`, or NaN."""
    chosen = eq(x, best)
    if x.dtype in dtypes.FLOATS:
        chosen = logical_or(chosen, logical_not(eq(x, x)))
    places = along(x.shape, axis, dtypes.int32, x.device)
    return reduce_min(where(chosen, places, int(highest(dtypes.int32))), axis=axis)


def _place_eager(function: Any, x: Any, axis: Axes) -> Any:
    kept = tuple(i for i in range(x.ndim) if i not in axis)
    rows = x.transpose((*kept, *axis)).reshape(
        (*(x.shape[i] for i in kept), math.prod(x.shape[i] for i in axis))
    )
    return function(rows, axis=-1).astype(np.int32).reshape(reduced_shape(x.shape, axis))


def _place_of(name: str, function: Any, reduction: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def eager(x: Any, axis: Axes) -> Any:
        return _place_eager(function, x, axis)

    def body(x: Tensor, axis: Axes) -> Tensor:
        return _place_body(x, reduction(x, axis=axis), axis)

    return declare(Op(name, Kind.REDUCE, _place_infer, eager, body=body, differentiable=False))


#: ``argmax(x, axis=)`` and ``argmin(x, axis=)``: the row-major place among the axes that are folded.
argmax_ = _place_of("argmax", np.argmax, reduce_max)
argmin_ = _place_of("argmin", np.argmin, reduce_min)


# running sums


def _cumsum_grad(g: Tensor, _y: Spec, _x: Spec, axis: int) -> tuple[Tensor]:
    return (reverse(cumsum_(reverse(g, (axis,)), axis=axis), (axis,)),)


cumsum_ = declare(
    Op(
        "cumsum",
        Kind.OPAQUE,
        lambda x, axis: Spec(x.shape, x.dtype),
        running_sum,
        _cumsum_grad,
    )
)


def cumsum(inp: Tensor, axis: int) -> Tensor:
    """The sums of all elements up to each, along `axis`; those of integers have 64 bits, as in NumPy."""
    return cumsum_(accumulated(inp), axis=normalize_axis("cumsum", axis, inp.ndim)[0])
