"""Where the loops of a kernel find what they read and write: operands, buffers, and values of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from mgb.codegen import operands
from mgb.ir import CONST, Node

from ..folds import held
from ..frame import Frame
from ..slots import Buffer, Operand
from .body import Body
from .branches import UNLIKELY, Branch, branches
from .builder import INDEX, Lanes
from .lanes import Access, Names, Value
from .scanning import Scanning
from .words import fold_step


class Reaching(Scanning):
    """Writes how values are reached.

    Attributes
    ----------
    row_names : dict
        The values of which a row has one.
    """

    def __init__(self, frame: Frame, vector: int) -> None:
        super().__init__(frame, vector)
        self.row_names: Names = {}

    def compute(self, nodes: Iterable[Node], names: Names, lanes: Lanes, i: str = "") -> None:
        """Write the operations of `nodes`, and note their names; those that hardly count apart."""
        nodes = [n for n in nodes if n not in names and n.op is not CONST]
        if not any(n.op.name == UNLIKELY for n in nodes):
            super().compute(nodes, names, lanes, i)
            return
        found = branches(self.frame.graph, nodes, self.frame.kept)
        of = {choice: branch for branch in found for choice in branch.choices}
        inside = {n for branch in found for n in branch.inside}
        for node in nodes:
            if node in names or node in inside:
                continue
            if node in of:
                self.branch(of[node], names, lanes, i)
            else:
                super().compute([node], names, lanes, i)

    def branch(self, branch: Branch, names: Names, lanes: Lanes, i: str) -> None:
        """Compute what `branch` is for, where its condition holds in a lane."""
        self.compute(branch.before, names, lanes, i)
        condition, body = self.value(branch.condition, names, lanes), Body(self, lanes)
        bits = body.type("bool")
        holds = self.across("or", condition, bits) if lanes.count else condition

        def taken() -> Sequence[str]:
            own = dict(names)
            self.compute(branch.inside, own, lanes, i)
            pairs = ([self.value(x, own, lanes) for x in c.inputs[1:]] for c in branch.choices)
            return [
                body.select(condition, a, b, body.type(held(c)))
                for c, (a, b) in zip(branch.choices, pairs, strict=True)
            ]

        usual = [(self.value(c.inputs[2], names, lanes), body.type(held(c))) for c in branch.choices]
        for choice, name in zip(branch.choices, self.when(holds, taken, usual), strict=True):
            names[choice] = Value(name, lanes.count)

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
        """Return `start`, moved to `places` by the strides in `slots`."""
        for at, place in zip(slots, places, strict=False):
            start = self.add(start, self.mul(place, self.slot(at)))
        return start

    def lined_up(self, o: Operand, start: str, count: str, span: tuple[str, str] | None = None) -> str:
        """Return where the `count` elements that an input has at `start` lie side by side.

        With the `span` of a unit they may be laid out together with those of the units that follow.
        """
        if not o.moves or o.is_iota or o.is_output:
            return start
        buffer, step = self.buffer(self.buffer_of("g", o.node)), self.slot(o.at)

        copy = partial(self.call, f"mgb_gather_{8 * o.itemsize}", buffer, start, step, count)
        gather = partial(self.unless_laid, o, start, count, copy)

        def lie() -> Sequence[str]:
            if span is not None:
                return (self.tiled(o, start, count, span, gather),)
            gather()
            return (buffer,)

        return self.when(self.is_uneven(o), lie, [(start, INDEX)])[0]

    def tiled(
        self, o: Operand, start: str, count: str, span: tuple[str, str], gather: Callable[[], None]
    ) -> str:
        """Return where a unit is in the tile, which is laid out at its first; what has none is gathered."""
        buffer, pitch, zero = self.buffer(self.buffer_of("g", o.node)), self.slot("pitch"), self.index(0)
        used = self.compare("ne", self.slot(self.frame.tiled[o]), zero)
        place = self.apply("and", (span[0], self.sub(self.slot("tile"), self.index(1))), INDEX)
        rows = self.least(self.slot("tile"), span[1])
        across = self.slot(self.frame.strides_at(o, "folded").start)
        given = (buffer, start, self.slot(o.at), count, across, rows, pitch)
        begins = self.both(used, self.compare("eq", place, zero))
        self.when(begins, partial(self.call, f"mgb_tile_{8 * o.itemsize}", *given))
        self.when(self.compare("eq", self.slot(self.frame.tiled[o]), zero), gather)
        passed = self.mul(place, self.mul(pitch, self.index(o.itemsize)))
        return self.select(used, self.add(buffer, passed), buffer)

    def side_by_side(self, o: Operand, address: str) -> Access:
        """Return where a loop writes an output from `address` on; a buffer, where its elements lie apart."""
        if o.moves:
            buffer = self.buffer(self.buffer_of("s", o.node))
            address = self.select(self.is_apart(o), buffer, address)
        return Access(self.reached(o.dtype, address), o.dtype, o.moves)

    def put_apart(self, o: Operand, address: str, count: str) -> None:
        """Put `count` elements from the buffer to their places, where these lie apart."""
        if o.moves:
            buffer, step = self.buffer(self.buffer_of("s", o.node)), self.slot(o.at)
            scatter = partial(self.call, f"mgb_scatter_{8 * o.itemsize}", address, step, buffer, count)
            self.when(self.is_apart(o), scatter)

    def is_apart(self, o: Operand) -> str:
        """Return whether the elements of an output do not lie side by side."""
        key = f"apart {o.name}"
        if key not in self.given:
            step = self.slot(o.at)
            with self.heading():
                self.given[key] = self.compare("ne", step, self.index(o.itemsize))
        return self.given[key]

    def ask(self, wanted: str, at: dict[Operand, str], away: str, count: str) -> None:
        """Prefetch `count` elements of a later row, where a slot of the plan is not 0.

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
        """Return a loop's access to an operand at `address`; None for an ``iota``, which is not in memory."""
        return None if o.is_iota else Access(self.reached(o.dtype, address), o.dtype, o.moves)

    def element(self, o: Operand, access: Access | None, address: str, i: str, lanes: Lanes) -> Value:
        """Return the value of an operand at turn `i`."""
        if access is None:
            return self.iota(o.dtype, address, i, o.moves, lanes)
        return self.read(access, i, lanes)

    def at_buffer(self, b: Buffer, address: str = "") -> Access:
        """Return how a loop reaches a buffer, from `address` on or from its start."""
        return Access(self.reached(b.dtype, address or self.buffer(b)), b.dtype)

    def fold_into(self, access: Access, f: Node, i: str, value: str, lanes: Lanes) -> None:
        """Fold an element into what memory has."""
        total = self.read(access, i, lanes).name
        total = fold_step(Body(self, lanes), f, total, value, held(f))
        self.write(access, i, Value(total, lanes.count), lanes)

    def lane_reads(
        self, nodes: Iterable[Node], ends: Iterable[Node], rows: dict[Operand, str]
    ) -> Callable[[str, Lanes], Names]:
        """Return the row values that a loop over columns reads, as a function of the turn."""
        nodes = list(nodes)
        wanted = dict.fromkeys((*(i for v in nodes for i in operands(v)), *ends))
        found: dict[Node, Callable[[str, Lanes], Value]] = {}
        for v in wanted:
            if v in self.row_names or v in nodes or (v.op is CONST and v not in self.frame.source_of):
                continue
            if v in self.frame.source_of and not self.frame.is_full(v):
                o = self.frame.source_of[v]
                found[v] = partial(self.element, o, self.access(o, rows[o]), rows[o])
            elif not self.frame.is_full(v):
                b = next(b for b in self.frame.buffers if b.node is v and b.name[0] in "tr")
                found[v] = partial(self.read, self.at_buffer(b))
        return lambda i, lanes: {v: read(i, lanes) for v, read in found.items()}
