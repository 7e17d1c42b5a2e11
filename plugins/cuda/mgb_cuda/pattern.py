"""The access pattern, compiled into a kernel beside the graph: how its operands step through memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Any

from mgb.ir import Node
from mgb.runtime.forking import cached_property

from .device import Properties
from .frame import Frame
from .packing import Packing
from .steps import Steps

#: Bytes that a thread loads at once.
VECTOR = 16

#: Blocks for each multiprocessor that keep it busy, and the most that share a row.
BUSY, MOST_CHUNKS = 4, 4096


@dataclass(frozen=True)
class Pattern:
    """How the operands of a call step through memory; lengths and strides themselves are arguments.

    A domain is visited by few *loops*, its axes after merging. Operands with the same steps are of one
    *class*, whose steps are written with a letter for each loop: ``0``, ``1``, or ``s`` for a number that a
    call passes. *Lanes* are neighbours along the innermost loop that a thread takes at once.

    Attributes
    ----------
    wide : bool
        Places are 64-bit numbers.
    folded : tuple of bool
        For each loop, outermost first, whether it runs over folded axes.
    classes : tuple of str
        The steps of each class.
    class_of : tuple of int
        For each operand its class; -1: it has one element.
    lanes : int
        Neighbours that begin at the same multiple in every operand, and so may be loaded at once.
    tail : bool
        The last lanes of a row may lie beyond its end.
    stays : bool
        A row is read once, and stays in registers from pass to pass.
    online : bool
        The first pass does the second one's folds too.
    split : bool
        Blocks share a row, and each pass is a kernel of its own.
    units : int
        How many sets of operands one launch takes; 0: it is made for one.
    """

    wide: bool
    folded: tuple[bool, ...]
    classes: tuple[str, ...]
    class_of: tuple[int, ...]
    lanes: int = 1
    tail: bool = False
    stays: bool = False
    online: bool = False
    split: bool = False
    units: int = 0

    @cached_property
    def kept_loops(self) -> tuple[int, ...]:
        return tuple(j for j, folded in enumerate(self.folded) if not folded)

    @cached_property
    def folded_loops(self) -> tuple[int, ...]:
        return tuple(j for j, folded in enumerate(self.folded) if folded)

    @property
    def place(self) -> str:
        """The C type of places."""
        return "int64_t" if self.wide else "int"

    def letter(self, operand: int, loop: int) -> str:
        """Return how an operand steps along a loop."""
        group = self.class_of[operand]
        return "0" if group < 0 else self.classes[group][loop]

    def varies(self, group: int, loops: Iterable[int]) -> bool:
        """Return whether a class steps along any of `loops`."""
        return any(self.classes[group][j] != "0" for j in loops)

    def moves(self, operand: int) -> bool:
        """Return whether the operand varies along the innermost loop."""
        return bool(self.folded) and self.letter(operand, len(self.folded) - 1) != "0"

    @cached_property
    def numbers(self) -> tuple[tuple[str, str], ...]:
        """(type, name) of what a call passes beside addresses."""
        names = ["rows", "length", "chunk", "chunks"]
        names += [f"n{j}" for j in range(len(self.folded))]
        for c, letters in enumerate(self.classes):
            names += [f"s{c}_{j}" for j, letter in enumerate(letters) if letter == "s"]
        found = [(self.place, name) for name in (*names, *self.counts)]
        if not self.wide:
            for loops in (self.kept_loops, self.folded_loops):
                found += [("uint32_t", f"{name}{j}") for j in loops[1:] for name in ("m", "h")]
            found += [("uint32_t", f"{letter}{name}") for name in self.counts for letter in ("m", "h")]
        return tuple(found)

    @property
    def counts(self) -> tuple[str, ...]:
        """Further numbers to divide by; `magic` of each is passed too, as ``m`` and ``h`` with its name."""
        return ()

    def stages(self, frame: Frame) -> tuple[int, ...]:
        """Return the stages of a split row that are kernels; empty: one kernel does all."""
        if not self.split:
            return ()
        return tuple(k for k in range(frame.stages) if k != 1 or not self.online)

    def pointers(self, frame: Frame) -> dict[str, Node]:
        """Return what stands at each address, by its name: arrays, then the partial results of each pass."""
        arrays = {o.name: o.node for o in frame.arrays}
        return arrays | frame.parts if self.split else arrays

    def packing(self, frame: Frame) -> Packing:
        """Return how the parameters of one set of operands are packed: one struct."""
        return Packing(len(self.pointers(frame)), self.numbers)


@dataclass(frozen=True)
class Choice:
    """A variant, and how it is launched on one set of shapes.

    Attributes
    ----------
    variant : Pattern
        Of the backend's own class.
    numbers : dict
        What it is passed beside addresses.
    blocks : int
        In each launch; times `chunks` but for the last stage of a split row.
    chunks : int
    """

    variant: Any
    numbers: dict[str, int]
    blocks: int
    chunks: int


def even_lanes(frame: Frame, steps: Steps, straddles: bool, askew: Set[int]) -> int:
    """Return the most neighbours that can be loaded at once and lie at the same multiple in every operand.

    Parameters
    ----------
    frame : Frame
    steps : Steps
    straddles : bool
        May the last lanes lie beyond the end of a single loop?
    askew : set of int
        The arrays that begin at no multiple of `VECTOR` bytes.
    """
    last = len(steps.loops.shape) - 1
    units = {
        i: o.itemsize
        for i, (o, c) in enumerate(zip(frame.operands, steps.class_of, strict=True))
        if c >= 0 and steps.classes[c][last] == 1 and not o.is_iota
    }
    lanes = VECTOR // max(units.values(), default=VECTOR) if askew.isdisjoint(units) else 1
    while lanes > 1 and not _even(steps, lanes, straddles):
        lanes //= 2
    return lanes


def _even(steps: Steps, lanes: int, straddles: bool) -> bool:
    """Return whether lanes never straddle the end of the innermost loop, and begin at multiples."""
    *outer, length = steps.loops.shape
    if length % lanes and (outer or not straddles):
        return False
    moving = (s for s in steps.classes if s[-1] == 1)
    return all(step % lanes == 0 for s in moving for step in s[:-1])


def numbers(steps: Steps, chunk: int, chunks: int) -> dict[str, int]:
    """Return all that `Pattern.numbers` may name."""
    found = {"rows": steps.rows, "length": steps.length, "chunk": chunk, "chunks": chunks}
    for j, length in enumerate(steps.loops.shape):
        found |= {f"n{j}": length} | dict(zip((f"m{j}", f"h{j}"), magic(length), strict=True))
    for c, strides in enumerate(steps.classes):
        found |= {f"s{c}_{j}": step for j, step in enumerate(strides)}
    return found


def chunks(steps: Steps, properties: Properties, blocks: int, tile: int, unit: int) -> tuple[int, int]:
    """Return the elements of a row for each of the blocks that share it, and how many of these there are.

    Parameters
    ----------
    steps : Steps
    properties : Properties
    blocks : int
        Those of rows that are not shared.
    tile, unit : int
        The least that a block takes of a row; the part of a row that it takes is a multiple of `unit`.
    """
    wanted = BUSY * properties.multiprocessors // max(1, blocks)
    count = min(wanted, steps.length // tile, MOST_CHUNKS)
    if count < 2:
        return steps.length, 1
    chunk = -(-steps.length // count // unit) * unit
    return chunk, -(-steps.length // chunk)


def magic(length: int) -> tuple[int, int]:
    """Return ``(factor, shift)`` with ``n // length == (n * factor // 2**32 + n) >> shift``, ``n < 2**31``.

    Granlund and Montgomery, Division by Invariant Integers using Multiplication, 1994.
    """
    if not 0 < length < 1 << 31:
        return 0, 0
    shift = (length - 1).bit_length()
    return ((1 << 32) * ((1 << shift) - length) // length + 1), shift


def power(number: float) -> int:
    """Return the power of two that is not smaller."""
    return 1 << max(0, math.ceil(number) - 1).bit_length()


def scratch_places(frame: Frame, choice: Choice) -> tuple[int, ...]:
    """Return where the partial results of a split row lie in scratch memory, and its size; empty without."""
    if not (choice.variant.split and frame.parts):
        return ()
    places, size = [], 0
    for f in frame.parts.values():
        places.append(size)
        size += -(-choice.chunks * choice.numbers["rows"] * f.spec.dtype.itemsize // 256) * 256
    return (*places, size)
