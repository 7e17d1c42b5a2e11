"""Shapes and strides."""

from __future__ import annotations

from collections.abc import Sequence

from mgb.tensor.libraries import Layout

Shape = tuple[int, ...]
Axes = tuple[int, ...]


def row_major(shape: Sequence[int]) -> list[int]:
    """Return the strides of a new array, in elements."""
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * extent)
    return strides


def memory_order(layout: Layout) -> Axes:
    """Return the axes in the order in which they lie in memory, the outermost first; ties as they stand."""
    return tuple(sorted(range(len(layout.shape)), key=lambda axis: -layout.strides[axis]))


def inverse(axes: Axes) -> Axes:
    """Return the permutation that undoes a transpose by `axes`."""
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


def strides_in(order: Axes, shape: Sequence[int]) -> list[int]:
    """Return the strides of a dense array whose axes lie in memory in `order`, in elements."""
    dense = row_major([shape[axis] for axis in order])
    return [dense[place] for place in inverse(order)]
