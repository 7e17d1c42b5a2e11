"""Order: sorting, the first largest elements, where the extreme stands.

NaN counts as greater than every number, as in NumPy.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..ir import Kind, Op, Spec, dtypes
from ..ir.sizes import whole
from ..tensor import Tensor
from . import ordering
from .creation import along
from .declare import as_they_are, declare, normalize_axis, real
from .index import gather_, scatter_
from .layout import cut_along, reshape
from .primitives import eq, logical_not, logical_or, where
from .reduce import Axes, highest, reduce_max, reduce_min, reduced_shape

Shape = tuple[int, ...]


# sorting


def _order_infer(x: Spec, axis: int, descending: bool) -> Spec:
    return Spec(x.shape, dtypes.of_places(x.shape[axis]))


#: The promotion of what asks which number is greater.
_ordered = real(as_they_are)

argsort_ = declare(
    Op(
        "argsort",
        Kind.OPAQUE,
        _order_infer,
        ordering.order,
        promote=_ordered,
        differentiable=False,
        meaning="The places, in int32, or int64 beyond 2**31 elements, of the elements of `x` in order along "
        "`axis`: equal ones keep theirs, in both directions. NaN is greater than any number.",
    )
)


def _sorted_body(x: Tensor, axis: int, descending: bool) -> Tensor:
    return gather_(x, argsort_(x, axis=axis, descending=descending), axis=axis)


def _sorted_grad(g: Tensor, _y: Spec, x: Tensor, axis: int, descending: bool) -> tuple[Tensor]:
    return (scatter_(g, g, argsort_(x, axis=axis, descending=descending), axis=axis),)


sort_ = declare(
    Op(
        "sort",
        Kind.OPAQUE,
        lambda x, axis, descending: Spec(x.shape, x.dtype),
        ordering.sort,
        _sorted_grad,
        _sorted_body,
        promote=_ordered,
        meaning="The elements of `x` in order along `axis`, as ``argsort`` has it.",
    )
)


def _first(x: Any, k: int, axis: int, descending: bool) -> Any:
    _check_first(x.shape[axis], k)
    return ordering.first(x, k, axis, descending)


def _check_first(length: int, k: int) -> None:
    if not 0 <= k <= length:
        raise ShapeError(f"topk: k = {k} is out of range for an axis of length {length} (valid: 0..{length})")


def _first_infer(x: Spec, k: int, axis: int, descending: bool) -> Spec:
    _check_first(x.shape[axis], k)
    return Spec((*x.shape[:axis], k, *x.shape[axis + 1 :]), dtypes.of_places(x.shape[axis]))


argtopk = declare(
    Op(
        "argtopk",
        Kind.OPAQUE,
        _first_infer,
        _first,
        promote=_ordered,
        differentiable=False,
        meaning="The first `k` of the places that ``argsort`` gives.",
    )
)


def argsort(inp: Tensor, descending: bool = False, axis: int = -1) -> Tensor:
    """Return the int32 indices (int64 beyond 2**31) that sort `inp` along `axis`; the order is stable.

    Examples
    --------
    >>> F.argsort(mgb.tensor([2.0, -1.0, 0.0]))
    Tensor([1, 2, 0], dtype=int32, device=xpux:0)
    """
    return argsort_(inp, axis=normalize_axis("argsort", axis, inp.ndim)[0], descending=bool(descending))


def sort(inp: Tensor, descending: bool = False, dim: int = -1) -> tuple[Tensor, Tensor]:
    """Return `inp` in order along the axis `dim`.

    Returns
    -------
    values, indices : Tensor
        ``values = gather(inp, dim, indices)``; the indices are as those of `argsort`. The two zeros are
        equal: among the values they may stand in another order than the indices say.

    Examples
    --------
    >>> values, places = F.sort(mgb.tensor([2.0, -1.0, 0.0]))
    >>> values
    Tensor([-1.,  0.,  2.], device=xpux:0)
    >>> places
    Tensor([1, 2, 0], dtype=int32, device=xpux:0)
    """
    place = normalize_axis("sort", operator.index(dim), inp.ndim)[0]
    values = sort_(inp, axis=place, descending=bool(descending))
    return values, argsort_(inp, axis=place, descending=bool(descending))


def topk(
    inp: Tensor, k: int, descending: bool = True, kth_only: bool = False, no_sort: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the `k` greatest elements of the last axis, or the least.

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
        The indices are as those of `argsort`.

    Raises
    ------
    ShapeError
        `k` is negative, or with `kth_only` it is out of range of the axis.

    Examples
    --------
    >>> values, places = F.topk(mgb.tensor([2.0, -1.0, 5.0]), 2)
    >>> values
    Tensor([5., 2.], device=xpux:0)
    >>> places
    Tensor([2, 0], dtype=int32, device=xpux:0)
    """
    axis = normalize_axis("topk", -1, inp.ndim)[0]
    k = min(whole(k, "topk: k"), inp.shape[axis])
    indices = argtopk(inp, k=k, axis=axis, descending=bool(descending))
    if not kth_only:
        return gather_(inp, indices, axis=axis), indices
    if k == 0:
        raise ShapeError(f"topk: kth_only=True needs k >= 1 and a non-empty axis, got shape {inp.shape}")
    last = cut_along(indices, axis, k - 1, k)
    value, shape = gather_(inp, last, axis=axis), inp.shape[:-1]
    return reshape(value, shape=shape), reshape(last, shape=shape)


# where the extreme stands


def _place_infer(x: Spec, axis: Axes) -> Spec:
    if not all(x.shape[a] for a in axis):
        raise ShapeError(f"argmax or argmin of an empty array: shape {x.shape}, axis {axis}")
    return Spec(reduced_shape(x.shape, axis), _dtype_of(x.shape, axis))


def _place_body(x: Tensor, best: Tensor, axis: Axes) -> Tensor:
    """Return the first place among the folded axes that holds `best`, or NaN."""
    chosen = eq(x, best)
    if x.dtype in dtypes.FLOATS:
        chosen = logical_or(chosen, logical_not(eq(x, x)))
    dtype = _dtype_of(x.shape, axis)
    places = along(x.shape, axis, dtype, x.device)
    return reduce_min(where(chosen, places, int(highest(dtype))), axis=axis)


def _dtype_of(shape: Shape, axis: Axes) -> np.dtype[Any]:
    return dtypes.of_places(math.prod(shape[a] for a in axis))


def _place_eager(function: Any, x: Any, axis: Axes) -> Any:
    kept = tuple(i for i in range(x.ndim) if i not in axis)
    rows = x.transpose((*kept, *axis)).reshape(
        (*(x.shape[i] for i in kept), math.prod(x.shape[i] for i in axis))
    )
    return function(rows, axis=-1).astype(_dtype_of(x.shape, axis)).reshape(reduced_shape(x.shape, axis))


def _place_of(name: str, function: Any, reduction: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def eager(x: Any, axis: Axes) -> Any:
        return _place_eager(function, x, axis)

    def body(x: Tensor, axis: Axes) -> Tensor:
        return _place_body(x, reduction(x, axis=axis), axis)

    meaning = (
        "The place, in int32, or int64 beyond 2**31 elements, of the first "
        f"{'greatest' if function is np.argmax else 'least'} element, or "
        "of the first NaN, counted row-major among the axes `axis`."
    )
    return declare(
        Op(
            name,
            Kind.REDUCE,
            _place_infer,
            eager,
            body=body,
            promote=_ordered,
            differentiable=False,
            meaning=meaning,
        )
    )


argmax_ = _place_of("argmax", np.argmax, reduce_max)
argmin_ = _place_of("argmin", np.argmin, reduce_min)
