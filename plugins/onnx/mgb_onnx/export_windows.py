"""Spellings of indices, windows and images; see `functions`.

Elements are found by their row-major place, which is computed in the file, so that no file holds a table of
indices. Images are read tap by tap of the window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from mgb import dtypes
from mgb.ops.creation import full, full_like
from mgb.ops.elementwise import ne
from mgb.ops.images.contract import Pair, conv2d, conv2d_grad_input, matmul, taps, window_counts
from mgb.ops.images.pooling import averaging, window_pixels
from mgb.ops.index import index_add, index_get, index_set
from mgb.ops.layout import Window, broadcast_to, reshape, slice_, transpose, unslice
from mgb.ops.primitives import cast, eq, iota, logical_and, logical_not, logical_or, lt, maximum, where
from mgb.ops.reduce import lowest
from mgb.tensor import Tensor
from mgb.tensor.apply import literal

Axes = tuple[int, ...]


# places


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


def _wrapped(index: Tensor, length: int) -> Tensor:
    """Return an int64 index counted from the start."""
    wide = cast(index, dtype=dtypes.int64)
    return where(lt(wide, 0), wide + length, wide)


def _linear(indices: Sequence[Tensor], lengths: Sequence[int]) -> Tensor:
    total = literal(0, dtypes.int64)
    for index, length, stride in zip(indices, lengths, _strides(lengths), strict=True):
        total = total + _wrapped(index, length) * stride
    return total


def _window_places(shape: Sequence[int], window: Window) -> Tensor:
    """Return the row-major places of the elements of `window`, in its shape."""
    total = literal(0, dtypes.int64)
    for axis, ((start, stop, step), stride) in enumerate(zip(window, _strides(shape))):
        lengths = [1] * len(shape)
        lengths[axis] = len(range(start, stop, step))
        total = total + (iota(shape=tuple(lengths), dtype=dtypes.int64) * step + start) * stride
    return total


def _slice_set(x: Tensor, value: Tensor, window: Window) -> Tensor:
    shape = tuple(len(range(*w)) for w in window)
    count = math.prod(shape)
    places = reshape(broadcast_to(_window_places(x.shape, window), shape=shape), shape=(count,))
    values = reshape(broadcast_to(value, shape=shape), shape=(count,))
    flat = index_set(reshape(x, shape=(x.size,)), values, places, axes=(0,), place=0)
    return reshape(flat, shape=x.shape)


def _unslice(x: Tensor, shape: Axes, window: Window) -> Tensor:
    return _slice_set(full(shape, 0, x.dtype), x, window)


# arrays along some axes: those that are indexed come first, as one


def _front(x: Tensor, axes: Axes) -> tuple[Tensor, Axes]:
    """Return `x` as rows along one axis, and the order that its axes were brought into."""
    order = (*axes, *(i for i in range(x.ndim) if i not in axes))
    rest = [x.shape[i] for i in order[len(axes) :]]
    count = math.prod(x.shape[i] for i in axes)
    return reshape(transpose(x, axes=order), shape=(count, *rest)), order


def _moved(x: Tensor, count: int, start: int, stop: int) -> Tensor:
    """Return `x` with `count` axes from `start` on brought to `stop`."""
    order = [i for i in range(x.ndim) if not start <= i < start + count]
    order[stop:stop] = range(start, start + count)
    return transpose(x, axes=tuple(order))


def _index_get(x: Tensor, *indices: Tensor, axes: Axes, place: int) -> Tensor:
    rows, _order = _front(x, axes)
    index = _linear(indices, [x.shape[a] for a in axes])
    return _moved(index_get(rows, index, axes=(0,), place=0), index.ndim, 0, place)


def _put(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def spelled(x: Tensor, value: Tensor, *indices: Tensor, axes: Axes, place: int) -> Tensor:
        rows, order = _front(x, axes)
        index = _linear(indices, [x.shape[a] for a in axes])
        rest = rows.shape[1:]
        value = broadcast_to(value, shape=(*rest[:place], *index.shape, *rest[place:]))
        put = function(rows, _moved(value, index.ndim, place, 0), index, axes=(0,), place=0)
        back = tuple(int(i) for i in np.argsort(order))
        return transpose(reshape(put, shape=tuple(x.shape[i] for i in order)), axes=back)

    return spelled


# convolution, where no word takes the dtype


def _framed(x: Tensor, padding: Pair, value: Any = 0) -> Tensor:
    """Surround images with `value`."""
    if padding == (0, 0):
        return x
    (n, c, h, w), (ph, pw) = x.shape, padding
    window = ((0, n, 1), (0, c, 1), (ph, ph + h, 1), (pw, pw + w, 1))
    shape = (n, c, h + 2 * ph, w + 2 * pw)
    if value == 0:
        return unslice(x, shape=shape, window=window)
    return _slice_set(full(shape, value, x.dtype), x, window)


def _taps(
    shape: Axes, kernel: Pair, stride: Pair, dilation: Pair = (1, 1)
) -> Iterator[tuple[int, int, Window]]:
    """Yield for each tap of a window where it meets framed images of `shape`."""
    counts = window_counts("window", _pair(shape), kernel, stride, (0, 0), dilation)
    for i, j, rows, cols in taps(kernel, stride, dilation, counts):
        ranges = ((r.start, r.stop, r.step) for r in (rows, cols))
        yield i, j, ((0, shape[0], 1), (0, shape[1], 1), *ranges)


def _pair(shape: Axes) -> Pair:
    """Return height and width."""
    return shape[-2], shape[-1]


def _tap_weight(w: Tensor, i: int, j: int, groups: int) -> Tensor:
    """Return the weight of a tap: (groups, outputs, inputs)."""
    o, c = w.shape[:2]
    tap = slice_(w, window=((0, o, 1), (0, c, 1), (i, i + 1, 1), (j, j + 1, 1)))
    return reshape(tap, shape=(groups, o // groups, c))


def _grouped(x: Tensor, groups: int) -> Tensor:
    n, c, h, w = x.shape
    return reshape(x, shape=(n, groups, c // groups, h * w))


def _conv2d(x: Tensor, w: Tensor, stride: Pair, padding: Pair, dilation: Pair, groups: int) -> Tensor:
    framed, out = _framed(x, padding), None
    counts = window_counts("conv2d", _pair(x.shape), _pair(w.shape), stride, padding, dilation)
    for i, j, window in _taps(framed.shape, _pair(w.shape), stride, dilation):
        part = matmul(_tap_weight(w, i, j, groups), _grouped(slice_(framed, window=window), groups))
        out = part if out is None else out + part
    assert out is not None
    return reshape(out, shape=(x.shape[0], w.shape[0], *counts))


def _conv2d_grad_input(
    g: Tensor, w: Tensor, size: Pair, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Tensor:
    n, (ph, pw) = g.shape[0], padding
    shape = (n, w.shape[1] * groups, size[0] + 2 * ph, size[1] + 2 * pw)
    out = full(shape, 0, g.dtype)
    for i, j, window in _taps(shape, _pair(w.shape), stride, dilation):
        part = matmul(_tap_weight(w, i, j, groups), _grouped(g, groups), transpose_a=True)
        part = reshape(part, shape=(n, shape[1], *g.shape[2:]))
        out = out + unslice(part, shape=shape, window=window)
    return _cropped(out, padding)


def _cropped(x: Tensor, padding: Pair) -> Tensor:
    (n, c, h, w), (ph, pw) = x.shape, padding
    return slice_(x, window=((0, n, 1), (0, c, 1), (ph, h - ph, 1), (pw, w - pw, 1)))


def _conv2d_grad_weight(
    g: Tensor, x: Tensor, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Tensor:
    """Return a convolution of the images with the gradient, whose channels are the images of the batch."""
    n, c, h, w = x.shape
    per_group = c // groups
    images = transpose(reshape(x, shape=(n, groups, per_group, h, w)), axes=(2, 1, 0, 3, 4))
    images = reshape(images, shape=(per_group, groups * n, h, w))
    weight = transpose(g, axes=(1, 0, 2, 3))
    out = conv2d(images, weight, stride=dilation, padding=padding, dilation=stride, groups=groups)
    out = slice_(out, window=tuple((0, d, 1) for d in (*out.shape[:2], *kernel)))
    return transpose(out, axes=(1, 0, 2, 3))


# pooling


def _max_pool2d(x: Tensor, kernel: Pair, stride: Pair, padding: Pair) -> Tensor:
    framed = _framed(x, padding, lowest(x.dtype))
    out = None
    for _i, _j, window in _taps(framed.shape, kernel, stride):
        tap = slice_(framed, window=window)
        out = tap if out is None else maximum(out, tap)
    assert out is not None
    return out


def _winners(
    x: Tensor, y: Tensor, kernel: Pair, stride: Pair, padding: Pair
) -> Iterator[tuple[Window, Tensor]]:
    """Yield for each tap its window and where it is the first to hold the maximum, or NaN."""
    framed = _framed(x, padding, lowest(x.dtype))
    free = eq(full_like(y, 0, dtypes.int32), 0)
    for _i, _j, window in _taps(framed.shape, kernel, stride):
        tap = slice_(framed, window=window)
        wins = logical_and(free, logical_or(eq(tap, y), ne(tap, tap)))
        free = logical_and(free, logical_not(wins))
        yield window, wins


def _max_pool2d_places(x: Tensor, kernel: Pair, stride: Pair, padding: Pair) -> Tensor:
    y = _max_pool2d(x, kernel, stride, padding)
    (height, width), (left, top) = _pair(y.shape), (padding[1], padding[0])
    rows = iota(shape=(height, 1), dtype=dtypes.int32) * stride[0] - top
    first = rows * x.shape[3] + (iota(shape=(1, width), dtype=dtypes.int32) * stride[1] - left)
    out = full(y.shape, 0, dtypes.int32)
    places = ((i, j) for i in range(kernel[0]) for j in range(kernel[1]))
    for (i, j), (_window, wins) in zip(places, _winners(x, y, kernel, stride, padding), strict=True):
        out = where(wins, first + (i * x.shape[3] + j), out)
    return out


def _max_pool2d_grad(g: Tensor, x: Tensor, y: Tensor, kernel: Pair, stride: Pair, padding: Pair) -> Tensor:
    (n, c, h, w), (ph, pw) = x.shape, padding
    shape = (n, c, h + 2 * ph, w + 2 * pw)
    out = full(shape, 0, g.dtype)
    for window, wins in _winners(x, y, kernel, stride, padding):
        out = out + unslice(where(wins, g, 0), shape=shape, window=window)
    return _cropped(out, padding)


def _max_pool2d_pick(h: Tensor, x: Tensor, y: Tensor, kernel: Pair, stride: Pair, padding: Pair) -> Tensor:
    framed = _framed(h, padding)
    out = full(y.shape, 0, h.dtype)
    for window, wins in _winners(x, y, kernel, stride, padding):
        out = where(wins, slice_(framed, window=window), out)
    return out


def _window_sizes(size: Pair, dtype: Any, window: dict[str, Any]) -> Tensor:
    return literal(np.asarray(window_pixels(size, dtype, **window)), dtype)


def _avg_pool2d(x: Tensor, **window: Any) -> Tensor:
    framed, out = _framed(x, window["padding"]), None
    for _i, _j, place in _taps(framed.shape, window["kernel"], window["stride"]):
        tap = slice_(framed, window=place)
        out = tap if out is None else out + tap
    assert out is not None
    return out / _window_sizes(_pair(x.shape), x.dtype, window)


def _avg_pool2d_grad(g: Tensor, size: Pair, **window: Any) -> Tensor:
    share = g / _window_sizes(size, g.dtype, window)
    channels = g.shape[1]
    ones = full((channels, 1, *window["kernel"]), 1, g.dtype)
    return conv2d_grad_input(
        share, ones, size=size, stride=window["stride"], padding=window["padding"], dilation=(1, 1),
        groups=channels,
    )  # fmt: skip


def _matrices(x: Tensor, sizes: Pair, wanted: Pair) -> tuple[Tensor, Tensor]:
    rows, cols = (literal(averaging(s, w, x.dtype), x.dtype) for s, w in zip(sizes, wanted, strict=True))
    return rows, cols


def _adaptive_avg_pool2d(x: Tensor, size: Pair) -> Tensor:
    rows, cols = _matrices(x, _pair(x.shape), size)
    return matmul(rows, matmul(x, cols, transpose_b=True))


def _adaptive_avg_pool2d_grad(g: Tensor, size: Pair) -> Tensor:
    rows, cols = _matrices(g, size, _pair(g.shape))
    return matmul(rows, matmul(g, cols), transpose_a=True)


SPELLINGS: dict[str, Callable[..., Tensor]] = {
    "unslice": _unslice,
    "slice_set": _slice_set,
    "index_get": _index_get,
    "index_set": _put(index_set),
    "index_add": _put(index_add),
    "conv2d": _conv2d,
    "conv2d_grad_input": _conv2d_grad_input,
    "conv2d_grad_weight": _conv2d_grad_weight,
    "max_pool2d": _max_pool2d,
    "max_pool2d_places": _max_pool2d_places,
    "max_pool2d_grad": _max_pool2d_grad,
    "max_pool2d_pick": _max_pool2d_pick,
    "avg_pool2d": _avg_pool2d,
    "avg_pool2d_grad": _avg_pool2d_grad,
    "adaptive_avg_pool2d": _adaptive_avg_pool2d,
    "adaptive_avg_pool2d_grad": _adaptive_avg_pool2d_grad,
}
