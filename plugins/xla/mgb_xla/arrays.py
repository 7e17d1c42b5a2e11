"""Words that move, fold and order elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax
from mgb.ir import Node

from .arithmetic import Word
from .shapes import Shape, Value, iota, is_float, kept, like, number, spread

#: ``(start, stop, step)`` along each axis.
Window = Sequence[tuple[int, int, int]]


# moving


def _reshape(node: Node, x: Value) -> Value:
    return lax.reshape(x, node.spec.shape)


def _transpose(node: Node, x: Value) -> Value:
    return lax.transpose(x, node.params["axes"])


def _broadcast_to(node: Node, x: Value) -> Value:
    return spread(x, node.spec.shape)


def _concat(node: Node, *xs: Value) -> Value:
    return lax.concatenate(xs, node.params["axis"])


def _ascending(window: Window) -> tuple[list[tuple[int, int, int]], list[int]]:
    """Return for each axis the lowest index, the count and the step; and the axes that count down."""
    found = []
    for window_range in (range(*w) for w in window):
        count, step = len(window_range), window_range.step
        low = min(window_range[0], window_range[-1]) if count else 0
        found.append((low, count, abs(step)))
    return found, [i for i, (_a, _b, step) in enumerate(window) if step < 0]


def _slice(node: Node, x: Value) -> Value:
    places, backwards = _ascending(node.params["window"])
    starts = [low for low, _, _ in places]
    stops = [low + (count - 1) * step + 1 for low, count, step in places]
    return lax.rev(lax.slice(x, starts, stops, [step for _, _, step in places]), backwards)


def unslice(x: Value, shape: Shape, window: Window, fill: Any = 0) -> Value:
    """Return `fill` in `shape`, with `x` in `window`."""
    places, backwards = _ascending(window)
    edges = [
        (low, size - (low + (count - 1) * step + 1), step - 1)
        for (low, count, step), size in zip(places, shape, strict=True)
    ]
    return lax.pad(lax.rev(x, backwards), number(fill, x.dtype), edges)


def _unslice(node: Node, x: Value) -> Value:
    return unslice(x, node.spec.shape, node.params["window"])


def _slice_set(node: Node, x: Value, value: Value) -> Value:
    window = node.params["window"]
    counts = tuple(len(range(*w)) for w in window)
    value = spread(value, counts)
    inside = unslice(lax.full(counts, True), x.shape, window, False)
    return lax.select(inside, unslice(value, x.shape, window), x)


# folding


def _fold(floats: Any, booleans: Any = None) -> Word:
    def word(node: Node, x: Value) -> Value:
        function = booleans if x.dtype.kind == "b" else floats
        axis = node.params["axis"]
        return lax.reshape(function(x, axis), kept(x, axis))

    return word


def _extreme(function: Any) -> Any:
    """Return `function` of floats, NaN where one of them is.

    XLA hands folds of about 4,096 elements and more on the CPU to a library of kernels whose maximum and
    minimum drop NaN. To look for one in a fold of its own takes less time than any fold without that library.
    """

    def fold(x: Value, axis: Sequence[int]) -> Value:
        value = function(x, axis)
        if not is_float(x):
            return value
        return lax.select(lax.reduce_or(lax.ne(x, x), axis), like(value, np.nan), value)

    return fold


def _extent(node: Node, x: Value) -> Value:
    count = np.prod([x.shape[a] for a in node.params["axis"]], dtype=np.int64)
    return lax.full(node.spec.shape, number(count, node.spec.dtype), node.spec.dtype)


def _cumsum(node: Node, x: Value) -> Value:
    return lax.cumsum(x, node.params["axis"])


# ordering


def _order(x: Value, axis: int, descending: bool) -> Value:
    """Sort stably, NaN last; descending, the same from behind, so that equal elements keep their order."""
    keys = lax.convert_element_type(x, np.dtype(np.int8)) if x.dtype.kind == "b" else x
    shape = tuple(d if i == axis else 1 for i, d in enumerate(x.shape))
    places = spread(iota(shape, np.dtype(np.int32)), x.shape)
    if descending:
        keys, places = lax.rev(keys, (axis,)), lax.rev(places, (axis,))
    order = lax.sort((keys, places), dimension=axis, is_stable=True, num_keys=1)[1]
    return lax.rev(order, (axis,)) if descending else order


def _argsort(node: Node, x: Value) -> Value:
    return _order(x, node.params["axis"], node.params["descending"])


def _argtopk(node: Node, x: Value) -> Value:
    order = _order(x, node.params["axis"], node.params["descending"])
    return lax.slice_in_dim(order, 0, node.params["k"], axis=node.params["axis"])


# fmt: off
WORDS: dict[str, Word] = {
    "reshape": _reshape, "transpose": _transpose, "broadcast_to": _broadcast_to,
    "slice": _slice, "unslice": _unslice, "concat": _concat, "slice_set": _slice_set,
    "reduce_sum": _fold(lax.reduce_sum), "reduce_prod": _fold(lax.reduce_prod),
    "reduce_max": _fold(_extreme(lax.reduce_max), lax.reduce_or),
    "reduce_min": _fold(_extreme(lax.reduce_min), lax.reduce_and),
    "extent": _extent, "cumsum": _cumsum, "argsort": _argsort, "argtopk": _argtopk,
}
# fmt: on
