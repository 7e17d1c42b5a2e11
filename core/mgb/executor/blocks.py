"""Loops over large arrays, block by block: where no element looks at another one, each block stays in cache
for all turns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ..backends import Turn
from ..fusion import Step
from ..ir import CONST, Kind

#: Bytes that the arrays of a turn may have before they are cut, and those of a block; the most blocks.
LARGE, BLOCK, MOST = 1 << 21, 1 << 19, 256


def by_element(steps: Sequence[Step]) -> bool:
    """Return whether each element that these steps make depends on no other one, nor on its own place."""
    nodes = (node for step in steps for node in step.graph.nodes)
    return all(node.op.kind is Kind.ELEMENTWISE or node.op is CONST for node in nodes)


def blocks(turns: Sequence[Turn]) -> list[list[Turn]]:
    """Return the turns of each block, of which all are done before those of the next.

    One, if that is of no use.
    """
    arrays = {a.ctypes.data: a for turn in turns for phase in turn.arrays for a in phase}
    shapes = [a.shape for a in arrays.values()]
    shape: tuple[int, ...] = max(shapes, key=lambda s: (len(s), math.prod(s)))
    nbytes = sum(a.nbytes for a in arrays.values())
    count = min(-(-nbytes // BLOCK), shape[0] if shape else 1, MOST)
    if nbytes < LARGE or count < 2 or not all(_fits(a, shape) for a in arrays.values()):
        return [list(turns)]
    if any(turn.arrays[0][-1].shape != shape for turn in turns):  # a row that several elements share
        return [list(turns)]
    ends = [shape[0] * k // count for k in range(count + 1)]
    return [[_cut(turn, shape, slice(*span)) for turn in turns] for span in pairwise(ends)]


def _fits(array: Any, shape: tuple[int, ...]) -> bool:
    """Return whether it can be cut as an array of `shape` is, or serves all blocks."""
    return array.ndim < len(shape) or array.shape[0] in (1, shape[0])


def _cut(turn: Turn, shape: tuple[int, ...], block: slice) -> Turn:
    def part(array: Any) -> Any:
        is_cut = array.ndim == len(shape) and array.shape[0] == shape[0]
        return array[block] if is_cut else array

    return Turn(turn.kernel, tuple(tuple(map(part, phase)) for phase in turn.arrays), turn.steps)
