"""In which order loops visit the axes of a domain: rows and what is folded along them lie as memory does.

A sum over the rows of a transposed array is one over columns of memory. Whether the innermost loop is folded
decides how threads lie, so that it is asked of strides, not of axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from mgb.codegen import Loops, collapse

from .frame import Frame

Shape = tuple[int, ...]

#: Threads that load together, and bytes that memory gives out at once.
WARP, SECTOR = 32, 32

#: The one loop along which the threads of a warp are neighbours where nothing is turned.
INNERMOST = (-1,)

#: How many times fewer sectors must be asked for, so that another way to walk is worth it.
GAIN = 2


def sectors(step: int, itemsize: int) -> int:
    """Return the sectors that a warp touches with threads `step` elements apart, in aligned memory."""
    return min(WARP, max(1, abs(step) * itemsize * WARP // SECTOR))


def ordered(frame: Frame, domain: Shape, strides: Sequence[Shape]) -> Loops:
    """Return the loops over `domain`, for which memory is asked for few sectors.

    The axes stand in their own order, or in that of an input in memory where this is worth it. Outputs of
    full size lie row by row, and threads walk along them.

    Parameters
    ----------
    frame : Frame
    domain : tuple of int
        The shape to visit.
    strides : sequence of tuple of int
        Of each operand along the axes of `domain`, in elements.
    """
    own, *others = (_loops(frame, domain, strides, order) for order in dict.fromkeys(_orders(frame, strides)))
    if not others:
        return own
    prices = [asked(frame, loops, INNERMOST) for loops in others]
    least = min(prices)
    return others[prices.index(least)] if GAIN * least <= asked(frame, own, INNERMOST) else own


def _orders(frame: Frame, strides: Sequence[Shape]) -> Iterator[tuple[int, ...]]:
    """Yield orders of axes, outermost first; an axis along which an input is constant is an outer one."""
    axes = range(len(frame.schedule.shape))
    yield tuple(axes)
    if any(p.stores for p in frame.schedule.passes):
        return
    for o, steps in zip(frame.operands, strides, strict=True):
        moving = [axis for axis in axes if steps[axis]]
        lying = sorted(moving, key=lambda axis: -abs(steps[axis]))
        if lying != moving and not (o.is_output or o.is_iota):
            yield (*(axis for axis in axes if not steps[axis]), *lying)


def _loops(frame: Frame, domain: Shape, strides: Sequence[Shape], order: tuple[int, ...]) -> Loops:
    folded = [k for k, axis in enumerate(order) if axis in frame.folded_axes]
    return collapse(_in(order, domain), [_in(order, steps) for steps in strides], folded)


def _in(order: tuple[int, ...], values: Shape) -> Shape:
    return tuple(values[axis] for axis in order)


def asked(frame: Frame, loops: Loops, along: Sequence[int]) -> int:
    """Return for each element of an array the sectors of a warp that loads or stores it, added up.

    A warp has an innermost loop that is short several times, and each element is loaded once at least.

    Parameters
    ----------
    frame : Frame
    loops : Loops
    along : sequence of int
        The loops along which the threads of a warp may be neighbours: for each array the best of them.
    """
    found = 0
    for o, steps in zip(frame.operands, loops.strides, strict=True):
        if any(steps) and not o.is_iota:
            size = math.prod(d for d, step in zip(loops.shape, steps, strict=True) if step)
            ways = [max(sectors(steps[j] or 1, o.itemsize), WARP // max(1, loops.shape[j])) for j in along]
            found += size * min(ways)
    return found
