"""Shapes, and operators that move elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from mgb import dtypes
from mgb.errors import ShapeError, UnsupportedError
from mgb.functional import rearrange
from mgb.ops.creation import full
from mgb.ops.declare import normalize_axis
from mgb.ops.images.attention import below
from mgb.ops.index import gather_, index_get
from mgb.ops.layout import Window, broadcast_to, concat, cut_along, reshape, slice_, transpose
from mgb.ops.primitives import iota, lt, where
from mgb.storage.limits import meter
from mgb.tensor import Tensor
from mgb.tensor.apply import literal

from ..values import Host, Value
from .elementwise import ints, number
from .table import operator


def axis_of(name: str, axis: int, ndim: int) -> int:
    """Return `axis`, counted from the end if negative, as an index into a shape of `ndim` lengths."""
    return normalize_axis(name, int(axis), ndim)[0]


# shapes


@operator("Shape")
def shape(x: Value, *, start: int = 0, end: int | None = None) -> Host:
    return np.array(x.shape[slice(start, end)], np.int64)


@operator("Size")
def size(x: Value) -> Host:
    return np.array(math.prod(x.shape), np.int64)


@operator("Reshape")
def reshape_to(x: Tensor, shape: Host, *, allowzero: int = 0) -> Tensor:
    wanted = ints(shape)
    if not allowzero:
        wanted = tuple(x.shape[i] if d == 0 else d for i, d in enumerate(wanted))
    return x.reshape(wanted) if -1 in wanted else reshape(x, shape=wanted)


@operator("Flatten")
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    place = axis + x.ndim if axis < 0 else axis
    return reshape(x, shape=(math.prod(x.shape[:place]), math.prod(x.shape[place:])))


@operator("Squeeze")
def squeeze(x: Tensor, axes: Host | None = None) -> Tensor:
    gone = (
        tuple(i for i, d in enumerate(x.shape) if d == 1)
        if axes is None
        else normalize_axis("Squeeze", ints(axes), x.ndim)
    )
    if any(x.shape[i] != 1 for i in gone):
        raise ShapeError(f"Squeeze: axes {gone} of {x.shape} must have length 1")
    return reshape(x, shape=tuple(d for i, d in enumerate(x.shape) if i not in gone))


@operator("Unsqueeze")
def unsqueeze(x: Tensor, axes: Host) -> Tensor:
    ndim = x.ndim + np.size(axes)
    new = normalize_axis("Unsqueeze", ints(axes), ndim)
    lengths = iter(x.shape)
    return reshape(x, shape=tuple(1 if i in new else next(lengths) for i in range(ndim)))


@operator("Transpose")
def transpose_by(x: Tensor, *, perm: Sequence[int] | None = None) -> Tensor:
    return transpose(x, axes=tuple(reversed(range(x.ndim))) if perm is None else ints(perm))


@operator("Expand")
def expand(x: Tensor, shape: Host) -> Tensor:
    return broadcast_to(x, shape=np.broadcast_shapes(x.shape, ints(shape)))


@operator("Tile")
def tile(x: Tensor, repeats: Host) -> Tensor:
    return rearrange.tile(x, ints(repeats))


# parts


@operator("Concat")
def concat_all(*xs: Tensor, axis: int) -> Tensor:
    return concat(*xs, axis=axis_of("Concat", axis, xs[0].ndim))


def sections(length: int, wanted: int, sizes: Host | None) -> list[int]:
    """Return the lengths of the parts of a Split.

    As given, or equal but for the last, which may be shorter.
    """
    if sizes is not None:
        found = list(ints(sizes))
    else:
        each = -(-length // wanted)
        meter().check("nodes", wanted)
        found = [max(0, min(each, length - i * each)) for i in range(wanted)]
    if sum(found) != length or min(found, default=0) < 0:
        raise ShapeError(f"Split: parts of {found} do not make up an axis of length {length}")
    return found


@operator("Split")
def split(
    x: Tensor, split: Host | None = None, *, wanted: int, axis: int = 0, num_outputs: int | None = None
) -> tuple[Tensor, ...]:
    place = axis_of("Split", axis, x.ndim)
    return tuple(cut(x, place, sections(x.shape[place], num_outputs or wanted, split)))


def cut(x: Tensor, axis: int, lengths: Sequence[int]) -> list[Tensor]:
    """Cut into neighbouring parts of `lengths` along `axis`."""
    ends = np.cumsum([0, *lengths]).tolist()
    return [cut_along(x, axis, a, b) for a, b in pairwise(ends)]


@operator("Slice")
def slice_of(
    x: Tensor, starts: Host, ends: Host, axes: Host | None = None, steps: Host | None = None
) -> Tensor:
    given = range(np.size(starts)) if axes is None else ints(axes)
    places = [axis_of("Slice", a, x.ndim) for a in given]
    window: list[tuple[int, int, int]] = [(0, d, 1) for d in x.shape]
    strides = ints(steps) if steps is not None else (1,) * len(places)
    for place, start, end, step in zip(places, ints(starts), ints(ends), strides, strict=True):
        window[place] = _range(x.shape[place], start, end, step)
    return slice_(x, window=tuple(window))


def _range(length: int, start: int, end: int, step: int) -> tuple[int, int, int]:
    """Return a range clipped as ONNX does; see `mgb.ops.layout.Window`."""
    if step == 0:
        raise ShapeError("Slice: steps must not be 0")
    first, last = (0, length) if step > 0 else (-1, length - 1)
    start, end = (min(max(v + length if v < 0 else v, first), last) for v in (start, end))
    return (start, max(start, end), step) if step > 0 else (start, min(start, end), step)


# borders


@operator("Pad")
def pad(
    x: Tensor,
    pads: Host,
    constant_value: Host | None = None,
    axes: Host | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    given = range(x.ndim) if axes is None else [axis_of("Pad", a, x.ndim) for a in ints(axes)]
    amounts = ints(pads)
    widths = [(0, 0)] * x.ndim
    for i, place in enumerate(given):
        widths[place] = amounts[i], amounts[i + len(amounts) // 2]
    x = _cropped(x, widths)
    widths = [(max(a, 0), max(b, 0)) for a, b in widths]
    meter().value([a + d + b for (a, b), d in zip(widths, x.shape)])
    if mode == "wrap":
        return _wrapped(x, widths)
    value = 0 if constant_value is None or not np.size(constant_value) else number(constant_value)
    return rearrange.pad(x, widths, mode, value)


def _cropped(x: Tensor, widths: Sequence[tuple[int, int]]) -> Tensor:
    """Crop the negative borders."""
    if all(min(w) >= 0 for w in widths):
        return x
    window: Window = tuple((max(-a, 0), d - max(-b, 0), 1) for (a, b), d in zip(widths, x.shape))
    return slice_(x, window=window)


def _wrapped(x: Tensor, widths: Sequence[tuple[int, int]]) -> Tensor:
    for axis, (before, after) in enumerate(widths):
        if before or after:
            rows = np.arange(-before, x.shape[axis] + after) % x.shape[axis]
            x = taken(x, rows, axis)
    return x


def taken(x: Tensor, rows: Host, axis: int) -> Tensor:
    """Return the slices of `x` along `axis` at `rows`, which are known."""
    return index_get(x, literal(rows, dtypes.int32, x.device), axes=(axis,), place=axis)


# blocks


def _moved(x: Tensor, shape: Sequence[int], axes: Sequence[int], result: Sequence[int]) -> Tensor:
    return reshape(transpose(reshape(x, shape=tuple(shape)), axes=tuple(axes)), shape=tuple(result))


@operator("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    (n, c, h, w), b = x.shape, blocksize
    result = (n, c // (b * b), h * b, w * b)
    if mode == "DCR":
        return _moved(x, (n, b, b, c // (b * b), h, w), (0, 3, 4, 1, 5, 2), result)
    return _moved(x, (n, c // (b * b), b, b, h, w), (0, 1, 4, 2, 5, 3), result)


@operator("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    (n, c, h, w), b = x.shape, blocksize
    result = (n, c * b * b, h // b, w // b)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return _moved(x, (n, c, h // b, b, w // b, b), order, result)


@operator("ReverseSequence")
def reverse_sequence(x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    steps = x.shape[time_axis]
    along_time = [1] * x.ndim
    along_time[time_axis] = steps
    along_batch = [1] * x.ndim
    along_batch[batch_axis] = x.shape[batch_axis]
    time = iota(shape=tuple(along_time), dtype=lengths.dtype, device=x._device)
    length = reshape(lengths, shape=tuple(along_batch))
    return gather_(
        x, broadcast_to(where(lt(time, length), length - 1 - time, time), shape=x.shape), axis=time_axis
    )


@operator("Trilu")
def triangle(x: Tensor, k: Host | None = None, *, upper: int = 1) -> Tensor:
    diagonal = 0 if k is None else number(k)
    if diagonal and abs(diagonal) > 1 << 30:
        raise UnsupportedError(f"Trilu: the diagonal {diagonal} is out of range")
    keep = below(x, diagonal - 1 if upper else diagonal)
    zero = full((), 0, x.dtype, x.device)
    return where(keep, zero, x) if upper else where(keep, x, zero)


@operator("CenterCropPad")
def center_crop_pad(x: Tensor, shape: Host, *, axes: Sequence[int] | None = None) -> Tensor:
    places = range(x.ndim) if axes is None else [axis_of("CenterCropPad", a, x.ndim) for a in axes]
    widths = [(0, 0)] * x.ndim
    for place, wanted in zip(places, ints(shape)):
        more = wanted - x.shape[place]
        before = more // 2 if more > 0 else -(-more // 2)
        widths[place] = before, more - before
    x = _cropped(x, widths)
    return rearrange.pad(x, [(max(a, 0), max(b, 0)) for a, b in widths])
