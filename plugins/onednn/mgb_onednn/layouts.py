"""Shapes and strides."""

from __future__ import annotations

from collections.abc import Sequence

Shape = tuple[int, ...]


def row_major(shape: Sequence[int]) -> list[int]:
    """The strides of a new array, in elements."""
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * extent)
    return strides
