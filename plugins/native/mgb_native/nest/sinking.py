"""Elements that are folded into places that the values of a kernel say: sums by segments, histograms.

Each chunk has a table of its own, and these are joined in their order: so the bits do not depend on which
thread runs which chunk. Where a loop goes along the table, it folds vectors. Where neighbours belong to any
place, a first loop finds the places of a unit, and a second one takes its elements one by one, neighbours to
different numbers of a place: what was just written cannot be read at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mgb.codegen import Pass
from mgb.ir import Node

from ..folds import held
from ..frame import Operand
from .body import Body
from .builder import INDEX, SCALAR, WORD, Lanes
from .lanes import Access, Names, Value
from .reaching import Reaching
from .words import fold_step, nothing

#: For each sink where the table of a chunk begins.
Tables = Mapping[Node, str]


class Sinking(Reaching):
    """Writes how elements are folded into tables."""

    def tables(self, sinks: Iterable[Node], rows: Mapping[Operand, str], chunk: str) -> Tables:
        """Return the tables of a chunk: those of a single one are the outputs."""
        found = {}
        for v in sinks:
            b = self.buffer_of("z", v)
            passed = self.mul(self.mul(chunk, self.size(v)), self.index(b.itemsize))
            own = self.add(self.buffer(b), passed)
            direct = self.compare("ne", self.slot("direct"), self.index(0))
            found[v] = self.select(direct, rows[self.output_of(v)], own)
        return found

    def output_of(self, sink: Node) -> Operand:
        """Return the output that a sink is."""
        return next(o for o in self.frame.operands if o.is_output and o.node is sink)

    def size(self, sink: Node) -> str:
        """Return how many numbers a table has."""
        wide = self.slot("piece") if self.frame.columns else self.slot("ways")
        return self.mul(self.slot(self.frame.places_at(sink)), wide)

    def table(self, sink: Node, address: str) -> Access:
        """Return how a loop reaches the numbers from `address` on."""
        dtype = sink.spec.dtype.name
        return Access(self.reached(dtype, address), dtype)

    def clear(self, tables: Tables, width: str) -> None:
        """Let tables begin with what a fold of nothing is."""
        for v, start in tables.items():
            if not self.frame.columns:
                self.fill({v: self.table(v, start)}, self.size(v))
                continue
            step = self.slot(self.frame.axis_at(v, self.axes_of(v)[-1]) + 1)

            def turn(
                place: str, _: list[str], v: Node = v, start: str = start, step: str = step
            ) -> Sequence[str]:
                self.fill({v: self.table(v, self.add(start, self.mul(place, step)))}, width)
                return ()

            self.loop(self.index(0), self.slot(self.frame.places_at(v)), self.index(1), [], turn, "place")

    def axes_of(self, sink: Node) -> list[int]:
        """Return the axes that indices reach."""
        return [axis for node, axis in self.frame.placed if node is sink]

    # in the loops

    def lines_of_tables(self, part: Pass, tables: Tables, fixed: Names) -> dict[Node, Access]:
        """Return the lines of tables that all elements of a loop are folded into, each along it."""
        found = {}
        for v in part.scatters:
            if not self.frame.scatters(v):
                offset = self.change("bitcast", self.offset(v, fixed, SCALAR), WORD, INDEX)
                found[v] = self.table(v, self.add(tables[v], offset))
        return found

    def sink(self, v: Node, lines: Mapping[Node, Access], i: str, names: Names, lanes: Lanes) -> None:
        """Fold the elements of a turn into their line, or note where they belong."""
        value = self.value(v.inputs[0], names, lanes)
        if v in lines:
            self.fold_into(lines[v], v, i, value, lanes)
            return
        offset = self.offset(v, names, lanes)
        places = self.view("i64", self.buffer(self.buffer_of("w", v)))
        self.store(offset, places, i, lanes.of("i64"), lanes.mask)
        self.write(self.at_buffer(self.buffer_of("v", v)), i, Value(value, lanes.count), lanes)

    def fold_noted(self, v: Node, table: str, count: str) -> None:
        """Fold the elements of a unit whose places are noted, one by one."""
        values, size = self.at_buffer(self.buffer_of("v", v)), self.index(v.spec.dtype.itemsize)
        places = self.view("i64", self.buffer(self.buffer_of("w", v)))
        ways = self.change("bitcast", self.sub(self.slot("ways"), self.index(1)), INDEX, WORD)

        def turn(i: str, _: list[str]) -> Sequence[str]:
            offset = self.change("bitcast", self.load(places, i, WORD), WORD, INDEX)
            if not self.frame.columns:
                way = self.apply("and", (self.change("bitcast", i, INDEX, WORD), ways), WORD)
                way = self.change("bitcast", way, WORD, INDEX)
            number = self.mul(i if self.frame.columns else way, size)
            access = self.table(v, self.add(self.add(table, offset), number))
            self.fold_into(access, v, self.index(0), self.read(values, i).name, SCALAR)
            return ()

        self.loop(self.index(0), count, self.index(1), [], turn)

    # when all are done

    def join_tables(self, rows: Mapping[Operand, str], width: str) -> None:
        """Write what the tables of all chunks are together, unless a single one is the output."""
        if not self.frame.sinks:
            return

        def join() -> None:
            first = self.tables(self.frame.sinks, rows, self.index(0))
            for v, table in first.items():
                self.fold_tables(v, table, rows)
                self.put_table(v, table, rows[self.output_of(v)], width)

        last = self.compare("eq", self.span("last"), self.index(self.frame.stages))
        wanted = self.both(last, self.compare("eq", self.span("chunk0"), self.index(0)))
        self.when(self.both(wanted, self.compare("eq", self.slot("direct"), self.index(0))), join)

    def fold_tables(self, v: Node, table: str, rows: Mapping[Operand, str]) -> None:
        """Fold the tables of the other chunks into that of the first one."""
        to = self.table(v, table)

        def chunk(counter: str, _: list[str]) -> Sequence[str]:
            own = self.table(v, self.tables([v], rows, counter)[v])

            def turn(i: str, lanes: Lanes, _: list[str]) -> Sequence[str]:
                self.fold_into(to, v, i, self.read(own, i, lanes).name, lanes)
                return ()

            self.over(self.size(v), self.width([v.inputs[0]]), [], turn)
            return ()

        self.loop(self.index(1), self.slot("chunks"), self.index(1), [], chunk, "chunk")

    def put_table(self, v: Node, table: str, output: str, width: str) -> None:
        """Write a table to the places of the output."""
        o, wide = self.output_of(v), self.slot("piece" if self.frame.columns else "ways")
        step = self.mul(wide, self.index(v.spec.dtype.itemsize))

        def turn(place: str, _: list[str]) -> Sequence[str]:
            own, address = (
                self.table(v, self.add(table, self.mul(place, step))),
                self.placed(v, place, output),
            )
            if not self.frame.columns:
                self.write(self.table(v, address), self.index(0), self.all_ways(v, own))
                return ()
            to = self.side_by_side(o, address)

            def copy(i: str, lanes: Lanes, _: list[str]) -> Sequence[str]:
                self.write(to, i, self.read(own, i, lanes), lanes)
                return ()

            self.over(width, self.width([v.inputs[0]]), [], copy)
            self.put_apart(o, address, width)
            return ()

        self.loop(self.index(0), self.slot(self.frame.places_at(v)), self.index(1), [], turn, "place")

    def placed(self, v: Node, place: str, output: str) -> str:
        """Return where the output has its place of this number."""
        *outer, last = self.axes_of(v)
        for axis in reversed((*outer, last)):
            length, own = self.slot(self.frame.axis_at(v, axis)), place
            if outer and axis != outer[0]:
                place, own = self.div(place, length), self.rem(place, length)
            output = self.add(output, self.mul(own, self.slot(self.frame.placed_at(v, axis))))
        return output

    def all_ways(self, v: Node, own: Access) -> Value:
        """Return the numbers of one place, folded."""
        body = Body(self, SCALAR)
        begun = [(nothing(body, v, held(v)), body.type(held(v)))]

        def turn(way: str, given: list[str]) -> Sequence[str]:
            return [fold_step(body, v, given[0], self.read(own, way).name, held(v))]

        return Value(self.loop(self.index(0), self.slot("ways"), self.index(1), begun, turn, "way")[0])
