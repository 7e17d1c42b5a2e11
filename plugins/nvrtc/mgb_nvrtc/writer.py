"""The lines of a kernel, and how it spells places in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from mgb.codegen import Online
from mgb.ir import Node
from mgb_cuda.frame import Frame
from mgb_cuda.rows import Rows
from mgb_cuda.variant import Kind, Variant


class Writer(Rows):
    """Writes CUDA C++ for one variant.

    Attributes
    ----------
    arrays : dict
        Values that are held for all slots: name, lanes.
    full : bool
        Is what is written about tiles that end before the row does?
    """

    given = "p."
    variant: Variant

    def __init__(self, frame: Frame, variant: Variant) -> None:
        super().__init__(frame, variant, frame.keeping if variant.stays else frame.schedule)
        self.arrays: dict[Node, tuple[str, int]] = {}
        self.fresh: list[Node] = []
        self.ahead: tuple[Online, ...] = ()
        self.rounds = 0
        self.full = False

    # lines

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
    def each_row(self) -> Iterator[None]:
        with self.lanes(self.variant.row_lanes):
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
                for c in range(len(self.variant.classes)):
                    terms = self.offset(c, folded)
                    base = "" if self.variant.kind is Kind.FLAT else f"b{c} + "
                    if self.variant.varies(c, folded) or not base:
                        self.line(f"const I o{c} = {base}{terms};")
                    else:
                        self.line(f"const I o{c} = b{c};")
                yield

    @property
    def slot_index(self) -> str:
        return "s" if self.variant.slots > 1 else "0"

    # places

    def let(self, name: str, place: str) -> None:
        self.line(f"const I {name} = {place};")

    def quotient(self, place: str, loop: int) -> str:
        factor = "0, 0" if self.variant.wide else f"p.m{loop}, p.h{loop}"
        return f"divide({place}, p.n{loop}, {factor})"

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
        still = self.still(index, loops)
        terms = [f"i{j} == 0" for j in still]
        if by_lane and self.inner in still:
            terms.append("v == 0")
        return f"if ({' && '.join(terms)}) " if terms else ""
