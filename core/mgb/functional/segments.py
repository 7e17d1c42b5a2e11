"""Folds of the elements that belong to the same segment."""

from __future__ import annotations

from typing import Any

from ..errors import ConversionError, ShapeError
from ..ir import dtypes
from ..ir.sizes import same_shape
from ..ops.creation import full
from ..ops.index import index_add
from ..ops.layout import broadcast_to, reshape
from ..ops.reduce import highest, lowest
from ..ops.scatter import scatter_fold
from ..tensor import Tensor

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]


def segment_sum(inp: Tensor, segment_ids: Tensor, num_segments: int | None = None) -> Tensor:
    """Sum the elements of each segment.

    Parameters
    ----------
    inp : Tensor of numbers
        Its leading axes are those of `segment_ids`.
    segment_ids : integer Tensor
        To which segment each element, or row, of `inp` belongs, in any order. Negative ones count from the
        end.
    num_segments : int, optional
        How many segments there are. If it is left out, the greatest id is read, which ends a trace there.

    Returns
    -------
    Tensor of shape (num_segments, ...)
        Of the dtype of `inp`; the other axes follow. Of a segment without elements it is 0. In which order
        floats are added depends on the shapes, never on the number of threads.

    Raises
    ------
    IndexError
        An id is out of range: nothing is left out silently.
    ShapeError
        The ids do not have the leading axes of `inp`.

    Examples
    --------
    >>> ids = mgb.tensor([0, 2, 0], dtype="int32")
    >>> F.segment_sum(mgb.tensor([1.0, 2.0, 3.0]), ids, 4)
    Tensor([4., 0., 2., 0.], device=xpux:0)
    """
    rows, ids, nothing = _rows("segment_sum", inp, segment_ids, num_segments, lambda _dtype: 0)
    return index_add(nothing, rows, ids, axes=(0,), place=0)


def segment_prod(inp: Tensor, segment_ids: Tensor, num_segments: int | None = None) -> Tensor:
    """Multiply the elements of each segment, which is 1 without elements; see `segment_sum`.

    Examples
    --------
    >>> ids = mgb.tensor([0, 2, 0], dtype="int32")
    >>> F.segment_prod(mgb.tensor([1.0, 2.0, 3.0]), ids, 3)
    Tensor([3., 1., 2.], device=xpux:0)
    """
    return _folded("prod", inp, segment_ids, num_segments, lambda _dtype: 1)


def segment_max(inp: Tensor, segment_ids: Tensor, num_segments: int | None = None) -> Tensor:
    """Return the greatest element of each segment; see `segment_sum`.

    Returns
    -------
    Tensor of shape (num_segments, ...)
        NaN where an element is NaN. Without elements it is minus infinity or the least integer. Equal
        elements share the gradient.

    Examples
    --------
    >>> ids = mgb.tensor([0, 2, 0], dtype="int32")
    >>> F.segment_max(mgb.tensor([1.0, 2.0, 3.0]), ids, 3)
    Tensor([  3., -inf,   2.], device=xpux:0)
    """
    return _folded("max", inp, segment_ids, num_segments, lowest)


def segment_min(inp: Tensor, segment_ids: Tensor, num_segments: int | None = None) -> Tensor:
    """Return the least element of each segment; see `segment_max`.

    Examples
    --------
    >>> ids = mgb.tensor([0, 2, 0], dtype="int32")
    >>> F.segment_min(mgb.tensor([1.0, 2.0, 3.0]), ids, 3)
    Tensor([ 1., inf,  2.], device=xpux:0)
    """
    return _folded("min", inp, segment_ids, num_segments, highest)


def _folded(fold: str, inp: Tensor, segment_ids: Tensor, num_segments: int | None, identity: Any) -> Tensor:
    rows, ids, nothing = _rows(f"segment_{fold}", inp, segment_ids, num_segments, identity)
    index = broadcast_to(reshape(ids, shape=(*ids.shape, *(1,) * (rows.ndim - 1))), shape=rows.shape)
    return scatter_fold(nothing, rows, index, axis=0, fold=fold)


def _rows(
    name: str, inp: Tensor, segment_ids: Tensor, num_segments: int | None, identity: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the elements with one axis for the ids, the ids, and what is folded where there are none."""
    if inp.dtype == dtypes.bool_:
        raise ConversionError(f"{name}: inp has numbers, got bool: cast it with astype")
    if segment_ids.dtype not in dtypes.INTEGERS:
        raise IndexError(f"{name}: segment_ids must be of an integer type, got {segment_ids.dtype}")
    if not segment_ids.ndim or not same_shape(inp.shape[: segment_ids.ndim], segment_ids.shape):
        raise ShapeError(
            f"{name}: segment_ids has the leading axes of inp, got {segment_ids.shape} and {inp.shape}"
        )
    if num_segments is None:
        num_segments = int(segment_ids.numpy().max()) + 1 if segment_ids.size else 0
    if num_segments < 0:
        raise ShapeError(f"{name}: num_segments must be at least 0, got {num_segments}")
    rest = inp.shape[segment_ids.ndim :]
    rows = reshape(inp, shape=(segment_ids.size, *rest)) if segment_ids.ndim > 1 else inp
    ids = reshape(segment_ids, shape=(segment_ids.size,)) if segment_ids.ndim > 1 else segment_ids
    return rows, ids, full((num_segments, *rest), identity(inp.dtype), inp.dtype, inp.device)
