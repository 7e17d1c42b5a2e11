"""What is folded up to each element along an axis."""

from __future__ import annotations

from collections.abc import Callable

from .. import dtypes
from ..ops.creation import along
from ..ops.declare import normalize_axis
from ..ops.elementwise import isnan, logaddexp
from ..ops.index import gather_
from ..ops.layout import broadcast_to, concat, cut_along
from ..ops.primitives import cast, eq, maximum, minimum, where
from ..tensor import Tensor

__all__ = ["cummax", "cummin", "logcumsumexp"]


def running(join: Callable[[Tensor, Tensor], Tensor], inp: Tensor, axis: int) -> Tensor:
    """All elements up to each, joined by `join`, along the axis `axis`.

    After `k` steps each element is made of ``2**k``: a step for each doubling of the length.
    """
    out, length, reach = +inp, inp.shape[axis], 1
    while reach < length:
        far, near = cut_along(out, axis, 0, length - reach), cut_along(out, axis, 0, reach)
        out = concat(near, join(far, cut_along(out, axis, reach, length)), axis=axis)
        reach *= 2
    return out


def _extreme(
    name: str, join: Callable[[Tensor, Tensor], Tensor], inp: Tensor, axis: int
) -> tuple[Tensor, Tensor]:
    (place,) = normalize_axis(name, axis, inp.ndim)
    best = running(join, inp, place)
    reached = eq(inp, best)
    if inp.dtype in dtypes.FLOATS:
        reached = reached | isnan(inp)
    places = broadcast_to(along(inp.shape, (place,), dtypes.int32, inp.device), shape=inp.shape)
    indices = running(maximum, where(reached, places, 0), place)
    return gather_(inp, indices, axis=place), indices


def cummax(inp: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The greatest of all elements up to each, along `axis`, and where it stands.

    Returns
    -------
    values, indices : Tensor
        NaN counts as the greatest. The indices are int32: of equal elements the last, which has the gradient.
    """
    return _extreme("cummax", maximum, inp, axis)


def cummin(inp: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The least of all elements up to each, along `axis`, and where it stands; see `cummax`."""
    return _extreme("cummin", minimum, inp, axis)


def logcumsumexp(inp: Tensor, axis: int) -> Tensor:
    """The logarithms of the sums of ``exp`` of all elements up to each, along `axis`, without overflow."""
    x = inp if inp.dtype in dtypes.FLOATS else cast(inp, dtype=dtypes.float32)
    return running(logaddexp, x, normalize_axis("logcumsumexp", axis, x.ndim)[0])
