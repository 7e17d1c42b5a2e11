"""Elements that are folded into places that the values of a kernel say: sums by segments, histograms.

Each chunk has a table of its own, and these are joined in their order: so the bits do not depend on which
thread runs which chunk. Where a loop goes along the table, it folds vectors. Where neighbours belong to any
place, a first loop finds the places of a unit, and a second one takes its elements one by one, neighbours to
different numbers of a place: what was just written cannot be read at once. Sinks whose elements belong to the
same places share a table: their numbers of a place lie side by side, and it is found once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mgb.codegen import Pass
from mgb.ir import Node

from ..folds import held
from ..slots import Operand
from .body import Body
from .builder import INDEX, SCALAR, WORD, Lanes
from .lanes import Access, Names, Value
from .reaching import Reaching
from .words import fold_step, nothing

Nodes = tuple[Node, ...]

#: For each sink where the table of a chunk begins.
Tables = Mapping[Node, str]


class Sinking(Reaching):
    """Writes how elements are folded into tables."""

    def tables(self, sinks: Iterable[Node], rows: Mapping[Operand, str], chunk: str) -> Tables:
        """Return the tables of a chunk: those of a single one are the outputs."""
        found = {}
        for v in sinks:
            mates = self.frame.together[v]
            b = self.buffer_of("z", mates[0])
            passed = self.mul(self.mul(chunk, self.size(v)), self.index(b.itemsize))
            own = self.add(self.add(self.buffer(b), passed), self.index(mates.index(v) * b.itemsize))
            direct = self.compare("ne", self.slot("direct"), self.index(0))
            found[v] = self.select(direct, rows[self.output_of(v)], own)
        return found

    def output_of(self, sink: Node) -> Operand:
        """Return the output that a sink is."""
        return next(o for o in self.frame.operands if o.is_output and o.node is sink)

    def size(self, sink: Node) -> str:
        """Return how many numbers a table has."""
        return self.mul(self.slot(self.frame.places_at(sink)), self.size_of_place(sink))

    def size_of_place(self, sink: Node) -> str:
        """Return how many numbers a place has in it, those of the sinks that share it among them."""
        wide = self.slot("piece" if self.frame.columns else "ways")
        return self.mul(wide, self.index(len(self.frame.together[sink])))

    def at_number(self, sink: Node, number: str) -> str:
        """Return which one of a table it is, counted from the first of the sink."""
        return self.mul(number, self.index(len(self.frame.together[sink])))

    def table(self, sink: Node, address: str) -> Access:
        """Return how a loop reaches the numbers from `address` on."""
        dtype = sink.spec.dtype.name
        return Access(self.reached(dtype, address), dtype)

    def clear(self, tables: Tables, width: str) -> None:
        """Let tables begin with what a fold of nothing is."""
        for v, start in tables.items():
            if not self.frame.columns:
                if v is self.frame.together[v][0]:
                    self.clear_numbers(self.frame.together[v], tables)
                continue
            step = self.slot(self.frame.axis_at(v, self.axes_of(v)[-1]) + 1)

            def turn(
                place: str, _: list[str], v: Node = v, start: str = start, step: str = step
            ) -> Sequence[str]:
                self.fill({v: self.table(v, self.add(start, self.mul(place, step)))}, width)
                return ()

            self.loop(self.index(0), self.slot(self.frame.places_at(v)), self.index(1), [], turn, "place")

    def clear_numbers(self, mates: Nodes, tables: Tables) -> None:
        """Let a table begin with that, which sinks share."""
        first = mates[0]
        if all(fold_of(v) == fold_of(first) for v in mates):
            self.fill({first: self.table(first, tables[first])}, self.size(first))
            return

        def turn(i: str, _: list[str]) -> Sequence[str]:
            for v in mates:
                number = Value(nothing(Body(self, SCALAR), v, held(v)))
                self.write(self.table(v, tables[v]), self.at_number(v, i), number)
            return ()

        count = self.mul(self.slot(self.frame.places_at(first)), self.slot("ways"))
        self.loop(self.index(0), count, self.index(1), [], turn, "number")

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
        if v is self.frame.together[v][0]:
            offset = self.offset(v, names, lanes)
            places = self.view("i64", self.buffer(self.buffer_of("w", v)))
            self.store(offset, places, i, lanes.of("i64"), lanes.mask)
        self.write(self.at_buffer(self.buffer_of("v", v)), i, Value(value, lanes.count), lanes)

    def fold_noted(self, mates: Nodes, tables: Tables, count: str) -> None:
        """Fold the elements of a unit whose places are noted, one by one."""
        first, columns = mates[0], self.frame.columns
        places = self.view("i64", self.buffer(self.buffer_of("w", first)))
        values = {v: self.at_buffer(self.buffer_of("v", v)) for v in mates}
        ways = self.change("bitcast", self.sub(self.slot("ways"), self.index(1)), INDEX, WORD)

        def turn(i: str, _: list[str]) -> Sequence[str]:
            offset = self.change("bitcast", self.load(places, i, WORD), WORD, INDEX)
            number = i
            if not columns:
                way = self.apply("and", (self.change("bitcast", i, INDEX, WORD), ways), WORD)
                number = self.at_number(first, self.change("bitcast", way, WORD, INDEX))
            place = self.add(offset, self.mul(number, self.index(first.spec.dtype.itemsize)))
            for v in mates:
                access = self.table(v, self.add(tables[v], place))
                self.fold_into(access, v, self.index(0), self.read(values[v], i).name, SCALAR)
            return ()

        self.loop(self.index(0), count, self.index(1), [], turn)

    # when all are done

    def join_tables(self, rows: Mapping[Operand, str], width: str) -> None:
        """Write what the tables of all chunks are together, unless a single one is the output.

        Those who share the row, each with some of its chunks, share the places.
        """
        if not self.frame.sinks:
            return

        def join() -> None:
            tables = self.tables(self.frame.sinks, rows, self.index(0))
            for v in self.frame.sinks:
                places = self.own_places(v)
                if v is self.frame.together[v][0]:
                    self.fold_tables(self.frame.together[v], tables, rows, places)
            for v in self.frame.sinks:
                self.put_table(v, tables[v], rows[self.output_of(v)], width, self.own_places(v))

        last = self.compare("eq", self.span("last"), self.index(self.frame.stages))
        self.when(self.both(last, self.compare("eq", self.slot("direct"), self.index(0))), join)

    def own_places(self, sink: Node) -> tuple[str, str]:
        """Return the places that this part of the work joins."""
        count, chunks = self.slot(self.frame.places_at(sink)), self.slot("chunks")
        first, last = (
            self.div(self.mul(count, chunk), chunks) for chunk in (self.span("chunk0"), self.span("chunk1"))
        )
        return first, last

    def fold_tables(
        self, mates: Nodes, tables: Tables, rows: Mapping[Operand, str], places: tuple[str, str]
    ) -> None:
        """Fold the tables of the other chunks into that of the first one."""
        first = mates[0]
        wide = self.slot("piece" if self.frame.columns else "ways")
        number, count = self.mul(places[0], wide), self.mul(self.sub(places[1], places[0]), wide)
        passed = self.mul(self.at_number(first, number), self.index(first.spec.dtype.itemsize))
        alike = all(fold_of(v) == fold_of(first) for v in mates)
        to = {v: self.table(v, self.add(tables[v], passed)) for v in mates}

        def chunk(counter: str, _: list[str]) -> Sequence[str]:
            others = self.tables(mates, rows, counter)
            own = {v: self.table(v, self.add(start, passed)) for v, start in others.items()}

            def vector(i: str, lanes: Lanes, _: list[str]) -> Sequence[str]:
                self.fold_into(to[first], first, i, self.read(own[first], i, lanes).name, lanes)
                return ()

            def one(i: str, _: list[str]) -> Sequence[str]:
                at = self.at_number(first, i)
                for v in mates:
                    self.fold_into(to[v], v, at, self.read(own[v], at).name, SCALAR)
                return ()

            if alike:
                self.over(self.at_number(first, count), self.width([first.inputs[0]]), [], vector)
            else:
                self.loop(self.index(0), count, self.index(1), [], one, "number")
            return ()

        self.loop(self.index(1), self.slot("chunks"), self.index(1), [], chunk, "chunk")

    def put_table(self, v: Node, table: str, output: str, width: str, places: tuple[str, str]) -> None:
        """Write a table to the places of the output."""
        o, step = self.output_of(v), self.mul(self.size_of_place(v), self.index(v.spec.dtype.itemsize))

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

        self.loop(*places, self.index(1), [], turn, "place")

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
            return [fold_step(body, v, given[0], self.read(own, self.at_number(v, way)).name, held(v))]

        return Value(self.loop(self.index(0), self.slot("ways"), self.index(1), begun, turn, "way")[0])


def fold_of(sink: Node) -> tuple[str, str]:
    """Return how elements are folded, and their dtype."""
    return sink.op.name, sink.spec.dtype.name
