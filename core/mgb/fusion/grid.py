"""Ranges along axes: where values are cut, and what of them a slice covers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from ..ops.layout import Window

Range = tuple[Any, Any]


def merged(cuts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return all places of several lists, in order."""
    found: list[Any] = []
    for place in (place for own in cuts for place in own):
        at = 0
        while at < len(found) and found[at] < place:
            at += 1
        if at == len(found) or found[at] != place:
            found.insert(at, place)
    return tuple(found)


def grid(cuts: Sequence[tuple[Any, ...]]) -> Iterator[tuple[list[Range], tuple[int, ...]]]:
    """Yield the ranges along each axis, and the place in the grid, of each box."""
    for place in product(*(range(len(own) - 1) for own in cuts)):
        yield [(own[p], own[p + 1]) for own, p in zip(cuts, place, strict=True)], place


def within(window: Window, ranges: Sequence[Range]) -> Window:
    """Return the part of a window that these ranges of it are."""
    found = []
    for (start, _, step), (a, b) in zip(window, ranges, strict=True):
        first, last = start + a * step, start + b * step
        found.append((first, last if step > 0 or last >= 0 else -1, step))
    return tuple(found)


def covered(window: tuple[Any, Any, int], length: Any) -> Range:
    """Return the range that a window of so many elements covers, forwards or backwards."""
    first, _, step = window
    return (first, first + length) if step > 0 else (first + 1 - length, first + 1)
