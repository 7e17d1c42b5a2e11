"""Elements of tables: at places that the values of a kernel say."""

from __future__ import annotations

from collections.abc import Iterable

from mgb.ir import Kind, Node

from ..folds import held
from .body import Body, is_signed, stored
from .builder import INDEX, WORD, Lanes, Type
from .dots import Dots
from .lanes import Names, Value
from .words import convert, from_memory

LEAST = -(1 << 63)


class Looking(Dots):
    """Writes how tables are looked up."""

    def compute(self, nodes: Iterable[Node], names: Names, lanes: Lanes, i: str = "") -> None:
        for node in nodes:
            if node.op.kind is not Kind.GATHER:
                super().compute([node], names, lanes, i)
            elif node not in names:
                is_dot = node in self.frame.dots
                names[node] = (
                    self.dot(node, lanes, i) if is_dot else self.element_of_table(node, names, lanes, i)
                )

    def bytes_of(self, node: Node) -> int:
        scatters = node in self.frame.reaching and self.frame.scatters(node)
        return 8 if scatters else super().bytes_of(node)

    def element_of_table(self, node: Node, names: Names, lanes: Lanes, i: str) -> Value:
        """Load the element that `node` looks up at iteration `i`."""
        (o,), dtype = self.frame.tables_of[node], node.spec.dtype.name
        body, words = Body(self, lanes), lanes.of("i64")
        place = self.offset(node, names, lanes)
        start = self.look_at[o]
        if o.moves:
            step = self.slot(o.at)
            start = self.add(start, self.mul(i, step))
            if lanes.count:
                apart = body.spread(self.change("bitcast", step, INDEX, WORD), "i64")
                place = body.op("add", (place, body.op("mul", (apart, self.numbers(words)), words)), words)
        start = self.change("bitcast", start, INDEX, WORD)
        address = body.op("add", (place, body.spread(start, "i64")), words)
        if lanes.count:
            found = self.gather(address, lanes.of(stored(dtype)), lanes.mask)
        else:
            view = self.reached(dtype, self.change("bitcast", address, WORD, INDEX))
            found = self.load(view, self.index(0), Type(stored(dtype)))
        return Value(from_memory(body, found, dtype), lanes.count)

    def offset(self, node: Node, names: Names, lanes: Lanes) -> str:
        """Return how far the indices of `node` lead, in bytes, as words."""
        body, words, total = Body(self, lanes), lanes.of("i64"), ""
        axes = [a for a, at in enumerate(node.params["along"]) if at is None]
        for axis, index in zip(axes, node.inputs[1:], strict=True):
            length, stride = (self.word_of(self.frame.axis_at(node, axis) + k, body) for k in (0, 1))
            place = self.checked(index, self.value(index, names, lanes), axis, length, body)
            step = body.op("mul", (place, stride), words)
            total = body.op("add", (total, step), words) if total else step
        return total

    def word_of(self, slot: int, body: Body) -> str:
        """Return a word of the plan in each lane."""
        return body.spread(self.change("bitcast", self.slot(slot), INDEX, WORD), "i64")

    def checked(self, index: Node, value: str, axis: int, length: str, body: Body) -> str:
        """Return a place along `axis`, of an index that may count from the end.

        One out of range is told, and 0.
        """
        dtype, words, zero = held(index), body.lanes.of("i64"), body.number(0, "i64")
        place = given = convert(body, value, dtype, "int64")
        if is_signed(dtype):
            behind = body.op("add", (given, length), words)
            place = body.select(body.compare("lt", given, zero, "int64"), behind, given, words)
        wrong = self.compare("uge", place, length, words)
        if body.lanes.mask:
            wrong = body.op("and", (wrong, body.lanes.mask), body.type("bool"))
        self.tell(wrong, given, axis, length, body)
        return body.select(wrong, zero, place, words)

    def tell(self, wrong: str, given: str, axis: int, length: str, body: Body) -> None:
        """Write what is rejected, where there is a wrong index."""
        words, lanes = body.lanes.of("i64"), body.lanes.count

        def tell() -> None:
            refused = next(o for o in self.frame.operands if o.node is self.frame.refused)
            index, count = given, length
            if lanes:
                least = body.number(LEAST, "i64")
                index = self.across("smax", body.select(wrong, given, least, words), words)
                count = self.first(length, words)
            view = self.view("i64", self.operand(refused))
            for at, word in enumerate((count, index, self.number(axis, WORD))):
                self.store(word, view, self.index(at), WORD)

        self.when(self.across("or", wrong, body.type("bool")) if lanes else wrong, tell)
