"""Where the loops of a kernel find what they read and write: operands, buffers, and values of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from mgb.codegen import EXTENT
from mgb.ir import CONST, Node

from ..folds import held
from ..frame import Buffer, Frame, Operand
from .body import Body
from .builder import INDEX, Lanes
from .given import Given
from .lanes import Access, Names, Value
from .words import fold_step


class Reaching(Given):
    """Writes how values are reached.

    Attributes
    ----------
    row_names : dict
        The values of which a row has one.
    """

    def __init__(self, frame: Frame, vector: int) -> None:
        super().__init__(frame, vector)
        self.row_names: Names = {}

    def places(self, index: str, kind: str, first: int = 0) -> list[str]:
        """Split `index` into its places along the loops of a kind, "kept" or "folded", from `first` out."""
        count, at = self.frame.loops[kind], self.frame.lengths_at[kind]
        names = []
        for axis in range(first, count - 1):
            length = self.slot(at + axis)
            names.append(self.rem(index, length))
            index = self.div(index, length)
        return [*names, index][: count - first]

    def moved(self, start: str, slots: Iterable[int], places: Iterable[str]) -> str:
        """`start`, moved to `places` by the strides in `slots`."""
        for at, place in zip(slots, places, strict=False):
            start = self.add(start, self.mul(place, self.slot(at)))
        return start

    def lined_up(self, o: Operand, start: str, count: str) -> str:
        """Where the `count` elements that an input has at `start` lie side by side."""
        if not o.moves or o.is_iota or o.is_output:
            return start
        buffer, step = self.buffer(self.buffer_of("g", o.node)), self.slot(o.at)

        def gather() -> Sequence[str]:
            self.call(f"mgb_gather_{8 * o.itemsize}", buffer, start, step, count)
            return (buffer,)

        apart = self.compare("ne", step, self.index(o.itemsize))
        return self.when(apart, gather, [(start, INDEX)])[0]

    def ask(self, wanted: str, at: dict[Operand, str], away: str, count: str) -> None:
        """Where a slot of the plan is not 0, have `count` elements of a later row on their way from memory.

        They are `away` rows from those at `at`.
        """

        def ask() -> None:
            for o, address in at.items():
                later = self.moved(address, self.frame.strides_at(o, "kept"), [away])
                size = self.mul(count, self.index(o.itemsize))
                self.call("mgb_ask", later, size)

        if at:
            self.when(self.compare("ne", self.slot(wanted), self.index(0)), ask)

    def access(self, o: Operand, address: str) -> Access | None:
        """How a loop reaches an operand at `address`; an ``iota`` is no memory."""
        return None if o.is_iota else Access(self.reached(o.dtype, address), o.dtype, o.moves)

    def element(self, o: Operand, access: Access | None, address: str, i: str, lanes: Lanes) -> Value:
        """The value of an operand at turn `i`."""
        if access is None:
            return self.iota(o.dtype, address, i, o.moves, lanes)
        return self.read(access, i, lanes)

    def at_buffer(self, b: Buffer, address: str = "") -> Access:
        """How a loop reaches a buffer, from `address` on or from its start."""
        return Access(self.reached(b.dtype, address or self.buffer(b)), b.dtype)

    def fold_into(self, access: Access, f: Node, i: str, value: str, lanes: Lanes) -> None:
        """Fold an element into what memory has."""
        total = self.read(access, i, lanes).name
        total = fold_step(Body(self, lanes), f, total, value, held(f))
        self.write(access, i, Value(total, lanes.count), lanes)

    def lane_reads(
        self, nodes: Iterable[Node], ends: Iterable[Node], rows: dict[Operand, str]
    ) -> Callable[[str, Lanes], Names]:
        """The row values that a loop over columns reads, as a function of the turn."""
        nodes = list(nodes)
        wanted = dict.fromkeys((*(i for v in nodes if v.op is not EXTENT for i in v.inputs), *ends))
        found: dict[Node, Callable[[str, Lanes], Value]] = {}
        for v in wanted:
            if v in self.row_names or v in nodes or (v.op is CONST and v not in self.frame.source_of):
                continue
            if v in self.frame.source_of and not self.is_full(v):
                o = self.frame.source_of[v]
                found[v] = partial(self.element, o, self.access(o, rows[o]), rows[o])
            elif not self.is_full(v):
                b = next(b for b in self.frame.buffers if b.node is v and b.name[0] in "tr")
                found[v] = partial(self.read, self.at_buffer(b))
        return lambda i, lanes: {v: read(i, lanes) for v, read in found.items()}

    def is_full(self, node: Node) -> bool:
        """Whether there is a value for each element of a row."""
        return self.frame.flat or any(self.frame.span[node][a] for a in self.frame.schedule.reduced)
