"""Pooling. Images are NCHW.

A window is folded along its columns, and what that gives along its rows: the work for a pixel grows with the
sum of the two lengths, not with their product, and the program with neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from mgb.ir import Node

from .arithmetic import Word
from .contract import dot
from .shapes import Shape, Value, alike, iota, is_float, like, number, spread

Pair = tuple[int, int]

#: The axes of rows and of columns.
ROWS, COLUMNS = 2, 3


def _lowest(dtype: np.dtype[Any]) -> Any:
    return False if dtype.kind == "b" else -np.inf if dtype.kind in "fV" else np.iinfo(dtype).min


def _along(axis: int, value: int) -> list[int]:
    """Return `value` for one axis of images, 1 for the others."""
    return [value if i == axis else 1 for i in range(4)]


def _folded(node: Node, xs: Any, starts: Any, rule: Callable[..., Any], padding: Pair) -> Any:
    """Return the windows of images, or of several that go together, folded; what frames them is `starts`."""
    p = node.params
    for axis, k, s, q in zip((ROWS, COLUMNS), p["kernel"], p["stride"], padding, strict=True):
        edges = [(q, q) if i == axis else (0, 0) for i in range(4)]
        xs = lax.reduce_window(xs, starts, rule, _along(axis, k), _along(axis, s), edges)
    return xs


def _frame(node: Node, x: Value, fill: Any) -> Value:
    edges = [(0, 0, 0), (0, 0, 0), *((q, q, 0) for q in node.params["padding"])]
    return lax.pad(x, number(fill, x.dtype), edges)


# maximum


def _max_pool2d(node: Node, x: Value) -> Value:
    """Pool; XLA turns windows that do not overlap into reductions, which may drop NaN: see `arrays`."""
    padding = node.params["padding"]
    value = _folded(node, x, number(_lowest(x.dtype), x.dtype), lax.max, padding)
    pairs = zip(node.params["kernel"], node.params["stride"], strict=True)
    if not is_float(x) or all(stride < kernel for kernel, stride in pairs):
        return value
    wrong = _folded(node, lax.ne(x, x), number(False, np.bool_), lax.bitwise_or, padding)
    return lax.select(wrong, like(value, np.nan), value)


def _ordered(x: Value) -> Value:
    """Return integers in the order of `x`, where NaN is the largest and the two zeros are one."""
    if x.dtype.kind == "b":
        return lax.convert_element_type(x, np.dtype(np.int8))
    if not is_float(x):
        return x
    bits = lax.bitcast_convert_type(x, np.dtype(f"i{x.dtype.itemsize}"))
    most, zero = like(bits, np.iinfo(bits.dtype).max), like(bits, 0)
    bits = lax.select(lax.lt(bits, zero), lax.bitwise_xor(bits, most), bits)
    bits = lax.select(lax.eq(x, like(x, 0)), zero, bits)
    return lax.select(lax.ne(x, x), most, bits)


def _first(a: tuple[Value, Value], b: tuple[Value, Value]) -> tuple[Value, Value]:
    """Return of two keys with their indices the larger one, of equal ones the first."""
    wins = lax.bitwise_or(lax.gt(a[0], b[0]), lax.bitwise_and(lax.eq(a[0], b[0]), lax.lt(a[1], b[1])))
    return lax.select(wins, a[0], b[0]), lax.select(wins, a[1], b[1])


def _winners(node: Node, x: Value) -> tuple[Value, Shape]:
    """Return where the first maximum of each window stands, or its first NaN, among all pixels.

    The framed shape.
    """
    framed = _frame(node, x, _lowest(x.dtype))
    n, c, h, w = framed.shape
    kind = np.dtype(np.int32 if n * c * h * w < 1 << 31 else np.int64)
    keys, places = _ordered(framed), spread(iota((h, w), kind), framed.shape)
    starts = number(np.iinfo(keys.dtype).min, keys.dtype), number(h * w, kind)
    _, found = _folded(node, (keys, places), starts, _first, (0, 0))
    images = lax.mul(iota((n, c, 1, 1), kind), number(h * w, kind))
    return lax.reshape(lax.add(*alike(found, images)), (*found.shape, 1)), framed.shape


def _max_pool2d_grad(node: Node, g: Value, x: Value, _y: Value) -> Value:
    at, shape = _winners(node, x)
    numbers = lax.ScatterDimensionNumbers((), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    zeros = lax.full((int(np.prod(shape)),), 0, g.dtype)
    inside = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    total = lax.reshape(lax.scatter_add(zeros, at, g, numbers, mode=inside), shape)
    starts = (0, 0, *node.params["padding"])
    return lax.slice(total, starts, [start + d for start, d in zip(starts, x.shape, strict=True)])


def _max_pool2d_pick(node: Node, h: Value, x: Value, _y: Value) -> Value:
    at, shape = _winners(node, x)
    numbers = lax.GatherDimensionNumbers((), collapsed_slice_dims=(0,), start_index_map=(0,))
    pixels = lax.reshape(_frame(node, h, 0), (int(np.prod(shape)),))
    return lax.gather(pixels, at, numbers, (1,), mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)


# average


def _counts(node: Node, size: Pair, counts: Pair, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return how many pixels each window holds, (1, 1, oh, ow) or a single number."""
    p = node.params
    if p["count_padding"] or p["padding"] == (0, 0):
        return np.full((1, 1, 1, 1), p["kernel"][0] * p["kernel"][1], dtype)
    found = []
    for length, n, k, s, q in zip(size, counts, p["kernel"], p["stride"], p["padding"]):
        start = np.arange(n) * s - q
        found.append(np.minimum(start + k, length) - np.maximum(start, 0))
    return (found[0][:, None] * found[1]).astype(dtype)[None, None]


def _avg_pool2d(node: Node, x: Value) -> Value:
    total = _folded(node, x, number(0, x.dtype), lax.add, node.params["padding"])
    return lax.div(*alike(total, _counts(node, x.shape[2:], total.shape[2:], x.dtype)))


def _avg_pool2d_grad(node: Node, g: Value) -> Value:
    p = node.params
    g = lax.div(*alike(g, _counts(node, p["size"], g.shape[2:], g.dtype)))
    for axis, size, k, s, q in zip((ROWS, COLUMNS), p["size"], p["kernel"], p["stride"], p["padding"]):
        g = lax.slice_in_dim(_gathered(g, axis, k, s, -(-(size + q) // s)), q, q + size, axis=axis)
    return g


def _gathered(g: Value, axis: int, kernel: int, stride: int, blocks: int) -> Value:
    """Return for each pixel along an axis the sum of `g` over the windows that hold it.

    In a block, which is as many pixels as the stride, the first ones are in the last `most` windows that have
    begun, the others in one fewer.
    """
    most = -(-kernel // stride)
    first = kernel - (most - 1) * stride
    parts = [(most, first), (most - 1, stride - first)]
    sums = [_repeated(_latest(g, axis, windows, blocks), axis + 1, times) for windows, times in parts]
    shape = tuple(blocks * stride if i == axis else d for i, d in enumerate(g.shape))
    return lax.reshape(lax.concatenate(sums, axis + 1), shape)


def _latest(g: Value, axis: int, windows: int, blocks: int) -> Value:
    """Return for each block the sum of `g` over the last `windows` ones that have begun."""
    shape = tuple(blocks if i == axis else d for i, d in enumerate(g.shape))
    if windows == 0:
        return lax.full(shape, 0, g.dtype)
    edges = [(windows - 1, blocks - g.shape[i]) if i == axis else (0, 0) for i in range(4)]
    return lax.reduce_window(g, number(0, g.dtype), lax.add, _along(axis, windows), (1,) * 4, edges)


def _repeated(x: Value, axis: int, times: int) -> Value:
    """Return `x` with a new axis, along which it is repeated."""
    shape = (*x.shape[:axis], times, *x.shape[axis:])
    return lax.broadcast_in_dim(x, shape, [i for i in range(len(shape)) if i != axis])


# average over windows that fit a wanted size


def _averaging(size: int, wanted: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return the matrix (wanted, size) whose rows take the means of the windows.

    Neighbours may share an element.
    """
    row, place = np.arange(wanted)[:, None], np.arange(size)
    inside = (place >= row * size // wanted) & (place < -(-(row + 1) * size // wanted))
    return (inside / inside.sum(axis=1, keepdims=True)).astype(dtype)


def _between(x: Value, rows: Any, columns: Any) -> Value:
    """Return ``rows @ x @ columns`` of the last two axes."""
    right = dot(x, columns, -1, -2, 0)
    swapped = dot(right, rows, -2, -1, 0)  # (n, c, columns, rows)
    return lax.transpose(swapped, (0, 1, 3, 2))


def _adaptive_avg_pool2d(node: Node, x: Value) -> Value:
    rows, columns = (_averaging(a, b, x.dtype) for a, b in zip(x.shape[2:], node.params["size"]))
    return _between(x, rows, columns.T)


def _adaptive_avg_pool2d_grad(node: Node, g: Value) -> Value:
    rows, columns = (_averaging(a, b, g.dtype) for a, b in zip(node.params["size"], g.shape[2:]))
    return _between(g, rows.T, columns)


# fmt: off
WORDS: dict[str, Word] = {
    "max_pool2d": _max_pool2d, "max_pool2d_grad": _max_pool2d_grad, "max_pool2d_pick": _max_pool2d_pick,
    "avg_pool2d": _avg_pool2d, "avg_pool2d_grad": _avg_pool2d_grad,
    "adaptive_avg_pool2d": _adaptive_avg_pool2d, "adaptive_avg_pool2d_grad": _adaptive_avg_pool2d_grad,
}
# fmt: on
