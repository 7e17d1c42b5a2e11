"""Words that read and write through indices. XLA clamps an index that is out of range; eager code refuses it.

So each of these words also says whether all of its indices are in range, and a program gives that out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax
from mgb.ir import Node

from .shapes import Shape, Value, iota, like, spread

#: The value, and whether an index is out of range.
Checked = tuple[Value, Value]
IndexWord = Callable[..., Checked]


def _placed(index: Value, length: int) -> Checked:
    """Return the index counted from the front, and whether any is out of range."""
    bits = np.iinfo(index.dtype)
    outside = lax.full(index.shape, False)
    if length <= bits.max:
        outside = lax.bitwise_not(lax.lt(index, like(index, length)))
    if bits.min == 0:
        return lax.convert_element_type(index, _counter(length)), _any(outside)
    if -length > bits.min:
        outside = lax.bitwise_or(outside, lax.lt(index, like(index, -length)))
    wide = lax.convert_element_type(index, _counter(length))
    wide = lax.select(lax.lt(wide, like(wide, 0)), lax.add(wide, like(wide, length)), wide)
    return wide, _any(outside)


def _counter(length: int) -> np.dtype[Any]:
    return np.dtype(np.int32 if length < 1 << 30 else np.int64)


def _any(flags: Value) -> Value:
    return lax.reduce_or(flags, tuple(range(len(flags.shape))))


def _stacked(indices: Sequence[Value], lengths: Sequence[int]) -> Checked:
    """Return one array of coordinates, in its last axis, of indices that broadcast against each other."""
    shape = np.broadcast_shapes(*(i.shape for i in indices))
    found = [_placed(i, d) for i, d in zip(indices, lengths, strict=True)]
    dtype = max((wide.dtype for wide, _ in found), key=lambda d: d.itemsize)
    parts = [lax.convert_element_type(lax.reshape(spread(w, shape), (*shape, 1)), dtype) for w, _ in found]
    wrong = found[0][1]
    for _, flag in found[1:]:
        wrong = lax.bitwise_or(wrong, flag)
    return lax.concatenate(parts, len(shape)), wrong


# arrays along some axes


def _offsets(node: Node, x: Value, coordinates: Value) -> tuple[tuple[int, ...], Shape, Shape]:
    """Return where the remaining axes of `x` go in what is selected, their window, the whole shape."""
    axes, place = node.params["axes"], node.params["place"]
    shape = coordinates.shape[:-1]
    rest = [i for i in range(len(x.shape)) if i not in axes]
    offsets = tuple(k if k < place else k + len(shape) for k in range(len(rest)))
    window = tuple(1 if i in axes else d for i, d in enumerate(x.shape))
    remaining = [x.shape[i] for i in rest]
    return offsets, window, (*remaining[:place], *shape, *remaining[place:])


def _coordinates(node: Node, x: Value, indices: Sequence[Value]) -> Checked:
    return _stacked(indices, [x.shape[a] for a in node.params["axes"]])


def _index_get(node: Node, x: Value, *indices: Value) -> Checked:
    coordinates, wrong = _coordinates(node, x, indices)
    offsets, window, _ = _offsets(node, x, coordinates)
    axes = node.params["axes"]
    numbers = lax.GatherDimensionNumbers(offset_dims=offsets, collapsed_slice_dims=axes, start_index_map=axes)
    return lax.gather(x, coordinates, numbers, window, mode=lax.GatherScatterMode.CLIP), wrong


def _written(scatter: Callable[..., Value]) -> IndexWord:
    def word(node: Node, x: Value, value: Value, *indices: Value) -> Checked:
        coordinates, wrong = _coordinates(node, x, indices)
        offsets, _, shape = _offsets(node, x, coordinates)
        axes = node.params["axes"]
        numbers = lax.ScatterDimensionNumbers(
            update_window_dims=offsets, inserted_window_dims=axes, scatter_dims_to_operand_dims=axes
        )
        return _put(scatter, x, coordinates, spread(value, shape), numbers), wrong

    return word


def _put(scatter: Callable[..., Value], x: Value, at: Value, value: Value, numbers: Any) -> Value:
    return scatter(x, at, value, numbers, mode=lax.GatherScatterMode.CLIP)


# one index for each element of the result


def _grid(node: Node, x: Value, index: Value) -> Checked:
    """Return the coordinates of each element: its own place along all axes but one."""
    axis = node.params["axis"]
    along = []
    for i, d in enumerate(index.shape):
        shape = tuple(d if k == i else 1 for k in range(len(index.shape)))
        along.append(index if i == axis else iota(shape, np.dtype(np.int32)))
    return _stacked(along, x.shape)


def _gather(node: Node, x: Value, index: Value) -> Checked:
    coordinates, wrong = _grid(node, x, index)
    axes = tuple(range(len(x.shape)))
    numbers = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=axes, start_index_map=axes)
    return lax.gather(x, coordinates, numbers, (1,) * len(axes), mode=lax.GatherScatterMode.CLIP), wrong


def _scattered(scatter: Callable[..., Value]) -> IndexWord:
    def word(node: Node, x: Value, value: Value, index: Value) -> Checked:
        coordinates, wrong = _grid(node, x, index)
        axes = tuple(range(len(x.shape)))
        numbers = lax.ScatterDimensionNumbers(
            update_window_dims=(), inserted_window_dims=axes, scatter_dims_to_operand_dims=axes
        )
        return _put(scatter, x, coordinates, value, numbers), wrong

    return word


WORDS: dict[str, IndexWord] = {
    "index_get": _index_get,
    "index_set": _written(lax.scatter),
    "index_add": _written(lax.scatter_add),
    "gather": _gather,
    "scatter": _scattered(lax.scatter),
    "scatter_add": _scattered(lax.scatter_add),
}
