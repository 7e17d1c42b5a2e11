"""Strides: how arrays lie in memory, and the fewest axes that a loop over them needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Shape = tuple[int, ...]


def row_major(shape: Shape, itemsize: int = 1) -> Shape:
    """Return the strides of a row-major array of elements of `itemsize`; 0 along axes of length 1.

    Examples
    --------
    >>> row_major((2, 1, 4)), row_major((2, 1, 4), itemsize=8)
    ((4, 0, 1), (32, 0, 8))
    """
    strides, step = [], itemsize
    for length in reversed(shape):
        strides.append(0 if length == 1 else step)
        step *= length
    return tuple(reversed(strides))


def broadcast_strides(shape: Shape, strides: Shape, domain: Shape) -> Shape:
    """Return the strides of an array along the axes of `domain`: 0 where it is broadcast.

    Examples
    --------
    >>> broadcast_strides((4, 1), (1, 1), (2, 4, 8))
    (0, 1, 0)
    """
    lead = len(domain) - len(shape)
    own = [0 if length == 1 else step for length, step in zip(shape, strides, strict=True)]
    return (0,) * lead + tuple(own)


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops that visit a domain.

    Attributes
    ----------
    shape : tuple of int
        Length of each loop, outermost first.
    strides : tuple of tuple of int
        For each operand, its stride along each loop.
    folded : tuple of bool
        Whether the loop runs over reduced axes.

    Examples
    --------
    >>> from mgb.codegen import collapse
    >>> collapse((4, 1, 8), [(8, 0, 1), (0, 0, 1)])
    Loops(shape=(4, 8), strides=((8, 1), (0, 1)), folded=(False, False))
    """

    shape: Shape
    strides: tuple[Shape, ...]
    folded: tuple[bool, ...]


def collapse(domain: Shape, strides: Sequence[Shape], reduced: Sequence[int] = ()) -> Loops:
    """Drop axes of length 1 and merge neighbours that every operand steps through evenly.

    Two neighbours merge when, for each operand, one step of the outer is as far as the whole inner axis, and
    when both or none are in `reduced`.

    Parameters
    ----------
    domain : tuple of int
        The shape to visit.
    strides : sequence of tuple of int
        For each operand its strides along the axes of `domain`, see `broadcast_strides`.
    reduced : sequence of int, optional
        The reduced axes of `domain`.

    Examples
    --------
    >>> rows, bias = (8, 1), (0, 1)
    >>> collapse((4, 8), [rows, rows]).shape, collapse((4, 8), [rows, bias]).shape
    ((32,), (4, 8))
    """
    axes: list[tuple[int, list[int], bool]] = []
    for axis, length in enumerate(domain):
        if length == 1:
            continue
        steps, fold = [s[axis] for s in strides], axis in reduced
        if axes:
            outer, outer_steps, outer_fold = axes[-1]
            if fold == outer_fold and outer_steps == [step * length for step in steps]:
                axes[-1] = (outer * length, steps, fold)
                continue
        axes.append((length, steps, fold))
    return Loops(
        tuple([length for length, _, _ in axes]),
        tuple([tuple([steps[k] for _, steps, _ in axes]) for k in range(len(strides))]),
        tuple([fold for _, _, fold in axes]),
    )
