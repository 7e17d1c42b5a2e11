"""NumPy's reductions of what is not NaN; the arguments are NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..functional import math
from ..ir import dtypes
from ..ops import methods
from ..ops.elementwise import isnan, squared_magnitude
from ..ops.methods import Axis
from ..ops.primitives import cast, eq, sqrt, where
from ..tensor import Tensor
from . import compositions as c

__all__ = [
    "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmin", "nanprod",
    "nanstd", "nansum", "nanvar",
]  # fmt: skip


def _holes(a: Tensor) -> Tensor | None:
    """Return where it is NaN; None of integers."""
    return isnan(a) if a.dtype in dtypes.INEXACT else None


def _filled(a: Tensor, value: float) -> Tensor:
    holes = _holes(a)
    return a if holes is None else where(holes, value, a)


def folded(function: Callable[..., Tensor], nothing: float) -> Callable[..., Tensor]:
    """Make `function` of what is not NaN; NaN counts as `nothing`."""

    def reduced(a: Any, axis: Axis = None, dtype: Any = None, *, keepdims: bool = False) -> Tensor:
        return function(_filled(c.as_tensor(a), nothing), axis, keepdims, dtype=dtype)

    return reduced


def running(function: Callable[..., Tensor], nothing: float) -> Callable[..., Tensor]:
    """Make the cumulative version of `folded`."""

    def accumulated(a: Any, axis: int | None = None, dtype: Any = None) -> Tensor:
        return function(_filled(c.as_tensor(a), nothing), axis, dtype)

    return accumulated


nansum, nanprod = folded(methods.sum, 0), folded(methods.prod, 1)
nancumsum, nancumprod = running(c.cumsum, 0), running(c.cumprod, 1)


def extreme(function: Callable[..., Tensor], bound: float) -> Callable[..., Tensor]:
    """Make `min` or `max` of what is not NaN; NaN where all is."""

    def reduced(a: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
        a = c.as_tensor(a)
        holes = _holes(a)
        if holes is None:
            return function(a, axis, keepdims)
        return where(
            math.all(holes, axis, keepdims), np.nan, function(where(holes, bound, a), axis, keepdims)
        )

    return reduced


nanmax, nanmin = extreme(math.max, -np.inf), extreme(math.min, np.inf)


def place(function: Callable[..., Tensor], bound: float) -> Callable[..., Tensor]:
    """Make `argmin` or `argmax` of what is not NaN; -1 where all is, as in JAX."""

    def found(a: Any, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
        a = c.as_tensor(a)
        holes = _holes(a)
        if holes is None:
            return function(a, axis, keepdims)
        return where(math.all(holes, axis, keepdims), -1, function(where(holes, bound, a), axis, keepdims))

    return found


nanargmax, nanargmin = place(math.argmax, -np.inf), place(math.argmin, np.inf)


def _moments(a: Any, axis: Axis, dtype: Any) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Return `a` as floats, where it is NaN, and along `axis` how many are not and their mean."""
    a = c.as_tensor(a)
    a = (
        a.astype(dtype)
        if dtype is not None
        else a
        if a.dtype in dtypes.INEXACT
        else cast(a, dtype=dtypes.float32)
    )
    holes = _holes(a)
    assert holes is not None
    count = math.sum(~holes, axis, keepdims=True).astype(dtypes.real_of(a.dtype))
    return a, holes, count, math.sum(where(holes, 0, a), axis, keepdims=True) / count


def _fitted(out: Tensor, a: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    """Remove the axes of length 1 that were reduced."""
    return out if keepdims else math.sum(out, axis)


def nanmean(a: Any, axis: Axis = None, dtype: Any = None, *, keepdims: bool = False) -> Tensor:
    """Return the mean of what is not NaN; NaN where all is."""
    a, _, _, mean = _moments(a, axis, dtype)
    return _fitted(mean, a, axis, keepdims)


def nanvar(
    a: Any, axis: Axis = None, dtype: Any = None, *, ddof: float = 0, keepdims: bool = False
) -> Tensor:
    """Return the mean squared distance from the mean of what is not NaN.

    NaN where no more than `ddof` are not.
    """
    a, holes, count, mean = _moments(a, axis, dtype)
    distance = where(holes, 0, a - mean)
    degrees = count - ddof
    out = math.sum(squared_magnitude(distance), axis, keepdims=True) / where(degrees > 0, degrees, np.nan)
    return _fitted(out, a, axis, keepdims)


def nanstd(
    a: Any, axis: Axis = None, dtype: Any = None, *, ddof: float = 0, keepdims: bool = False
) -> Tensor:
    """Return the square root of `nanvar`; its slope at 0 counts as 0."""
    variance = nanvar(a, axis, dtype, ddof=ddof, keepdims=keepdims)
    zero = eq(variance, 0)
    return where(zero, 0, sqrt(where(zero, 1, variance)))
