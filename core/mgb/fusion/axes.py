"""Axes that are split and merged, by their ends: how many elements lie from one on.

The ends of the axes of a value of shape (2, 3, 4) are 24, 12, 4 and 1. Reshapes keep the first and the last.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import prod

Shape = tuple[int, ...]


def are_plain(*shapes: Shape) -> bool:
    return all(type(d) is int and d for shape in shapes for d in shape)


def ends(shape: Shape) -> frozenset[int]:
    return frozenset(prod(shape[a:]) for a in range(len(shape) + 1))


def stretched_axes(small: Shape, shape: Shape) -> list[bool]:
    """Return which axes of `shape` a value of shape `small` is broadcast along."""
    own = (1,) * (len(shape) - len(small)) + tuple(small)
    return [a != b for a, b in zip(own, shape, strict=True)]


def between(ends: Iterable[int]) -> Shape | None:
    """Return the lengths of axes with these ends, or None where they are fractions."""
    pairs = list(pairwise(sorted(ends, reverse=True)))
    return tuple(a // b for a, b in pairs) if all(a % b == 0 for a, b in pairs) else None


def axes_split(shape: Shape, domain: Shape) -> list[tuple[int, ...]] | None:
    """Return the lengths in `domain` that each axis of `shape` is split into; None: it is otherwise.

    Examples
    --------
    >>> axes_split((6, 4), (2, 3, 4)), axes_split((6, 4), (3, 8))
    ([(2, 3), (4,)], None)
    """
    if not are_plain(shape, domain) or 1 in domain:
        return None
    groups, k = [], 0
    for length in shape:
        first = k
        while k < len(domain) and prod(domain[first:k]) < length:
            k += 1
        if prod(domain[first:k]) != length:
            return None
        groups.append(tuple(domain[first:k]))
    return groups
