"""How the operands of one call step through memory: the loops that are left, and who steps alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from mgb.codegen import Loops, aligned, broadcast_strides, row_major

from .frame import Frame, Operand
from .order import ordered

Shape = tuple[int, ...]

#: Places below this are 32-bit numbers, with room for a block that goes past the end.
NARROW = (1 << 31) - (1 << 24)


@dataclass(frozen=True)
class Steps:
    """The loops and steps that a call's shapes and strides give.

    Attributes
    ----------
    loops : Loops
        In elements.
    classes : tuple of tuple of int
        The different strides.
    class_of : tuple of int
        For each operand; -1: it has one element.
    """

    loops: Loops
    classes: tuple[Shape, ...]
    class_of: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Return how many rows there are."""
        return math.prod(d for d, folded in zip(self.loops.shape, self.loops.folded) if not folded)

    @property
    def length(self) -> int:
        """Return how many elements a row has."""
        return math.prod(d for d, folded in zip(self.loops.shape, self.loops.folded) if folded)

    @property
    def columns(self) -> bool:
        """Return whether the innermost loop is kept, so that its neighbours are rows."""
        return not all(self.loops.folded[-1:])

    @property
    def letters(self) -> tuple[str, ...]:
        """The classes as a `Pattern` spells them."""
        return tuple(
            "".join(str(step) if step in (0, 1) else "s" for step in steps) for steps in self.classes
        )

    @property
    def wide(self) -> bool:
        """Return whether a place needs 64 bits."""
        reach = [sum((d - 1) * abs(s) for d, s in zip(self.loops.shape, steps)) for steps in self.classes]
        return max([self.rows, self.length, *reach]) >= NARROW


def steps(frame: Frame, shapes: Sequence[Shape], strides: Sequence[Shape]) -> Steps:
    """Return the steps of a call with these `shapes` and `strides` (in bytes, of inputs and constants)."""
    known = np.broadcast_shapes(*shapes) if shapes else ()
    given = frame.schedule.shape
    pairs = zip(aligned(known, len(given)), given, strict=True)
    domain = tuple(k if k != 1 else g for k, g in pairs)
    found = [_strides(o, i, domain, shapes, strides) for i, o in enumerate(frame.operands)]
    loops = ordered(frame, domain, found)
    classes = list(dict.fromkeys(s for s in loops.strides if any(s)))
    numbers = tuple(classes.index(s) if any(s) else -1 for s in loops.strides)
    return Steps(loops, tuple(classes), numbers)


def _strides(o: Operand, i: int, domain: Shape, shapes: Sequence[Shape], strides: Sequence[Shape]) -> Shape:
    if o.is_iota:
        own = aligned(o.node.spec.shape, len(domain))
        return row_major(tuple(1 if d == 1 else full for d, full in zip(own, domain, strict=True)))
    if o.is_output:
        return broadcast_strides(shapes[i], row_major(shapes[i]), domain)
    return broadcast_strides(shapes[i], tuple(s // o.itemsize for s in strides[i]), domain)
