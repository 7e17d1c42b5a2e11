"""Cumulative reductions: within a vector, from one vector to the next, and from chunk to chunk.

A chunk is reduced as if it were alone, and the total of the chunks before it is combined afterwards: so the
bits do not depend on which thread runs which chunk. Where the lanes are columns, the carry is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from mgb.codegen import Pass
from mgb.ir import Node

from ..folds import held
from .body import Body, element
from .builder import SCALAR, Carried, Lanes, Type
from .lanes import Access, Names, Nodes, Value
from .looking import Looking
from .words import nothing, scan_step


class Scanning(Looking):
    """Writes scans.

    Attributes
    ----------
    carried : dict
        For each scan of a pass what it makes of the elements of the chunk so far.
    starts : dict
        What it makes of all chunks before; empty in rows of one chunk.
    """

    carried: dict[Node, str]
    starts: dict[Node, str]

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
        value = self.value(node.inputs[0], names, lanes)
        if self.frame.columns:
            own = self.memory("c", node)
            value = scan_step(body, node, self.read(own, i, lanes).name, value)
            self.write(own, i, Value(value, lanes.count), lanes)
            value = scan_step(body, node, self.read(self.memory("b", node), i, lanes).name, value)
            return Value(value, lanes.count)
        one, before = Body(self, SCALAR), self.carried[node]
        value = self.within(node, value, body)
        total = self.last(value, body.type(held(node))) if lanes.count else value
        self.carried[node] = scan_step(one, node, before, total)
        value = scan_step(body, node, body.spread(before, element(held(node))), value)
        if node in self.starts:
            value = scan_step(body, node, body.spread(self.starts[node], element(held(node))), value)
        return Value(value, lanes.count)

    def within(self, node: Node, value: str, body: Body) -> str:
        """Return the lanes of a vector, each with those before it."""
        type_, empty = body.type(held(node)), nothing(body, node, held(node))
        if body.lanes.mask:
            value = body.select(body.lanes.mask, value, empty, type_)
        reach = 1
        while reach < body.lanes.count:
            value = scan_step(body, node, self.slide(value, empty, reach, type_), value)
            reach *= 2
        return value

    # from chunk to chunk

    def memory(self, prefix: str, node: Node) -> Access:
        """Return the memory of the carries of columns: "c" within a chunk, "b" from the chunks before."""
        return self.at_buffer(self.buffer_of(prefix, node))

    def begun(self, scans: Sequence[Node], chunk0: str, width: str) -> list[Carried]:
        """Combine the totals of the chunks before the first of these."""
        if not scans:
            return []
        if self.frame.columns:
            self.fill({v: self.memory("b", v) for v in scans}, width)
            before = lambda chunk, _: self.join_columns(scans, lambda v: self.of_chunk(v, chunk), width)  # noqa: E731
            self.loop(self.index(0), chunk0, self.index(1), [], before)
            return []
        one, types = Body(self, SCALAR), [Type(element(held(v))) for v in scans]
        empty = [(nothing(one, v, held(v)), type_) for v, type_ in zip(scans, types, strict=True)]

        def turn(chunk: str, given: list[str]) -> Sequence[str]:
            found = (self.read(self.memory("p", v), chunk).name for v in scans)
            return [scan_step(one, v, a, b) for v, a, b in zip(scans, given, found, strict=True)]

        return list(zip(self.loop(self.index(0), chunk0, self.index(1), empty, turn), types, strict=True))

    def onwards(self, scans: Sequence[Node], own: Mapping[Node, str], width: str) -> list[str]:
        """Return the initial carries of the next chunk."""
        if not self.frame.columns:
            return [scan_step(Body(self, SCALAR), v, self.starts[v], own[v]) for v in scans]
        self.join_columns(scans, lambda v: self.memory("c", v), width)
        return []

    def join_columns(self, scans: Sequence[Node], chunk: Callable[[Node], Access], width: str) -> None:
        """Fold what a chunk has made into what those before have."""
        found = {v: chunk(v) for v in scans}

        def turn(i: str, lanes: Lanes, _: list[str]) -> Sequence[str]:
            for v, access in found.items():
                before, own = self.memory("b", v), self.read(access, i, lanes).name
                total = scan_step(Body(self, lanes), v, self.read(before, i, lanes).name, own)
                self.write(before, i, Value(total, lanes.count), lanes)
            return ()

        if scans:
            self.over(width, self.width(scans), [], turn)

    def note_totals(self, totals: Nodes, own: Mapping[Node, str], chunk: str, width: str) -> None:
        """Write what scans make of a chunk where those who do the next ones look."""
        if not self.frame.columns:
            for v in totals:
                self.write(self.memory("p", v), chunk, Value(own[v]))
            return
        pairs = [(self.memory("c", v), self.of_chunk(v, chunk)) for v in totals]

        def turn(i: str, lanes: Lanes, _: list[str]) -> Sequence[str]:
            for source, to in pairs:
                self.write(to, i, self.read(source, i, lanes), lanes)
            return ()

        if totals:
            self.over(width, self.width(totals), [], turn)

    def of_chunk(self, node: Node, chunk: str) -> Access:
        """Return the memory of a chunk's totals, one for each column."""
        b = self.buffer_of("p", node)
        passed = self.mul(self.mul(chunk, self.slot("piece")), self.index(b.itemsize))
        return self.at_buffer(b, self.add(self.buffer(b), passed))

    def fill(self, at: dict[Node, Access], count: str) -> None:
        """Let the memory of folds begin with what a fold of nothing is."""

        def turn(i: str, lanes: Lanes, _: list[str]) -> Sequence[str]:
            for f, access in at.items():
                self.write(access, i, Value(nothing(Body(self, lanes), f, held(f)), lanes.count), lanes)
            return ()

        if at:
            self.over(count, self.width(at), [], turn)
