"""Indices that only count: sums of constants and of multiples of the places along axes.

``x[256 * arange(n)[:, None] + arange(1024)]`` has windows of `x`. What is at places that count so is a view,
of which a kernel reads vectors, and no place is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..ir import CONST, INPUT, Graph, Node, Op
from ..ir.dtypes import INTEGERS
from ..ops.declare import op_of
from ..ops.layout import BROADCAST_TO, RESHAPE
from ..ops.primitives import IOTA, add, cast, mul, neg, sub
from ..ops.strided import strided
from ..passes.reshapes import moves_ones, places
from ..tensor import Tensor
from .axes import are_plain

ADD, CAST, MUL, NEG, SUB = map(op_of, (add, cast, mul, neg, sub))

#: The most elements of an array of indices that are looked at one by one, and the most ops that compute one.
LOOKED_AT, OPS = 1 << 20, 64

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Count:
    """Numbers that count along axes.

    Attributes
    ----------
    start : int
    steps : tuple of int
        What each axis adds from one element to the next.
    """

    start: int
    steps: tuple[int, ...]


def view(x: Tensor, indices: Sequence[Node], along: Sequence[int | None], shape: Shape) -> Tensor | None:
    """Return what ``look_up`` gives, of `shape`, as a view; None where the indices do not count."""
    if not are_plain(shape, x.shape):
        return None
    given, starts, steps = iter(indices), [], []
    for length, at in zip(x.shape, along, strict=True):
        if at is not None:
            starts.append(0)
            steps.append(tuple(int(k == len(shape) + at) for k in range(len(shape))))
            continue
        count = _inside(_count(next(given)), length, shape)
        if count is None:
            return None
        starts.append(count.start)
        steps.append(count.steps)
    return strided(x, shape=shape, starts=tuple(starts), steps=tuple(steps))


def _inside(count: Count | None, length: int, shape: Shape) -> Count | None:
    """Return places over the axes of `shape`, from the start of an axis; None where some are out of range."""
    if count is None:
        return None
    count = _aligned(count, len(shape))
    low, high = _ends(count, shape)
    behind = length if high < 0 else 0
    return Count(count.start + behind, count.steps) if low + behind >= 0 and high + behind < length else None


def _count(node: Node) -> Count | None:
    """Return how the values of `node` count, or None."""
    found: dict[Node, Count | None] = {}
    for each in Graph((), (node,)).nodes if _reads_nothing(node) else ():
        found[each] = _fitting(_counted(each, found), each)
    return found.get(node)


def _reads_nothing(node: Node) -> bool:
    """Return whether it is computed of constants and places alone, by a few ops."""
    seen, waiting = {node}, [node]
    while waiting and len(seen) <= OPS:
        each = waiting.pop()
        if each.op is INPUT:
            return False
        fresh = [i for i in each.inputs if i not in seen]
        seen.update(fresh)
        waiting += fresh
    return len(seen) <= OPS


def _counted(node: Node, found: dict[Node, Count | None]) -> Count | None:
    shape = node.spec.shape
    if not are_plain(shape) or node.spec.dtype not in INTEGERS:
        return None
    if node.op is CONST:
        return _of_array(node.params["value"])
    if node.op is IOTA:
        return Count(0, tuple(prod(shape[a + 1 :]) if d != 1 else 0 for a, d in enumerate(shape)))
    counts = [c for c in (found[i] for i in node.inputs) if c is not None]
    if not counts or len(counts) != len(node.inputs):
        return None
    if node.op is BROADCAST_TO:
        return _aligned(counts[0], len(shape))
    if node.op is RESHAPE:
        return _with_ones(counts[0], node) if moves_ones(node) else None
    return _combined(node.op, [_aligned(c, len(shape)) for c in counts])


def _fitting(count: Count | None, node: Node) -> Count | None:
    """Return what counts in the dtype of `node`, in which a number out of range would wrap."""
    if count is None:
        return None
    low, high = _ends(count, node.spec.shape)
    info = np.iinfo(node.spec.dtype)
    return count if info.min <= low and high <= info.max else None


def _ends(count: Count, shape: Shape) -> tuple[int, int]:
    """Return the least and the greatest number."""
    far = [step * (d - 1) for step, d in zip(count.steps, shape, strict=True)]
    return count.start + sum(f for f in far if f < 0), count.start + sum(f for f in far if f > 0)


def _combined(op: Op, counts: Sequence[Count]) -> Count | None:
    if op is CAST:
        return counts[0]
    if op is NEG:
        return _times(counts[0], -1)
    if op in (ADD, SUB):
        a, b = counts[0], counts[1] if op is ADD else _times(counts[1], -1)
        return Count(a.start + b.start, tuple(p + q for p, q in zip(a.steps, b.steps, strict=True)))
    if op is MUL:
        for one, other in (counts, counts[::-1]):
            if not any(other.steps):
                return _times(one, other.start)
    return None


def _times(count: Count, factor: int) -> Count:
    return Count(count.start * factor, tuple(step * factor for step in count.steps))


def _aligned(count: Count, ndim: int) -> Count:
    return Count(count.start, (0,) * (ndim - len(count.steps)) + count.steps)


def _with_ones(count: Count, node: Node) -> Count:
    place = places(node.spec.shape, node.inputs[0].spec.shape)
    return Count(
        count.start, tuple(count.steps[place[a]] if a in place else 0 for a in range(node.spec.ndim))
    )


def _of_array(array: Any) -> Count | None:
    """Return how the elements of an array count, or None."""
    if not 0 < array.size <= LOOKED_AT:
        return None
    first = int(array.flat[0])
    steps = tuple(
        int(array[tuple(int(a == axis) for a in range(array.ndim))]) - first if d > 1 else 0
        for axis, d in enumerate(array.shape)
    )
    places = np.indices(array.shape, sparse=True)
    counted = first + sum(step * place for step, place in zip(steps, places, strict=True))
    return Count(first, steps) if np.array_equal(array, counted) else None
