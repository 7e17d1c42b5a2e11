"""Axes that are split and merged, by their ends: how many elements lie from one on.

The ends of the axes of a value of shape (2, 3, 4) are 24, 12, 4 and 1. Reshapes keep the first and the last.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import prod

from ..ir.sizes import same_shape
from ..passes.reshapes import is_one

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


def axes_split(shape: Shape, domain: Shape) -> list[Shape] | None:
    """Return the lengths in `domain` that each axis of `shape` is split into; None: it is otherwise.

    Examples
    --------
    >>> axes_split((6, 4), (2, 3, 4, 1)), axes_split((6, 4), (3, 8))
    ([(2, 3), (4, 1)], None)
    """
    left, groups = list(domain), list[Shape]()
    for length in shape:
        own = list[int]()
        while left and not same_shape((prod(own),), (length,)):
            own.append(left.pop(0))
        if not same_shape((prod(own),), (length,)):
            return None
        while left and is_one(left[0]):
            own.append(left.pop(0))
        groups.append(tuple(own))
    return None if left else groups


def plain_split(shape: Shape, domain: Shape) -> list[Shape] | None:
    """Return the same where all lengths are known and no axis goes; else None."""
    groups = axes_split(shape, domain) if are_plain(shape, domain) else None
    return groups if groups and all(groups) else None
