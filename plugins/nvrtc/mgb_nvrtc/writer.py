"""The lines of a kernel, and how it spells places in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from mgb.codegen import Online, Schedule, values
from mgb.ir import Node
from mgb_cuda.frame import Frame, Operand
from mgb_cuda.variant import Kind, Variant


class Writer:
    """Writes CUDA C++ for one variant.

    Attributes
    ----------
    names : dict
        How the values of the row, or of all rows, are called.
    arrays : dict
        Values that are held for all slots: name, lanes.
    accumulators : dict
        Where each reduction is folded.
    full : bool
        Is what is written about tiles that end before the row does?
    """

    def __init__(self, frame: Frame, variant: Variant) -> None:
        self.frame, self.variant = frame, variant
        self.schedule: Schedule = frame.keeping if variant.stays else frame.schedule
        self.index = {o: i for i, o in enumerate(frame.operands)}
        self.number = {v: i for i, v in enumerate(values(frame.graph))}
        self.lines: list[str] = []
        self.depth = 0
        self.names: dict[Node, str] = {}
        self.arrays: dict[Node, tuple[str, int]] = {}
        self.accumulators: dict[Node, str] = {}
        self.fresh: list[Node] = []
        self.ahead: tuple[Online, ...] = ()
        self.rounds = 0
        self.full = False

    # lines

    def line(self, text: str) -> None:
        """Write one line."""
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write `head`, and what follows one level deeper, up to the closing brace."""
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    @contextmanager
    def lanes(self, count: int) -> Iterator[None]:
        """Open a block for each lane ``v``."""
        if count > 1:
            self.line("#pragma unroll")
            head = f"for (int v = 0; v < {count}; ++v) {{"
        else:
            head = "{"
        with self.block(head):
            if count == 1:
                self.line("const int v = 0;")
            yield

    @contextmanager
    def element_block(self, heads: Sequence[str], at: str) -> Iterator[None]:
        """Open a block for each slot ``s``, run when its place ``at`` is before the end of the row."""
        if self.variant.slots > 1:
            self.line("#pragma unroll")
        with self.block(heads[0]):
            self.line(f"const I at = {at};")
            with self.block("{" if self.full else "if (at < end) {"):
                if self.variant.whole:
                    for c in self.variant.whole:
                        self.line(f"const I o{c} = at;")
                    yield
                    return
                folded = self.variant.folded_loops
                self.decompose("at", folded)
                for c, letters in enumerate(self.variant.classes):
                    terms = self.offset(c, folded)
                    base = "" if self.variant.kind is Kind.FLAT else f"b{c} + "
                    if any(letters[j] != "0" for j in folded) or not base:
                        self.line(f"const I o{c} = {base}{terms};")
                    else:
                        self.line(f"const I o{c} = b{c};")
                yield

    @property
    def slot_index(self) -> str:
        return "s" if self.variant.slots > 1 else "0"

    # places

    def decompose(self, index: str, loops: Sequence[int]) -> None:
        """Write the place ``i0``, ``i1``, ... in each of `loops`, outermost first, of a row-major `index`."""
        rest = index
        for j in reversed(loops[1:]):
            factor = "0, 0" if self.variant.wide else f"p.m{j}, p.h{j}"
            self.line(f"const I q{j} = divide({rest}, p.n{j}, {factor});")
            self.line(f"const I i{j} = {rest} - q{j} * p.n{j};")
            rest = f"q{j}"
        if loops:
            self.line(f"const I i{loops[0]} = {rest};")

    def offset(self, group: int, loops: Iterable[int]) -> str:
        """Return how far a class has gone along `loops`."""
        letters = self.variant.classes[group]
        terms = [
            f"i{j}" if letters[j] == "1" else f"i{j} * p.s{group}_{j}" for j in loops if letters[j] != "0"
        ]
        return " + ".join(terms) or "0"

    def base(self, index: int) -> str:
        """Return where an operand's row begins."""
        group = self.variant.class_of[index]
        return "0" if group < 0 else f"b{group}"

    def place(self, index: int) -> str:
        """Return where an operand's element ``at`` is."""
        group = self.variant.class_of[index]
        return "0" if group < 0 else f"o{group}"

    @property
    def inner(self) -> int:
        return len(self.variant.folded) - 1

    def steps_by_one(self, index: int) -> bool:
        """Return whether the lanes of an operand are neighbours in memory."""
        return self.inner >= 0 and self.variant.letter(index, self.inner) == "1"

    def is_vector(self, index: int) -> bool:
        """Return whether the lanes of an operand are loaded and stored together."""
        whole = self.variant.whole
        return self.variant.class_of[index] in whole if whole else self.steps_by_one(index)

    def width(self, index: int) -> int:
        """Return how many of its lanes differ."""
        return self.variant.lanes if self.variant.moves(index) else 1

    def step(self, index: int) -> str:
        """Return how far lane ``v`` of an operand is from the first."""
        if not self.variant.moves(index) or (self.variant.whole and not self.is_vector(index)):
            return ""  # its places are those of lanes
        if self.steps_by_one(index):
            return " + v"
        return f" + v * p.s{self.variant.class_of[index]}_{self.inner}"

    def first_only(self, index: int, loops: Iterable[int], by_lane: bool) -> str:
        """Return the condition to write an output that varies along some of `loops` only by one thread."""
        still = [j for j in loops if self.variant.letter(index, j) == "0"]
        terms = [f"i{j} == 0" for j in still]
        if by_lane and self.inner in still:
            terms.append("v == 0")
        return f"if ({' && '.join(terms)}) " if terms else ""

    def operand(self, node: Node) -> Operand:
        """Return the operand that a leaf is loaded from."""
        return self.frame.source_of[node]
