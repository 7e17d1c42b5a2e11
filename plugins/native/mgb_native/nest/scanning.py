"""Cumulative reductions: within a vector, from one vector to the next, and from chunk to chunk.

A chunk is reduced as if it were alone, and the total of the chunks before it is combined afterwards: so the
bits do not depend on which thread runs which chunk. Where the lanes are columns, the carry is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from mgb.codegen import Pass, is_sequential
from mgb.ir import Node

from ..folds import held, parts
from ..slots import Operand
from .body import Body, element
from .builder import BIT, SCALAR, Carried, Lanes
from .lanes import Access, Names, Nodes, Value
from .looking import Looking
from .states import State, apart, begun, carried, factor, joined, lifted, result, stepped
from .words import nothing


class Scanning(Looking):
    """Writes scans.

    Attributes
    ----------
    carried : dict
        For each scan of a pass what it makes of the elements of the chunk so far.
    starts : dict
        What it makes of all chunks before; empty in rows of one chunk.
    """

    carried: dict[Node, State]
    starts: dict[Node, State]

    def scans_of(self, part: Pass) -> list[Node]:
        """Return those that a pass goes through: for their values, then for what they make of chunks."""
        return [*(v for v in part.computes if v in self.frame.scans), *part.totals]

    def compute(self, nodes: Iterable[Node], names: Names, lanes: Lanes, i: str = "") -> None:
        for node in nodes:
            if node in self.frame.scans and node not in names:
                names[node] = self.scanned(node, names, lanes, i)
            else:
                super().compute([node], names, lanes, i)

    def scanned(self, node: Node, names: Names, lanes: Lanes, i: str) -> Value:
        """Return the value of `node` at iteration `i` and update its carry."""
        body = Body(self, lanes)
        if is_sequential(node):
            return self.stepped(node, names, lanes, i)
        state = lifted(body, node, [self.value(x, names, lanes) for x in node.inputs])
        if self.frame.columns:
            own = self.memory("c", node)
            state = joined(body, node, self.read_state(own, i, lanes), state)
            self.write_state(own, i, state, lanes)
            if node not in self.frame.whole:
                state = joined(body, node, self.read_state(self.memory("b", node), i, lanes), state)
            return Value(result(body, node, state), lanes.count)
        state = self.masked(node, state, body)
        before, found = self.carried[node], self.at_once(node, state, body)
        if lanes.count and node in self.frame.whole:
            found = self.corrected(node, before, state, found, body)
        return Value(result(body, node, found), lanes.count)

    def at_once(self, node: Node, own: State, body: Body) -> State:
        """Return the lanes of a vector with all before it, and carry on what the chunk alone makes."""
        before, state = self.carried[node], self.within(node, own, body)
        type_ = body.type(held(node))
        total = [self.last(x, type_) for x in state] if body.lanes.count else state
        self.carried[node] = joined(Body(self, SCALAR), node, before, total)
        state = joined(body, node, self.in_lanes(node, before, body), state)
        if node in self.starts:
            state = joined(body, node, self.in_lanes(node, self.starts[node], body), state)
        return state

    def corrected(self, node: Node, before: State, own: State, found: State, body: Body) -> State:
        """Join the lanes again, one after the other, where products of some may overflow or underflow."""
        type_, bits = body.type(held(node)), body.type("bool")
        size = body.op("fabs", (factor(node, own),), type_)
        lost = body.is_nan(body.op("fsub", (found[0], found[0]), type_), held(node))
        small = body.compare("lt", size, body.constant(self.harmless(node, body), held(node)), held(node))
        small = body.op("and", (small, body.is_not_zero(size, type_)), bits)
        otherwise = [(x, type_) for x in found] + carried([node], self.carried[node])

        def again() -> Sequence[str]:
            state = self.one_by_one(node, before, own, body)
            return [*state, *(self.last(x, type_) for x in state)]

        def closer() -> Sequence[str]:
            wrong = self.apply("or", (self.across("or", lost, bits), self.underflows(node, size, body)), BIT)
            return self.when(wrong, again, otherwise)

        done = self.when(self.across("or", body.op("or", (lost, small), bits), bits), closer, otherwise)
        self.carried[node] = done[len(found) :]
        return done[: len(found)]

    def harmless(self, node: Node, body: Body) -> float:
        """Return a size: where no factor is smaller, no product of lanes underflows."""
        return float(2.0 ** (np.finfo(held(node)).minexp // body.lanes.count + 1))

    def underflows(self, node: Node, size: str, body: Body) -> str:
        """Return whether a product of neighbours may: that of all below 1 but zeros is at most as large.

        A product that has a zero is right.
        """
        dtype, type_, one = held(node), body.type(held(node)), body.constant(1, held(node))
        size = body.select(body.is_not_zero(size, type_), size, one, type_)
        size = body.select(body.compare("lt", size, one, dtype), size, one, type_)
        scalar = Body(self, SCALAR)
        least = scalar.constant(np.finfo(dtype).tiny, dtype)
        return scalar.compare("lt", self.across("fmul", size, type_, "reassoc"), least, dtype)

    def one_by_one(self, node: Node, first: State, own: State, body: Body) -> State:
        """Return the lanes of a vector after `first`: each turn makes one more of them right."""
        type_, begin = body.type(held(node)), self.in_lanes(node, first, body)

        def turn(_: str, given: list[str]) -> Sequence[str]:
            moved = [self.slide(x, b, 1, type_) for x, b in zip(given, begin, strict=True)]
            return joined(body, node, moved, own)

        start = [(x, type_) for x in begin]
        return self.loop(self.index(0), self.index(body.lanes.count), self.index(1), start, turn)

    def stepped(self, node: Node, names: Names, lanes: Lanes, i: str) -> Value:
        """Return the value of a sequential scan, and carry on; rows are of scalars."""
        body, given = Body(self, lanes), node.inputs[parts(node) :]
        own = [self.value(x, names, lanes) for x in given]
        if not self.frame.columns:
            self.carried[node], value = stepped(body, node, self.carried[node], own)
            return Value(value)
        memory = self.memory("c", node)
        state, value = stepped(body, node, self.read_state(memory, i, lanes), own)
        self.write_state(memory, i, state, lanes)
        return Value(value, lanes.count)

    def first_state(self, node: Node, names: Names, lanes: Lanes) -> State:
        """Return the state before the first element; it is given, where `node` is sequential."""
        if is_sequential(node):
            return [self.value(x, names, lanes) for x in node.inputs[: parts(node)]]
        return begun(Body(self, lanes), node)

    def in_lanes(self, node: Node, state: State, body: Body) -> State:
        """Return the same state in each lane."""
        return [body.spread(x, element(held(node))) for x in state]

    def masked(self, node: Node, state: State, body: Body) -> State:
        """Return a state in which the lanes that are not there change nothing."""
        if not body.lanes.mask:
            return state
        type_, empty = body.type(held(node)), begun(body, node)
        return [body.select(body.lanes.mask, x, e, type_) for x, e in zip(state, empty, strict=True)]

    def within(self, node: Node, state: State, body: Body) -> State:
        """Return the lanes of a vector, each with those before it."""
        type_, empty = body.type(held(node)), begun(body, node)
        reach = 1
        while reach < body.lanes.count:
            before = [self.slide(x, e, reach, type_) for x, e in zip(state, empty, strict=True)]
            state = joined(body, node, before, state)
            reach *= 2
        return state

    # from chunk to chunk

    def memory(self, prefix: str, node: Node) -> list[Access]:
        """Return the memory of the carries of columns: "c" within a chunk, "b" from the chunks before."""
        return [self.at_buffer(b) for b in self.frame.buffers_of(prefix, node)]

    def read_state(self, memory: Sequence[Access], i: str, lanes: Lanes = SCALAR) -> State:
        return [self.read(access, i, lanes).name for access in memory]

    def write_state(
        self, memory: Sequence[Access], i: str, state: Sequence[str], lanes: Lanes = SCALAR
    ) -> None:
        for access, x in zip(memory, state, strict=True):
            self.write(access, i, Value(x, lanes.count), lanes)

    def begun(self, scans: Sequence[Node], chunk0: str, width: str) -> list[Carried]:
        """Combine the totals of the chunks before the first of these."""
        if not scans:
            return []
        if self.frame.columns:
            self.fill_states({v: self.memory("b", v) for v in scans}, width, {})
            before = lambda chunk, _: self.join_columns(scans, lambda v: self.of_chunk(v, chunk), width)  # noqa: E731
            self.loop(self.index(0), chunk0, self.index(1), [], before)
            return []
        one = Body(self, SCALAR)
        empty = carried(scans, [x for v in scans for x in begun(one, v)])

        def turn(chunk: str, given: list[str]) -> Sequence[str]:
            before = apart(scans, given)
            found = {v: self.read_state(self.memory("p", v), chunk) for v in scans}
            return [x for v in scans for x in joined(one, v, before[v], found[v])]

        return carried(scans, self.loop(self.index(0), chunk0, self.index(1), empty, turn))

    def onwards(self, scans: Sequence[Node], own: Mapping[Node, State], width: str) -> list[str]:
        """Return the initial carries of the next chunk."""
        if not self.frame.columns:
            one = Body(self, SCALAR)
            return [x for v in scans for x in joined(one, v, self.starts[v], own[v])]
        self.join_columns(scans, lambda v: self.memory("c", v), width)
        return []

    def join_columns(self, scans: Sequence[Node], chunk: Callable[[Node], list[Access]], width: str) -> None:
        """Fold what a chunk has made into what those before have."""
        found = {v: chunk(v) for v in scans}

        def turn(i: str, lanes: Lanes, _: list[str]) -> Sequence[str]:
            for v, memory in found.items():
                before, own = self.memory("b", v), self.read_state(memory, i, lanes)
                total = joined(Body(self, lanes), v, self.read_state(before, i, lanes), own)
                self.write_state(before, i, total, lanes)
            return ()

        if scans:
            self.over(width, self.width(scans), [], turn)

    def note_totals(self, totals: Nodes, own: Mapping[Node, State], chunk: str, width: str) -> None:
        """Write what scans make of a chunk where those who do the next ones look."""
        if not self.frame.columns:
            for v in totals:
                self.write_state(self.memory("p", v), chunk, own[v])
            return
        pairs = [(self.memory("c", v), self.of_chunk(v, chunk)) for v in totals]

        def turn(i: str, lanes: Lanes, _: list[str]) -> Sequence[str]:
            for source, to in pairs:
                self.write_state(to, i, self.read_state(source, i, lanes), lanes)
            return ()

        if totals:
            self.over(width, self.width(totals), [], turn)

    def of_chunk(self, node: Node, chunk: str) -> list[Access]:
        """Return the memory of a chunk's totals, one for each column."""
        passed, found = self.mul(chunk, self.slot("piece")), []
        for b in self.frame.buffers_of("p", node):
            address = self.add(self.buffer(b), self.mul(passed, self.index(b.itemsize)))
            found.append(self.at_buffer(b, address))
        return found

    def fill_states(self, at: dict[Node, list[Access]], count: str, rows: dict[Operand, str]) -> None:
        """Let the memory of scans begin with what they are before the first element."""
        lanes_of = self.lane_reads(
            (), [x for v in at if is_sequential(v) for x in v.inputs[: parts(v)]], rows
        )

        def turn(i: str, lanes: Lanes, _: list[str]) -> Sequence[str]:
            names = {**self.row_names, **lanes_of(i, lanes)}
            for v, memory in at.items():
                self.write_state(memory, i, self.first_state(v, names, lanes), lanes)
            return ()

        if at:
            self.over(count, self.width(at), [], turn)

    def fill(self, at: dict[Node, Access], count: str) -> None:
        """Let the memory of folds begin with what a fold of nothing is."""

        def turn(i: str, lanes: Lanes, _: list[str]) -> Sequence[str]:
            for f, access in at.items():
                self.write(access, i, Value(nothing(Body(self, lanes), f, held(f)), lanes.count), lanes)
            return ()

        if at:
            self.over(count, self.width(at), [], turn)
