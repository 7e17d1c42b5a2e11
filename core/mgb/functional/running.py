"""Cumulative reductions along an axis."""

from __future__ import annotations

from collections.abc import Callable

from ..ir import dtypes
from ..ops.declare import normalize_axis
from ..ops.primitives import cast
from ..ops.scans import cummax_, cummin_, logcumsumexp_, places_of
from ..tensor import Tensor

__all__ = ["cummax", "cummin", "logcumsumexp"]


def _extreme(name: str, best_of: Callable[..., Tensor], inp: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    (place,) = normalize_axis(name, axis, inp.ndim)
    best = best_of(inp, axis=place)
    return best, places_of(inp, best, place)


def cummax(inp: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Return the greatest of all elements up to each, along `axis`, and where it stands.

    Returns
    -------
    values, indices : Tensor
        NaN counts as the greatest. The indices are int32: of equal elements the last, which has the gradient.

    Examples
    --------
    >>> values, places = F.cummax(mgb.tensor([1.0, 3.0, 2.0]), 0)
    >>> values.tolist(), places.tolist()
    ([1.0, 3.0, 3.0], [0, 1, 1])
    """
    return _extreme("cummax", cummax_, inp, axis)


def cummin(inp: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Return the least of all elements up to each, along `axis`, and where it stands; see `cummax`.

    Examples
    --------
    >>> values, places = F.cummin(mgb.tensor([3.0, 1.0, 2.0]), 0)
    >>> values.tolist(), places.tolist()
    ([3.0, 1.0, 1.0], [0, 1, 1])
    """
    return _extreme("cummin", cummin_, inp, axis)


def logcumsumexp(inp: Tensor, axis: int) -> Tensor:
    """Return the logarithms of cumulative sums of ``exp`` along `axis`, without overflow.

    Examples
    --------
    >>> F.logcumsumexp(mgb.tensor([[1.0, 2.0], [4.0, 3.0]]), axis=1)
    Tensor([[1.       , 2.3132617],
            [4.       , 4.3132615]], device=xpux:0)
    """
    x = inp if inp.dtype in dtypes.FLOATS else cast(inp, dtype=dtypes.float32)
    return logcumsumexp_(x, axis=normalize_axis("logcumsumexp", axis, x.ndim)[0])
