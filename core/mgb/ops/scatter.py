"""Elements that are combined where an index puts several of them: sums, products, means, extremes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import ConversionError
from ..ir import Kind, Op, Spec, dtypes
from ..runtime import device as devices
from ..tensor import Tensor
from .bodies.division import floor_div
from .creation import ones_like, zeros_like
from .declare import declare, normalize_axis, real
from .index import _check_scatter, _grid, _like_first, gather_, scatter_, scatter_add_
from .primitives import cast, eq, maximum, where
from .reduce import highest, lowest

_FOLDS: dict[str, np.ufunc] = {"prod": np.multiply, "max": np.maximum, "min": np.minimum}


def _infer(x: Spec, value: Spec, index: Spec, axis: int, fold: str) -> Spec:
    _check_scatter(x, value, index, axis)
    return Spec(x.shape, x.dtype)


def _eager(x: Any, value: Any, index: Any, axis: int, fold: str) -> Any:
    """Scatter by CuPy for sums; on the host for other reductions, which CuPy lacks at repeated indices."""
    _check_scatter(x, value, index, axis)
    if not isinstance(x, np.ndarray):
        host = [devices.to_host(a) for a in (x, value, index)]
        made = _eager(host[0], host[1], host[2], axis, fold)
        return devices.place(made, devices.where(x))
    out = x.copy()
    _FOLDS[fold].at(out, _grid(index, axis), value)
    return out


def _grad(
    g: Tensor, y: Tensor, x: Tensor, value: Tensor, index: Tensor, axis: int, fold: str
) -> tuple[Tensor, Tensor, None]:
    rule = _product_grad if fold == "prod" else _extreme_grad
    return (*rule(g, y, x, value, index, axis), None)


def _extreme_grad(
    g: Tensor, y: Tensor, x: Tensor, value: Tensor, index: Tensor, axis: int
) -> tuple[Tensor, Tensor]:
    """Return equal parts for the elements that are the extreme, as in torch."""
    own, found = eq(x, y), eq(value, gather_(y, index, axis=axis))
    parts = scatter_add_(cast(own, dtype=g.dtype), cast(found, dtype=g.dtype), index, axis=axis)
    share = g / maximum(parts, 1)
    return where(own, share, 0), where(found, gather_(share, index, axis=axis), 0)


def _product_grad(
    g: Tensor, y: Tensor, x: Tensor, value: Tensor, index: Tensor, axis: int
) -> tuple[Tensor, Tensor]:
    """Return the product of the others; where one factor is 0, without a division."""
    none, nothing = eq(x, 0), eq(value, 0)
    zeros = scatter_add_(cast(none, dtype=dtypes.int32), cast(nothing, dtype=dtypes.int32), index, axis=axis)
    rest = scatter_fold(where(none, 1, x), where(nothing, 1, value), index, axis=axis, fold="prod")
    alone, whole = g * where(eq(zeros, 1), rest, 0), g * where(eq(zeros, 0), y, 0)
    alone_there, whole_there = (gather_(part, index, axis=axis) for part in (alone, whole))
    of_value = where(nothing, alone_there, whole_there / where(nothing, 1, value))
    return where(none, alone, whole / where(none, 1, x)), of_value


scatter_fold = declare(
    Op(
        "scatter_fold",
        Kind.OPAQUE,
        _infer,
        _eager,
        _grad,
        promote=real(_like_first),
        meaning="As `scatter_add`, but multiplies, or takes the greater or the smaller: `fold` is prod, max "
        "or min.",
    )
)

_IDENTITIES: dict[str, Callable[[np.dtype[Any]], Any]] = {
    "sum": lambda _dtype: 0,
    "mean": lambda _dtype: 0,
    "prod": lambda _dtype: 1,
    "amax": lowest,
    "amin": highest,
}


def scatter_reduce(
    inp: Tensor, axis: int, index: Tensor, source: Tensor, reduce: str, include_self: bool = True
) -> Tensor:
    """Reduce into `inp` all elements of `source` that `index` puts at one position, as in torch.

    Parameters
    ----------
    inp : Tensor
        The elements.
    axis : int
        Along which `index` counts.
    index : integer Tensor
        As many axes as `inp`, and nowhere longer, except along `axis`.
    source : Tensor of the shape of `index`
        Several elements of it may belong to one place.
    reduce : str
        ``"sum"``, ``"prod"``, ``"mean"``, ``"amax"`` or ``"amin"``. The mean of integers is rounded down.
    include_self : bool
        False: where anything is put, the elements of `inp` do not count.

    Returns
    -------
    Tensor of the shape and dtype of `inp`
        Extremes that are equal share the gradient evenly.

    Raises
    ------
    IndexError
        An index is out of range.
    ValueError
        The reduction is not one of the known ones.

    Examples
    --------
    >>> x, index = mgb.tensor([1.0, 1.0]), mgb.tensor([0, 0, 1])
    >>> mgb.functional.scatter_reduce(x, 0, index, mgb.tensor([2.0, 5.0, -1.0]), "amax")
    Tensor([5., 1.], device=xpux:0)
    """
    if reduce not in _IDENTITIES:
        raise ValueError(f"scatter_reduce: reduce is one of {', '.join(_IDENTITIES)}, not {reduce!r}")
    (place,) = normalize_axis("scatter_reduce", axis, inp.ndim)
    if inp.dtype == dtypes.bool_:
        raise ConversionError("scatter_reduce: combines numbers, got bool: cast it with astype")
    base = inp
    if not include_self:
        nothing = zeros_like(source, dtype=inp.dtype) + _IDENTITIES[reduce](inp.dtype)
        base = scatter_(inp, nothing, index, axis=place)
    if reduce in ("prod", "amax", "amin"):
        return scatter_fold(base, source, index, axis=place, fold=reduce.removeprefix("a"))
    total = scatter_add_(base, source, index, axis=place)
    if reduce == "sum":
        return total
    counted = dtypes.int32 if inp.dtype in dtypes.INTEGERS else inp.dtype
    ones = ones_like(inp, dtype=counted)
    if not include_self:
        ones = scatter_(ones, zeros_like(source, dtype=counted), index, axis=place)
    count = scatter_add_(ones, ones_like(source, dtype=counted), index, axis=place)
    count = where(eq(count, 0), 1, count)
    return cast(floor_div(total, count), dtype=inp.dtype) if inp.dtype in dtypes.INTEGERS else total / count
