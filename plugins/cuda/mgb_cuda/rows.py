"""The passes of a kernel over its rows, in any language: which folds are found where, and in which order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from mgb.codegen import Online, Pass, Schedule, values
from mgb.ir import Node

from .frame import Frame
from .pattern import Pattern


class Found(Enum):
    """Where a kernel finds the folds of a pass."""

    HERE = "here"  # in the elements of the rows, which it visits
    AHEAD = "ahead"  # the pass before it has found them as far as it could
    BEFORE = "before"  # the blocks of an earlier stage have written them, each those of its part of a row


@dataclass(frozen=True, slots=True)
class Turn:
    """The part of one pass in a kernel.

    Attributes
    ----------
    number : int
        Of the pass.
    found : Found
    ahead : tuple of Online
        The folds of the second pass that the first one finds, in the turns of both.
    own : bool
        They are those of a part of a row, and are written for the next stage.
    """

    number: int
    found: Found
    ahead: tuple[Online, ...] = ()
    own: bool = False


def turns(frame: Frame, variant: Pattern, stage: int | None) -> Iterator[Turn]:
    """Yield the turns of a kernel: of all passes, or of one stage of a split row.

    A stage does one pass, given what the blocks of the earlier ones have found, or what follows the last. The
    first one of an online variant does two; what its blocks find of the second is about their own parts.
    """
    count, ahead = len(frame.schedule.passes), frame.online if variant.online else ()
    if stage is None:
        for k in range(count):
            yield Turn(k, Found.AHEAD if k == 1 and ahead else Found.HERE, ahead if k < 2 else ())
        return
    for k in range(min(stage, count)):
        yield Turn(k, Found.BEFORE, ahead if k == 1 else ())
    if stage < count:
        yield Turn(stage, Found.HERE, ahead if stage == 0 else (), own=True)
    if stage == 0 and ahead:
        yield Turn(1, Found.AHEAD, ahead, own=True)


class Rows(ABC):
    """Prints the kernels of one variant; a backend says how each piece is written in its language.

    Attributes
    ----------
    schedule : Schedule
    index, number : dict
        The number of each operand, and of each value.
    names : dict
        How the values known here are called.
    accumulators : dict
        Where each reduction is folded.
    given : str
        What stands before the name of a number that a call passes.
    settled : tuple of (str, str)
        The functions that give what a block has found the shift of the row: for sums of exponentials, of
        squares.
    """

    given: str
    settled: tuple[str, str]

    def __init__(self, frame: Frame, variant: Any, schedule: Schedule) -> None:
        self.frame, self.variant, self.schedule = frame, variant, schedule
        self.index = {o: i for i, o in enumerate(frame.operands)}
        self.number = {v: i for i, v in enumerate(values(frame.graph))}
        self.lines: list[str] = []
        self.depth = 0
        self.names: dict[Node, str] = {}
        self.accumulators: dict[Node, str] = {}

    def line(self, text: str) -> None:
        """Write one line."""
        self.lines.append("    " * self.depth + text)

    # places

    @abstractmethod
    def let(self, name: str, place: str) -> None:
        """Give a place a name."""

    @abstractmethod
    def quotient(self, place: str, loop: int) -> str:
        """Return a place divided by the length of a loop."""

    def decompose(self, place: str, loops: Sequence[int]) -> None:
        """Write the place ``i0``, ``i1``, ... in each of `loops`, outermost first, of a row-major one."""
        for j in reversed(loops[1:]):
            self.let(f"q{j}", self.quotient(place, j))
            self.let(f"i{j}", f"{place} - q{j} * {self.given}n{j}")
            place = f"q{j}"
        if loops:
            self.let(f"i{loops[0]}", place)

    def offset(self, group: int, loops: Iterable[int]) -> str:
        """Return how far a class has gone along `loops`."""
        letters = self.variant.classes[group]
        step = f" * {self.given}s{group}_"
        terms = [f"i{j}" + (f"{step}{j}" if letters[j] == "s" else "") for j in loops if letters[j] != "0"]
        return " + ".join(terms) or "0"

    def still(self, index: int, loops: Iterable[int]) -> list[int]:
        """Return those of `loops` along which an operand stays where it is."""
        return [j for j in loops if self.variant.letter(index, j) == "0"]

    # passes

    def passes(self, stage: int | None) -> None:
        """Write the passes of a kernel: of all, or of one stage of them."""
        for turn in turns(self.frame, self.variant, stage):
            p = self.schedule.passes[turn.number]
            self.accumulators |= {f: f"a{turn.number}_{i}" for i, f in enumerate(p.folds)}
            self.start_folds(turn, p.folds)
            if turn.found is Found.HERE:
                if turn.ahead:
                    self.start_online(turn.ahead)
                self.visit(p, turn.ahead)
            elif turn.found is Found.AHEAD:
                self.settle(turn)
            elif p.folds:
                self.read_parts(turn, p.folds)
            self.finish_folds(turn.number, p.folds)
            if not turn.own:
                self.row_values(p.after)
            elif p.folds:
                self.write_parts(turn.number, p.folds)
        if stage in (None, self.frame.stages - 1):
            self.row_stores(stage)

    @abstractmethod
    def start_folds(self, turn: Turn, folds: tuple[Node, ...]) -> None:
        """Let the accumulators of a pass be empty."""

    @abstractmethod
    def visit(self, p: Pass, ahead: Sequence[Online] = ()) -> None:
        """Load, compute, fold and store every element of the rows that a block works on.

        Folds that a later pass would do are done as well, as far as they can be, when they are given.
        """

    @abstractmethod
    def finish_folds(self, number: int, folds: tuple[Node, ...]) -> None:
        """Fold what the accumulators hold; all threads of a row know the total then."""

    @abstractmethod
    def row_values(self, nodes: Iterable[Node]) -> None:
        """Compute values that are the same along a row."""

    @abstractmethod
    def row_stores(self, stage: int | None) -> None:
        """Write the outputs that have one element for each row."""

    @contextmanager
    def each_row(self) -> Iterator[None]:
        """Write what follows for each of the rows that a thread works on."""
        yield

    # folds of the second pass in the first

    @abstractmethod
    def start_online(self, ahead: Iterable[Online]) -> None:
        """Initialize the partial results that are found before the shift is known."""

    def settle(self, turn: Turn) -> None:
        """Emit the partial results as of the second pass, or for the shift of a block's own part."""
        with self.each_row():
            for o in turn.ahead:
                shift = self.own_shift(o) if turn.own else self.names[o.shift]
                self.settle_fold(o, shift)

    @abstractmethod
    def own_shift(self, o: Online) -> str:
        """Return the shift that a block uses while the one of the row is unknown."""

    @abstractmethod
    def settle_fold(self, o: Online, shift: str) -> None:
        """Emit what was found for one fold, once its shift is known."""

    # stages

    def read_parts(self, turn: Turn, folds: tuple[Node, ...]) -> None:
        """Fold what the blocks of an earlier stage have found of these rows."""
        early = {o.fold: o for o in turn.ahead}
        with self.each_part(folds):
            for i, f in enumerate(folds):
                found = self.part(f"part{turn.number}_{i}")
                self.fold_part(f, self.about_shift(early[f], found) if f in early else found)

    @abstractmethod
    def each_part(self, folds: tuple[Node, ...]) -> AbstractContextManager[None]:
        """Write what follows for each part of a row."""

    @abstractmethod
    def part(self, name: str) -> str:
        """Return the partial results with this name, of the part of a row."""

    @abstractmethod
    def fold_part(self, reduction: Node, found: str) -> None:
        """Fold a partial result."""

    def about_shift(self, o: Online, found: str) -> str:
        """Return the partial result of a block for its own part, as if it had known the shift."""
        base = self.part(f"part0_{self.schedule.passes[0].folds.index(o.base)}")
        exponentials, squares = self.settled
        if o.maximum is not None:
            return f"{exponentials}({found}, {base}, {self.names[o.shift]})"
        return f"{squares}({found}, {base}, {self.part_length(o.fold)}, {self.names[o.shift]})"

    @abstractmethod
    def part_length(self, fold: Node) -> str:
        """Return how many elements the part of a row has, in the dtype of a fold."""

    @abstractmethod
    def write_parts(self, number: int, folds: tuple[Node, ...]) -> None:
        """Write what a block has found of its part of the rows."""
