"""From a graph to the loops of its kernel.

A kernel is ``kernel(arrays, plan, span)`` over addresses: of a C array with the addresses of the data
``x0, ..., y0, ...``, of the plan and of the span (see `mgb_native.frame`). The loops are

    rows: the axes that are kept
        passes over the row: chunks, units
            the innermost loop, over the elements of a unit

The innermost loops work on vectors, or element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from mgb.codegen import EXTENT, Pass
from mgb.ir import CONST, Node

from ..folds import held, wide
from ..frame import Frame
from ..slots import Operand
from .body import Body, element
from .builder import INDEX, SCALAR, WORD, Carried, Lanes, Type
from .lanes import Access, Names, Nodes, Value, Width
from .sinking import Sinking, Tables
from .states import State, apart, carried
from .units import Units
from .words import across, convert, fold_step, nothing

#: The name of the function.
SYMBOL = "kernel"


class Nest(Sinking):
    """The loops of one kernel."""

    def __init__(self, frame: Frame, vector: int) -> None:
        alone = frame.inner is None or (frame.sequential and not frame.columns)
        super().__init__(frame, 0 if alone else vector)
        self.names: Names = {}

    def text(self) -> str:
        """Return the module."""
        self.extents()
        self.forget_lines()
        if self.frame.has_rows:
            short, zero = self.slot("short"), self.index(0)
            self.when(self.compare("ne", short, zero), partial(self.rows, self.short_row, False))
            self.when(self.compare("eq", short, zero), partial(self.rows, self.row, bool(self.frame.tiled)))
        else:
            self.rows(self.row, bool(self.frame.tiled) and not self.frame.flat)
        if any(o.is_output and o.moves for o in self.frame.operands):
            self.when(self.compare("ne", self.slot("stream"), self.index(0)), self.fence)
        return self.module(SYMBOL)

    def extents(self) -> None:
        """Write the lengths that reductions run over, as numbers."""
        for node in self.frame.graph.nodes:
            if node.op is EXTENT:
                folds = self.frame.span[node] != self.frame.span[node.inputs[0]]
                count = self.slot("extent") if folds else self.index(1)
                whole = self.change("bitcast", count, INDEX, WORD)
                self.names[node] = Value(self.change("sitofp", whole, WORD, Type(element(held(node)))))

    # rows

    def rows(self, row: Callable[[str, list[str]], Sequence[str]], tiled: bool) -> None:
        """Write the loop over rows, each as `row` writes it."""
        row0, row1 = self.span("row0"), self.span("row1")
        tiles = [(row0, INDEX), (row0, INDEX)] if tiled else []
        self.loop(row0, row1, self.index(1), tiles, row, "row")

    def short_row(self, row: str, _: list[str]) -> Sequence[str]:
        """Return a row of one unit, without chunks and units."""
        rows, width, _ = self.row_addresses(row)
        self.ask("ahead", {o: rows[o] for o in self.frame.tiled}, self.slot("ahead"), self.slot("n"))
        self.row_reads(rows)
        self.row_values(self.frame.schedule.before, rows, width)
        for k, part in enumerate(self.frame.schedule.passes):
            if part.is_for_chunks:
                continue
            units, lanes = self.units(k, part, rows, width)
            self.starts = {}
            done = units.work(rows, self.index(0), self.slot("n"), [v for v, _ in self.begin(part, lanes)])
            for f, vector in zip(part.folds, done, strict=False):
                self.row_names[f] = Value(self.folded(f, vector, lanes))
            self.row_values(part.after, rows, width)
        self.row_stores(rows, width)
        return ()

    def row(self, row: str, tiles: list[str]) -> Sequence[str]:
        """Return one row; `tiles` are the first row of the tile that is laid out, and the first behind it."""
        plan = self.frame.schedule
        rows, width, places = self.row_addresses(row)
        if tiles:
            tiles = self.tile(row, places[0], rows, tiles)
        self.row_reads(rows)
        self.row_values(plan.before, rows, width)
        for k, part in enumerate(plan.passes):
            self.stage(k, part, rows, width)
            if part.folds:
                (self.column_totals if self.frame.columns else self.row_totals)(part.folds, width)
            self.row_values(part.after, rows, width)
        self.row_stores(rows, width)
        self.join_tables(rows, width)
        return tiles

    def row_reads(self, rows: dict[Operand, str]) -> None:
        """Load the operands that a row has one element of."""
        self.row_names = dict(self.names)
        self.look_at = {o: rows[o] for o in self.frame.operands if o.is_table}
        if not self.frame.columns:
            for node in self.frame.schedule.row_reads:
                o = self.frame.source_of[node]
                access = self.access(o, rows[o])
                self.row_names[node] = self.element(o, access, rows[o], self.index(0), SCALAR)

    def stage(self, k: int, part: Pass, rows: dict[Operand, str], width: str) -> None:
        """Write a pass, if it is among those that are requested."""
        if self.frame.stages == 1:
            self.chunks(k, part, rows, width)
            return
        begun = self.compare("sle", self.span("first"), self.index(k))
        wanted = self.both(begun, self.compare("slt", self.index(k), self.span("last")))
        if part.is_for_chunks:
            count = self.sub(self.span("chunk1"), self.span("chunk0"))
            wanted = self.both(wanted, self.compare("ne", count, self.slot("chunks")))
        self.when(wanted, lambda: self.chunks(k, part, rows, width))

    def row_addresses(self, row: str) -> tuple[dict[Operand, str], str, list[str]]:
        """Return where each operand has its row, the columns of it, and its places along the kept loops."""
        index, column, width = row, "", ""
        if self.frame.columns:
            cycle, piece = self.slot("cycle"), self.slot("piece")
            first, then = self.div(row, cycle), self.rem(row, cycle)
            by_pieces = self.compare("ne", self.slot("by_pieces"), self.index(0))
            index = self.select(by_pieces, then, first)
            column = self.mul(self.select(by_pieces, first, then), piece)
            width = self.least(piece, self.sub(self.slot("n"), column))
        places = self.places(index, "kept")
        rows = {}
        for o in self.frame.operands:
            start = self.moved(self.operand(o), self.frame.strides_at(o, "kept"), places)
            if self.frame.columns and o.moves:
                start = self.moved(start, [o.at], [column])
            rows[o] = self.lined_up(o, start, width) if o.node in self.frame.schedule.row_reads else start
            if o.node in self.frame.row_values:
                rows[o] = self.laid(o, start, width)
        return rows, width, places

    def tile(self, row: str, place: str, rows: dict[Operand, str], tiles: list[str]) -> list[str]:
        """Lay out rows that lie across cache lines, as many together as share a line."""
        frame = self.frame
        used = self.compare("ne", self.slot("tile"), self.index(0))
        behind = self.compare("sge", row, tiles[1])

        def lay_out() -> Sequence[str]:
            left = self.sub(self.slot(frame.lengths_at["kept"]), place)
            end = self.least(self.span("row1"), self.add(row, self.least(self.slot("tile"), left)))
            for o, step in frame.tiled.items():
                across = self.slot(frame.strides_at(o, "kept").start)
                buffer, count = self.buffer(self.buffer_of("g", o.node)), self.sub(end, row)
                given = (buffer, rows[o], self.slot(step), self.slot("n"), across, count, self.slot("pitch"))
                apart = self.compare("ne", self.slot(step), self.index(0))
                self.when(apart, partial(self.call, f"mgb_tile_{8 * o.itemsize}", *given))
            return [row, end]

        tiles = self.when(self.both(used, behind), lay_out, [(t, INDEX) for t in tiles])
        passed = self.mul(self.sub(row, tiles[0]), self.slot("pitch"))
        for o, step in frame.tiled.items():
            laid = self.mul(passed, self.index(o.itemsize))
            laid = self.add(self.buffer(self.buffer_of("g", o.node)), laid)
            rows[o] = self.select(self.compare("ne", self.slot(step), self.index(0)), laid, rows[o])
        return tiles

    # passes

    def chunks(self, k: int, part: Pass, rows: dict[Operand, str], width: str) -> None:
        """Write the loop over the chunks of a row."""
        chunk0, chunk1 = self.span("chunk0"), self.span("chunk1")
        scans = [v for v in self.scans_of(part) if v not in part.totals and v not in self.frame.whole]
        begun = self.begun(scans, chunk0, width)

        def turn(counter: str, given: list[str]) -> Sequence[str]:
            # Every other pass runs backwards: it begins with what the one before has left in cache.
            chunk = counter
            if k % 2 and not scans:
                chunk = self.add(chunk0, self.sub(self.sub(chunk1, self.index(1)), counter))
            self.starts = {} if self.frame.columns else apart(scans, given)
            own = self.chunk(k, part, rows, width, chunk)
            return self.onwards(scans, own, width)

        self.loop(chunk0, chunk1, self.index(1), begun, turn, "chunk")

    def chunk(
        self, k: int, part: Pass, rows: dict[Operand, str], width: str, chunk: str
    ) -> dict[Node, State]:
        """Return one chunk; what each scan makes of it alone, unless that is in memory."""
        partials = {f: self.buffer_of("p", f) for f in part.folds}
        at = {}
        if self.frame.columns:
            passed = self.mul(chunk, self.slot("piece")) if partials else ""
            for f, b in partials.items():
                address = self.add(self.buffer(b), self.mul(passed, self.index(b.itemsize)))
                at[f] = self.at_buffer(b, address)
            self.fill(at, width)
            self.fill_states({v: self.memory("c", v) for v in self.scans_of(part)}, width, rows)
        tables = self.tables(part.scatters, rows, chunk)
        self.clear(tables, width)
        units, lanes = self.units(k, part, rows, width, at, tables)
        carried = [] if self.frame.columns else self.begin(part, lanes)
        unit0 = self.mul(chunk, self.slot("group"))
        unit1 = self.least(self.slot("units"), self.add(unit0, self.slot("group")))
        if units.stays_in_registers:
            narrow, zero = self.slot("narrow"), self.index(0)
            self.when(self.compare("ne", narrow, zero), lambda: units.columns_in_registers(unit0, unit1))
            self.when(self.compare("eq", narrow, zero), lambda: units.write(unit0, unit1, carried))
            return {}
        done = units.write(unit0, unit1, carried)
        for f, vector in zip(part.folds, done, strict=False):
            self.write(self.at_buffer(partials[f]), chunk, Value(self.folded(f, vector, lanes)))
        own = apart(units.scans, done[len(part.folds) :])
        self.note_totals(part.totals, own, chunk, width)
        return own

    def units(
        self,
        k: int,
        part: Pass,
        rows: dict[Operand, str],
        width: str,
        partials: dict[Node, Access] | None = None,
        tables: Tables | None = None,
    ) -> tuple[Units, Lanes]:
        """Return the emitter of the units of a pass, and the lanes that it reduces in."""
        ends = (*part.folds, *part.totals, *part.scatters)
        at_once = self.width((*part.reads, *part.computes, *ends), bool(part.folds))
        if self.scans_of(part) and not self.frame.columns:
            at_once = Width(at_once.vector, at_once.vector)
        return Units(self, k, part, rows, width, partials or {}, tables or {}, at_once), Lanes(at_once.turn)

    def begin(self, part: Pass, lanes: Lanes) -> list[Carried]:
        """Return the initial values of the reductions of a pass."""
        body, scans = Body(self, lanes), self.scans_of(part)
        folds = [(nothing(body, f, held(f)), body.type(held(f))) for f in part.folds]
        first = [x for v in scans for x in self.first_state(v, self.row_names, SCALAR)]
        return [*folds, *carried(scans, first)]

    def folded(self, f: Node, vector: str, lanes: Lanes) -> str:
        """Combine the lanes of a reduction."""
        return across(Body(self, lanes), f, vector) if lanes.count else vector

    # row values

    def row_totals(self, folds: Nodes, _: str) -> None:
        """Fold the chunks of a row."""
        body, partials = Body(self, SCALAR), [self.at_buffer(self.buffer_of("p", f)) for f in folds]
        carried = [(nothing(body, f, wide(f)), Type(element(wide(f)))) for f in folds]

        def turn(chunk: str, totals: list[str]) -> Sequence[str]:
            found = []
            for f, total, access in zip(folds, totals, partials, strict=True):
                partial = convert(body, self.read(access, chunk).name, held(f), wide(f))
                found.append(fold_step(body, f, total, partial, wide(f)))
            return found

        totals = self.loop(self.index(0), self.slot("chunks"), self.index(1), carried, turn)
        for f, total in zip(folds, totals, strict=True):
            self.row_names[f] = Value(convert(body, total, wide(f), held(f)))

    def column_totals(self, folds: Nodes, width: str) -> None:
        """Fold the chunks of each column."""
        totals = {f: self.at_buffer(self.buffer_of("t", f)) for f in folds}
        self.fill(totals, width)

        def chunk(counter: str, _: list[str]) -> Sequence[str]:
            passed, partials = self.mul(counter, self.slot("piece")), {}
            for f in folds:
                b = self.buffer_of("p", f)
                address = self.add(self.buffer(b), self.mul(passed, self.index(b.itemsize)))
                partials[f] = self.at_buffer(b, address)

            def turn(i: str, lanes: Lanes, _: list[str]) -> Sequence[str]:
                for f in folds:
                    self.fold_into(totals[f], f, i, self.read(partials[f], i, lanes).name, lanes)
                return ()

            self.over(width, self.width(folds), [], turn)
            return ()

        self.loop(self.index(0), self.slot("chunks"), self.index(1), [], chunk)

    def row_values(self, nodes: Iterable[Node], rows: dict[Operand, str], width: str) -> None:
        """Write values of which a row has one; where the lanes are columns, there is one in each."""
        nodes = [v for v in nodes if v not in self.row_names and v.op is not CONST]
        if not self.frame.columns:
            self.compute(nodes, self.row_names, SCALAR, self.index(0))
        elif nodes:
            lanes_of = self.lane_reads(nodes, (), rows)
            to = {v: self.at_buffer(self.buffer_of("r", v)) for v in nodes}

            def turn(i: str, lanes: Lanes, _: list[str]) -> Sequence[str]:
                names = {**self.row_names, **lanes_of(i, lanes)}
                self.compute(nodes, names, lanes, i)
                for v in nodes:
                    self.write(to[v], i, Value(self.value(v, names, lanes), lanes.count), lanes)
                return ()

            self.over(width, self.width(nodes), [], turn)

    def row_stores(self, rows: dict[Operand, str], width: str) -> None:
        """Write the outputs of which a row has one element."""
        outputs = [o for o in self.frame.operands if o.is_output and o.node in self.frame.schedule.row_stores]
        if not outputs:
            return

        def write() -> Sequence[str]:
            if not self.frame.columns:
                for o in outputs:
                    access = Access(self.reached(o.dtype, rows[o]), o.dtype, o.moves)
                    value = Value(self.value(o.node, self.row_names, SCALAR))
                    self.write(access, self.index(0), value)
                return ()
            to = {o: self.side_by_side(o, rows[o]) for o in outputs}
            lanes_of = self.lane_reads((), [o.node for o in outputs], rows)

            def turn(i: str, lanes: Lanes, _: list[str]) -> Sequence[str]:
                names = {**self.row_names, **lanes_of(i, lanes)}
                for o, access in to.items():
                    self.write(access, i, Value(self.value(o.node, names, lanes), lanes.count), lanes)
                return ()

            self.over(width, self.width([o.node for o in outputs]), [], turn)
            for o in outputs:
                self.put_apart(o, rows[o], width)
            return ()

        last = self.compare("eq", self.span("last"), self.index(self.frame.stages))
        first = self.compare("eq", self.span("chunk0"), self.index(0))
        self.when(self.both(last, first), write)
