"""Reductions. Inside the IR every reduction keeps its axes with length 1, so that groups have one domain."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir import Kind, Op, Reduction, Spec, dtypes
from ..tensor import Tensor
from ..tensor.apply import apply
from .creation import full
from .declare import INTEGER, OPS, SAME, TOTAL, Typing, declare, op_of
from .layout import broadcast_to, concat, cut_along, reverse
from .primitives import add, cast, eq, maximum, minimum, mul, where

Axes = tuple[int, ...]


def reduced_shape(shape: tuple[int, ...], axis: Axes) -> tuple[int, ...]:
    """Return `shape` with length 1 along `axis`."""
    return tuple(1 if i in axis else d for i, d in enumerate(shape))


def _reduction(
    name: str,
    function: Callable[..., Any],
    typing: Typing,
    grad: Callable[..., Any],
    reduction: Reduction,
    meaning: str,
    **facts: Any,
) -> Callable[..., Tensor]:
    def infer(x: Spec, axis: Axes) -> Spec:
        return Spec(reduced_shape(x.shape, axis), x.dtype)

    def eager(x: Any, axis: Axes) -> Any:
        return function(x, axis) if axis else x.copy()

    return declare(
        Op(
            name,
            Kind.REDUCE,
            infer,
            eager,
            grad,
            promote=typing.promote,
            reduction=reduction,
            meaning=meaning,
            precision=typing.precision,
            **facts,
        )
    )


def _extreme(function: Callable[..., Any], x: Any, axis: Axes, of_nothing: Any) -> Any:
    if x.size == 0 and any(x.shape[a] == 0 for a in axis):
        return np.full_like(x, of_nothing, shape=reduced_shape(x.shape, axis))
    if (
        isinstance(x, np.ndarray) and x.ndim - 1 in axis
    ):  # CuPy has no `initial`; NumPy folds short rows faster
        return function(x, axis=axis, keepdims=True, initial=of_nothing)
    return function(x, axis=axis, keepdims=True)


def _sum(x: Any, axis: Axes) -> Any:
    return np.sum(x, axis=axis, keepdims=True, dtype=x.dtype)


def _prod(x: Any, axis: Axes) -> Any:
    return np.prod(x, axis=axis, keepdims=True, dtype=x.dtype)


def _max(x: Any, axis: Axes) -> Any:
    return _extreme(np.max, x, axis, lowest(x.dtype))


def _min(x: Any, axis: Axes) -> Any:
    return _extreme(np.min, x, axis, highest(x.dtype))


def lowest(dtype: np.dtype[Any]) -> Any:
    """Return the maximum of an empty array: minus infinity, or the least integer."""
    return False if dtype == dtypes.bool_ else -np.inf if dtype.kind in "fV" else int(np.iinfo(dtype).min)


def highest(dtype: np.dtype[Any]) -> Any:
    """Return the minimum of an empty array: infinity, or the greatest integer."""
    return True if dtype == dtypes.bool_ else np.inf if dtype.kind in "fV" else int(np.iinfo(dtype).max)


def _wider(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return float64 for float32."""
    return dtypes.float64 if dtype == dtypes.float32 else dtype


def _as_is(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype


# fmt: off
reduce_sum  = _reduction("reduce_sum",  _sum,  TOTAL, lambda g, _y, _x, axis: (_spread(g, _x),),
                         Reduction(op_of(add), lambda _dtype: 0, _wider),
                         "The sum along `axis`, in the order that suits, and of nothing 0. Integers wrap. "
                         "A sum that is 0 may have either sign.")
reduce_prod = _reduction("reduce_prod", _prod, TOTAL, lambda g, _y, x, axis: (_prod_grad(g, x, axis),),
                         Reduction(op_of(mul), lambda _dtype: 1, _wider),
                         "The product along `axis`, in the order that suits, and of nothing 1. Integers "
                         "wrap.")
reduce_max  = _reduction("reduce_max",  _max,  SAME,    lambda g, y, x, axis: (_shared(g, y, x, axis),),
                         Reduction(op_of(maximum), lowest, _as_is),
                         "The greatest along `axis`; NaN if one is NaN. Of nothing -infinity, the least "
                         "integer or False.", exact=True)
reduce_min  = _reduction("reduce_min",  _min,  SAME,    lambda g, y, x, axis: (_shared(g, y, x, axis),),
                         Reduction(op_of(minimum), highest, _as_is),
                         "The least along `axis`; NaN if one is NaN. Of nothing infinity, the greatest "
                         "integer or True.", exact=True)
# fmt: on


def _of_integers(
    name: str, function: Callable[..., Any], reduction: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    """Return `reduction` in 64 bits; NumPy widens in its cache, where a cast would write all elements."""

    def infer(x: Spec, axis: Axes) -> Spec:
        return Spec(reduced_shape(x.shape, axis), dtypes.summed(x.dtype))

    def eager(x: Any, axis: Axes) -> Any:
        wide = dtypes.summed(x.dtype)
        return function(x, axis=axis, keepdims=True, dtype=wide) if axis else x.astype(wide)

    def body(x: Tensor, axis: Axes) -> Tensor:
        return reduction(cast(x, dtype=dtypes.summed(x.dtype)), axis=axis)

    meaning = f"``{op_of(reduction).name}`` in 64 bits: int64 of bools and signed integers, else uint64."
    return declare(Op(name, Kind.REDUCE, infer, eager, None, body, INTEGER.promote, False, meaning=meaning))


integer_sum = _of_integers("integer_sum", np.sum, reduce_sum)
integer_product = _of_integers("integer_product", np.prod, reduce_prod)


def _extent_infer(x: Spec, axis: Axes) -> Spec:
    dtype = dtypes.real_of(x.dtype)
    return Spec(reduced_shape(x.shape, axis), dtype if dtype in dtypes.FLOATS else dtypes.float32)


def _extent_eager(x: Any, axis: Axes) -> Any:
    spec = _extent_infer(x, axis)
    return np.full_like(x, math.prod(x.shape[a] for a in axis), spec.dtype, shape=spec.shape)


#: An op, so that a kernel for ``mean`` serves every batch size.
EXTENT = Op(
    "extent",
    Kind.REDUCE,
    _extent_infer,
    _extent_eager,
    common=True,
    differentiable=False,
    cost=lambda _node: 0,
    meaning="How many elements of `x` stand along `axis`: the product of these lengths, as a number of the "
    "dtype of `x` if that is a float, else as float32. It reads no data.",
)

extent = declare(EXTENT)


def _spread(g: Tensor, like: Spec) -> Tensor:
    return broadcast_to(g, shape=like.shape)


def _shared(g: Tensor, y: Tensor, x: Tensor, axis: Axes) -> Tensor:
    """Return `g` in equal parts for the elements of `x` that are `y`."""
    chosen = eq(x, y)
    if not axis:
        return where(chosen, g, 0)
    counted = dtypes.float64 if x.dtype == dtypes.float64 else dtypes.float32  # a float16 ends at 65504
    count = reduce_sum(cast(chosen, dtype=counted), axis=axis)
    return where(chosen, cast(g / maximum(count, 1), dtype=g.dtype), 0)


def _prod_grad(g: Tensor, x: Tensor, axis: Axes) -> Tensor:
    """Return `g` times the product of the others: no division, so its derivatives are right next to zeros.

    The others along several axes are those along the last one and, of the products along it, the others.
    """
    wide = cast(x, dtype=dtypes.float32) if x.dtype in dtypes.HALVES else x
    others = None
    for i in reversed(axis):
        part = _others(wide, i)
        others, wide = part if others is None else others * part, reduce_prod(wide, axis=(i,))
    return g if others is None else g * cast(others, dtype=x.dtype)


def _others(x: Tensor, axis: int) -> Tensor:
    """Return for each element the product of all others along `axis`: of those before, times those after."""
    return _before(x, axis) * reverse(_before(reverse(x, (axis,)), axis), (axis,))


def _before(x: Tensor, axis: int) -> Tensor:
    """Return the product of all elements before each along `axis`."""
    one = full(reduced_shape(x.shape, (axis,)), 1, x.dtype, x.device)
    products = apply(OPS["cumprod"], x, axis=axis)  # by its name: its row is made of this one's
    return cut_along(concat(one, products, axis=axis), axis, 0, x.shape[axis])
