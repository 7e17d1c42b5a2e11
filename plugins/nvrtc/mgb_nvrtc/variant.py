"""What is compiled into a kernel beside the graph: how threads share the work and step through memory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from mgb_cuda import Packing

from .frame import Frame

#: Shared memory in which threads meet to add up totals; two such parts are in use at a time.
ROUND_BYTES = 16 << 10


class Kind(Enum):
    """How threads lie over the domain."""

    FLAT = "flat"  # no reductions: blocks take pieces of the whole domain
    ROWS = "rows"  # the innermost axis is folded: neighbouring threads work on one row
    COLUMNS = "columns"  # the innermost axis is kept: neighbouring threads work on neighbouring rows


@dataclass(frozen=True)
class Variant:
    """One kernel of a graph.

    A domain is visited by few *loops*, its axes after merging. Operands that step through them alike are of
    one *class*, whose steps are spelt with a letter for each loop: ``0``, ``1``, or ``s`` for a number that a
    call passes. *Lanes* are neighbours along the innermost loop that a thread takes at once.

    Attributes
    ----------
    kind : Kind
    wide : bool
        Places are 64-bit numbers.
    folded : tuple of bool
        For each loop, outermost first, whether it runs over folded axes.
    classes : tuple of str
        The steps of each class.
    class_of : tuple of int
        For each operand its class; -1: it has one element.
    lanes : int
    tail : bool
        The last lanes of a row may lie beyond its end.
    threads : int
        In a block.
    team : int
        How many of them share a row.
    slots : int
        How many times as many elements a thread takes at once, so that loads are under way together.
    stays : bool
        A thread keeps what it has read of a row in registers from pass to pass.
    online : bool
        The first pass does the second one's folds too.
    split : bool
        Blocks share a row, and each pass is a kernel of its own.
    units : int
        How many sets of operands one launch takes; 0: it is made for one.
    """

    kind: Kind
    wide: bool
    folded: tuple[bool, ...]
    classes: tuple[str, ...]
    class_of: tuple[int, ...]
    lanes: int = 1
    tail: bool = False
    threads: int = 256
    team: int = 256
    slots: int = 1
    stays: bool = False
    online: bool = False
    split: bool = False
    units: int = 0

    @property
    def across(self) -> int:
        """The teams of a block."""
        return self.threads // self.team

    @property
    def row_lanes(self) -> int:
        """The rows that a thread works on at once."""
        return self.lanes if self.kind is Kind.COLUMNS else 1

    @property
    def rows_of_block(self) -> int:
        return self.across * self.row_lanes

    @property
    def stride(self) -> int:
        """How many elements of a row a team takes with one slot."""
        return self.team * (1 if self.kind is Kind.COLUMNS else self.lanes)

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
        """How an operand steps along a loop."""
        group = self.class_of[operand]
        return "0" if group < 0 else self.classes[group][loop]

    def moves(self, operand: int) -> bool:
        """Does the operand vary along the innermost loop?"""
        return bool(self.folded) and self.letter(operand, len(self.folded) - 1) != "0"

    @cached_property
    def numbers(self) -> tuple[tuple[str, str], ...]:
        """(type, name) of what a call passes beside addresses."""
        names = ["rows", "length", "chunk", "chunks"]
        names += [f"n{j}" for j in range(len(self.folded))]
        for c, letters in enumerate(self.classes):
            names += [f"s{c}_{j}" for j, letter in enumerate(letters) if letter == "s"]
        found = [(self.place, name) for name in names]
        if not self.wide:
            for loops in (self.kept_loops, self.folded_loops):
                found += [("uint32_t", f"{name}{j}") for j in loops[1:] for name in ("m", "h")]
        return tuple(found)

    def pointers(self, frame: Frame) -> tuple[str, ...]:
        """The names of the addresses: arrays, then the partial results of each pass."""
        names = [o.name for o in frame.arrays]
        if self.split:
            for k, p in enumerate(frame.plain.passes):
                names += [f"part{k}_{i}" for i in range(len(p.folds))]
        return tuple(names)

    def packing(self, frame: Frame) -> Packing:
        """How the parameters of one set of operands are packed."""
        return Packing(len(self.pointers(frame)), self.numbers)
