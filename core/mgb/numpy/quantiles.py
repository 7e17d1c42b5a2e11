"""Quantiles, by the rules of NumPy's `method`; the arguments are NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..functional import math
from ..ir import dtypes
from ..ops import elementwise as e
from ..ops.declare import normalize_axis
from ..ops.index import gather_
from ..ops.layout import broadcast_to, reshape, transpose
from ..ops.primitives import cast, eq, floor, maximum, minimum, where
from ..ops.primitives import round as round_even
from ..ops.reduce import extent
from ..tensor import Tensor
from ..tensor.apply import literal

#: The places of Hyndman and Fan, "Sample quantiles in statistical packages" (1996), by their alpha and beta.
_CONTINUOUS = {
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "linear": (1.0, 1.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}

#: From the number of elements and the quantiles to places among the elements in order.
_PLACES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "inverted_cdf": lambda n, q: e.ceil(n * q) - 1,
    "averaged_inverted_cdf": lambda n, q: _halves(n * q - 1, whole=0.5, other=1.0),
    "lower": lambda n, q: floor((n - 1) * q),
    "higher": lambda n, q: e.ceil((n - 1) * q),
    "midpoint": lambda n, q: _halves((n - 1) * q, whole=0.0, other=0.5),
    "nearest": lambda n, q: round_even((n - 1) * q),
}


def _halves(place: Tensor, whole: float, other: float) -> Tensor:
    """Round `place` down and add `whole` where it was an integer, `other` elsewhere."""
    before = floor(place)
    return before + where(eq(place, before), whole, other)


def _place(method: str, n: Tensor, q: Tensor) -> Tensor:
    if method in _CONTINUOUS:
        alpha, beta = _CONTINUOUS[method]
        return n * q + (alpha + q * (1 - alpha - beta)) - 1
    if method in _PLACES:
        return _PLACES[method](n, q)
    raise ValueError(f"quantile: method is one of {', '.join((*_CONTINUOUS, *_PLACES))}, not {method!r}")


def _quantile(x: Tensor, q: Tensor, axis: Any, method: str, keepdims: bool, skip: bool) -> Tensor:
    axes = normalize_axis("quantile", axis, x.ndim)
    kept = tuple(i for i in range(x.ndim) if i not in axes)
    x = x if x.dtype in dtypes.FLOATS else cast(x, dtype=dtypes.float32)
    left, length = tuple(x.shape[i] for i in kept), prod([x.shape[i] for i in axes])
    if not length:
        raise ShapeError(f"quantile of an empty array: shape {x.shape}, axis {axes}")
    shape = tuple(1 if i in axes else d for i, d in enumerate(x.shape)) if keepdims else left
    rows = reshape(transpose(x, axes=(*kept, *axes)), shape=(*left, length))
    none = math.sum(e.isnan(rows), -1, keepdims=True).astype("float64")
    count = extent(cast(rows, dtype=dtypes.float64), axis=(rows.ndim - 1,))
    n = count - none if skip else count
    values = _at(math.sort(rows, dim=-1)[0], _place(method, n, reshape(q, shape=(q.size,))), n)
    missing = eq(n, 0) if skip else e.gt(none, 0)
    values = where(missing, np.nan, values)
    first = transpose(values, axes=(len(left), *range(len(left))))
    return reshape(first, shape=(*q.shape, *shape))


def _at(ordered: Tensor, place: Tensor, n: Tensor) -> Tensor:
    """Interpolate linearly between the elements next to each position."""
    place = broadcast_to(place, shape=(*ordered.shape[:-1], place.shape[-1]))
    place = maximum(minimum(place, n - 1), 0.0)
    before = floor(place)
    low, high = (
        gather_(ordered, cast(i, dtype=dtypes.int32), axis=ordered.ndim - 1) for i in (before, e.ceil(place))
    )
    return where(eq(low, high), low, low + (high - low) * cast(place - before, dtype=ordered.dtype))


def quantiles(share: float, skip: bool) -> Callable[..., Tensor]:
    """Make ``np.quantile`` and the like: `q` times `share`, without what is NaN if `skip`."""

    def found(a: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False) -> Tensor:
        x = a if isinstance(a, Tensor) else literal(a)
        if not isinstance(q, Tensor):
            given = np.asarray(q, np.float64)
            if given.size and not (given.min() >= 0 and given.max() * share <= 1):
                raise ValueError(f"quantile: q must be between 0 and {1 / share:g}, got {q}")
            q = literal(given, dtypes.float64, x.device)
        return _quantile(x, q.astype("float64") * share, axis, method, keepdims, skip)

    return found


def nanmedian(a: Tensor, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """Return the median of the elements that are not NaN."""
    return quantiles(1.0, skip=True)(a, 0.5, axis, keepdims=keepdims)
