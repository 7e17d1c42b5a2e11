"""Matrix products and pooling. Images are NCHW."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jax import lax
from mgb.ir import Node

from .arithmetic import Word
from .shapes import Value, alike, like, number, spread

Pair = tuple[int, int]


# products


def _matmul(node: Node, a: Value, b: Value) -> Value:
    batch = node.spec.shape[:-2]
    inner_a = -2 if node.params.get("transpose_a") else -1
    inner_b = -1 if node.params.get("transpose_b") else -2
    if len(b.shape) == 2:  # one product of many rows
        return _dot(a, b, inner_a, inner_b, 0)
    a, b = spread(a, (*batch, *a.shape[-2:])), spread(b, (*batch, *b.shape[-2:]))
    return _dot(a, b, inner_a, inner_b, len(batch))


def _dot(a: Value, b: Value, of_a: int, of_b: int, batches: int) -> Value:
    shared = tuple(range(batches))
    sums = ((len(a.shape) + of_a,), (len(b.shape) + of_b,))
    return lax.dot_general(
        a, b, (sums, (shared, shared)), precision=lax.Precision.HIGHEST, preferred_element_type=a.dtype
    )


# pooling


def _lowest(dtype: np.dtype[Any]) -> Any:
    return False if dtype.kind == "b" else -np.inf if dtype.kind in "fV" else np.iinfo(dtype).min


def _windows(node: Node) -> dict[str, Any]:
    p = node.params
    return {
        "window_dimensions": (1, 1, *p["kernel"]),
        "window_strides": (1, 1, *p["stride"]),
        "padding": [(0, 0), (0, 0), *((q, q) for q in p["padding"])],
    }


def _max_pool2d(node: Node, x: Value) -> Value:
    return lax.reduce_window(x, number(_lowest(x.dtype), x.dtype), lax.max, **_windows(node))


def _taps(node: Node, counts: Pair) -> Iterator[tuple[list[int], list[int]]]:
    """For each tap of the window, where in the framed image it begins and ends."""
    p = node.params
    for i in range(p["kernel"][0]):
        for j in range(p["kernel"][1]):
            starts = [i, j]
            yield starts, [a + s * (n - 1) + 1 for a, s, n in zip(starts, p["stride"], counts)]


def _frame(node: Node, x: Value, fill: Any) -> Value:
    edges = [(0, 0, 0), (0, 0, 0), *((q, q, 0) for q in node.params["padding"])]
    return lax.pad(x, number(fill, x.dtype), edges)


def _views(node: Node, framed: Value, counts: Pair) -> Iterator[Value]:
    n, c, _h, _w = framed.shape
    for starts, stops in _taps(node, counts):
        yield lax.slice(framed, (0, 0, *starts), (n, c, *stops), (1, 1, *node.params["stride"]))


def _winners(node: Node, x: Value, y: Value) -> Iterator[Value]:
    """For each tap, where it is the first to hold the maximum `y`, or the first NaN of a window with NaN."""
    free = lax.full(y.shape, True)
    for tap in _views(node, _frame(node, x, _lowest(x.dtype)), y.shape[2:]):
        wins = lax.bitwise_and(free, lax.bitwise_or(lax.eq(tap, y), lax.ne(tap, tap)))
        free = lax.bitwise_and(free, lax.bitwise_not(wins))
        yield wins


def _max_pool2d_grad(node: Node, g: Value, x: Value, y: Value) -> Value:
    """The sum over the taps, each spread out by the stride and put where its pixels stand."""
    p, (height, width) = node.params, x.shape[2:]
    total = None
    for wins, (starts, stops) in zip(_winners(node, x, y), _taps(node, y.shape[2:]), strict=True):
        won = lax.select(wins, g, like(g, 0))
        edges = [(0, 0, 0), (0, 0, 0)]
        for size, a, b, s, q in zip((height, width), starts, stops, p["stride"], p["padding"]):
            edges.append((a - q, size + q - b, s - 1))
        part = lax.pad(won, number(0, g.dtype), edges)
        total = part if total is None else lax.add(total, part)
    return total


def _max_pool2d_pick(node: Node, h: Value, x: Value, y: Value) -> Value:
    picked = lax.full(y.shape, number(0, h.dtype), h.dtype)
    views = _views(node, _frame(node, h, 0), y.shape[2:])
    for wins, view in zip(_winners(node, x, y), views, strict=True):
        picked = lax.select(wins, view, picked)
    return picked


def _counts(node: Node, size: Pair, counts: Pair, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """How many pixels each window holds, (1, 1, oh, ow) or a single number."""
    p = node.params
    if p["count_padding"] or p["padding"] == (0, 0):
        return np.full((1, 1, 1, 1), p["kernel"][0] * p["kernel"][1], dtype)
    found = []
    for length, n, k, s, q in zip(size, counts, p["kernel"], p["stride"], p["padding"]):
        start = np.arange(n) * s - q
        found.append(np.minimum(start + k, length) - np.maximum(start, 0))
    return (found[0][:, None] * found[1]).astype(dtype)[None, None]


def _avg_pool2d(node: Node, x: Value) -> Value:
    total = lax.reduce_window(x, number(0, x.dtype), lax.add, **_windows(node))
    return lax.div(*alike(total, _counts(node, x.shape[2:], total.shape[2:], x.dtype)))


def _avg_pool2d_grad(node: Node, g: Value) -> Value:
    p = node.params
    share = lax.div(*alike(g, _counts(node, p["size"], g.shape[2:], g.dtype)))
    edges = [(0, 0), (0, 0)]
    for size, count, k, s, q in zip(p["size"], g.shape[2:], p["kernel"], p["stride"], p["padding"]):
        low = k - 1 - q
        edges.append((low, size - (count - 1) * s - 1 - low + k - 1))
    return lax.reduce_window(
        share,
        number(0, g.dtype),
        lax.add,
        window_dimensions=(1, 1, *p["kernel"]),
        window_strides=(1, 1, 1, 1),
        padding=edges,
        base_dilation=(1, 1, *p["stride"]),
    )


def _averaging(size: int, wanted: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The matrix (wanted, size) whose rows take the means of the windows; neighbours may share an element."""
    row, place = np.arange(wanted)[:, None], np.arange(size)
    inside = (place >= row * size // wanted) & (place < -(-(row + 1) * size // wanted))
    return (inside / inside.sum(axis=1, keepdims=True)).astype(dtype)


def _between(x: Value, rows: Any, columns: Any) -> Value:
    """``rows @ x @ columns`` of the last two axes."""
    right = _dot(x, columns, -1, -2, 0)
    swapped = _dot(right, rows, -2, -1, 0)  # (n, c, columns, rows)
    return lax.transpose(swapped, (0, 1, 3, 2))


def _adaptive_avg_pool2d(node: Node, x: Value) -> Value:
    rows, columns = (_averaging(a, b, x.dtype) for a, b in zip(x.shape[2:], node.params["size"]))
    return _between(x, rows, columns.T)


def _adaptive_avg_pool2d_grad(node: Node, g: Value) -> Value:
    rows, columns = (_averaging(a, b, g.dtype) for a, b in zip(node.params["size"], g.shape[2:]))
    return _between(g, rows.T, columns)


# fmt: off
WORDS: dict[str, Word] = {
    "matmul": _matmul,
    "max_pool2d": _max_pool2d, "max_pool2d_grad": _max_pool2d_grad, "max_pool2d_pick": _max_pool2d_pick,
    "avg_pool2d": _avg_pool2d, "avg_pool2d_grad": _avg_pool2d_grad,
    "adaptive_avg_pool2d": _adaptive_avg_pool2d, "adaptive_avg_pool2d_grad": _adaptive_avg_pool2d_grad,
}
# fmt: on
