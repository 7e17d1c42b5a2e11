"""Reading and writing by index, order, and what depends on values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from mgb import dtypes
from mgb.errors import FileFormatError, ShapeError, UnsupportedError
from mgb.ops.creation import along
from mgb.ops.index import gather_, index_add, index_get, index_set, scatter_, scatter_add_
from mgb.ops.layout import broadcast_to, reshape
from mgb.ops.primitives import cast, maximum, minimum, mul
from mgb.ops.sort import argtopk
from mgb.tensor import Tensor

from ..values import Host
from .elementwise import number
from .layout import axis_of
from .table import operator


@operator("Gather")
def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    place = axis_of("Gather", axis, x.ndim)
    return index_get(x, indices, axes=(place,), place=place)


@operator("GatherElements")
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return gather_(x, indices, axis=axis_of("GatherElements", axis, x.ndim))


@operator("GatherND")
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    depth = indices.shape[-1]
    axes = tuple(range(batch_dims + depth))
    return index_get(x, *_columns(x, indices, batch_dims), axes=axes, place=0)


def _columns(x: Tensor, indices: Tensor, batch_dims: int = 0) -> list[Tensor]:
    """Return an index for each axis.

    The place itself along those of the batch, then the columns of `indices`.
    """
    shape = indices.shape[:-1]
    if not 0 < indices.shape[-1] <= x.ndim - batch_dims or shape[:batch_dims] != x.shape[:batch_dims]:
        raise ShapeError(f"indices of {indices.shape} do not fit {x.shape} with {batch_dims} batch axes")
    batch = [along(shape, (i,), indices.dtype, x.device) for i in range(batch_dims)]
    return batch + [indices[..., i] for i in range(indices.shape[-1])]


@operator("ScatterElements")
def scatter_elements(
    x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    place = axis_of("ScatterElements", axis, x.ndim)
    if reduction == "none":
        return scatter_(x, updates, indices, axis=place)
    if reduction == "add":
        return scatter_add_(x, updates, indices, axis=place)
    grid = [along(indices.shape, (i,), indices.dtype, x.device) for i in range(x.ndim)]
    columns = [indices if i == place else g for i, g in enumerate(grid)]
    return _folded(x, updates, columns, reduction)


@operator("ScatterND")
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    axes = tuple(range(indices.shape[-1]))
    columns = _columns(x, indices)
    if reduction == "none":
        return index_set(x, updates, *columns, axes=axes, place=0)
    if reduction == "add":
        return index_add(x, updates, *columns, axes=axes, place=0)
    return _folded(x, updates, columns, reduction)


_FOLDS = {"mul": mul, "max": maximum, "min": minimum}


def _folded(x: Tensor, updates: Tensor, columns: Sequence[Tensor], reduction: str) -> Tensor:
    """Apply updates of one element one after another, so that each sees the one before."""
    if reduction not in _FOLDS:
        raise FileFormatError(f"the reduction {reduction!r} is not one of ONNX's")
    rows = np.broadcast_shapes(*(c.shape for c in columns))
    count = math.prod(rows)
    if count > MOST_UPDATES:
        raise UnsupportedError(f"a reduction by {reduction!r} of more than {MOST_UPDATES} updates")
    flat = [reshape(broadcast_to(c, shape=rows), shape=(count,)) for c in columns]
    values = reshape(updates, shape=(count, *updates.shape[len(rows) :]))
    axes = tuple(range(len(columns)))
    for i in range(count):
        at = [c[i : i + 1] for c in flat]
        new = _FOLDS[reduction](index_get(x, *at, axes=axes, place=0), values[i : i + 1])
        x = index_set(x, new, *at, axes=axes, place=0)
    return x


#: Updates of a scatter that multiplies or takes extremes: each is a step of its own.
MOST_UPDATES = 4096


@operator("TensorScatter")
def tensor_scatter(
    past: Tensor, update: Tensor, write: Tensor | None = None, *, axis: int = -2, mode: str = "linear"
) -> Tensor:
    """Write `update` into each row of a cache, from the row's own position on."""
    place = axis_of("TensorScatter", axis, past.ndim)
    along_batch = (past.shape[0], *(1,) * (past.ndim - 1))
    at = along(update.shape, (place,), dtypes.int64, past.device)
    if write is not None:
        at = at + cast(reshape(write, shape=along_batch), dtype=dtypes.int64)
    if mode == "circular":
        at = at % past.shape[place]
    return scatter_(past, update, broadcast_to(at, shape=update.shape), axis=place)


# order


@operator("TopK")
def top_k(x: Tensor, k: Host, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Tensor, Tensor]:
    place = axis_of("TopK", axis, x.ndim)
    indices = argtopk(x, k=int(number(k)), axis=place, descending=bool(largest))
    return gather_(x, indices, axis=place), cast(indices, dtype=dtypes.int64)


# what depends on values: they are read


@operator("NonZero")
def non_zero(x: Host) -> Host:
    return np.array(np.nonzero(x), np.int64).reshape(max(x.ndim, 1) if x.ndim else 0, -1)


@operator("Compress")
def compress(x: Tensor, condition: Host, *, axis: int | None = None) -> Tensor:
    if axis is None:
        x, axis = reshape(x, shape=(x.size,)), 0
    place = axis_of("Compress", axis, x.ndim)
    rows = np.flatnonzero(condition)
    return index_get(x, Tensor(rows, dtypes.int64, x.device), axes=(place,), place=place)


@operator("Unique")
def unique(x: Host, *, wanted: int, axis: int | None = None, sorted: int = 1) -> tuple[Host, ...]:
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        back = np.empty_like(order)
        back[order] = np.arange(order.size)
        values = np.take(values, order, 0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], back[inverse]
    places = (a.astype(np.int64) for a in (first, inverse, counts))
    return (values, *places)[:wanted]


@operator("NonMaxSuppression")
def non_max_suppression(
    boxes: Host,
    scores: Host,
    most: Host | None = None,
    iou_threshold: Host | None = None,
    score_threshold: Host | None = None,
    *,
    center_point_box: int = 0,
) -> Host:
    """Select boxes by falling score, each unless it overlaps one that was taken before."""
    limit = 0 if most is None else int(number(most))
    overlap = 0.0 if iou_threshold is None else float(number(iou_threshold))
    corners = _corners(boxes, center_point_box)
    chosen: list[tuple[int, int, int]] = []
    for batch, of_classes in enumerate(scores):
        for kind, row in enumerate(of_classes):
            order = np.argsort(-row, kind="stable")
            if score_threshold is not None:
                order = order[row[order] > number(score_threshold)]
            taken: list[int] = []
            for i in order:
                if len(taken) == limit:
                    break
                if (_overlaps(corners[batch, i], corners[batch, taken]) <= overlap).all():
                    taken.append(int(i))
            chosen += [(batch, kind, i) for i in taken]
    return np.array(chosen, np.int64).reshape(-1, 3)


def _corners(boxes: Host, centred: int) -> Host:
    """Return (low, low, high, high) of each box."""
    if centred:
        middle, half = boxes[..., :2], boxes[..., 2:] / 2
        return np.concatenate([middle - half, middle + half], -1)
    a, b = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(a, b), np.maximum(a, b)], -1)


def _overlaps(box: Host, others: Host) -> Host:
    """Return the intersection over union of one box with each of `others`."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    shared, area, areas = (
        np.prod(s, axis=-1).astype(np.float64)
        for s in (sides, box[2:] - box[:2], others[:, 2:] - others[:, :2])
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((sides > 0).all(axis=-1), shared / (area + areas - shared), 0.0)
