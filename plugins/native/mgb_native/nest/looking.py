"""Elements of tables: at places that the values of a kernel say.

Where indices of 32 bits or fewer say so, a loop is written twice: once for tables of less than 2 GiB, where a
vector has room for twice as many places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mgb.ir import Kind, Node

from ..folds import held
from .body import Body, is_signed, stored
from .builder import INDEX, WORD, Carried, Lanes, Type
from .dots import Dots
from .lanes import Names, Value
from .words import convert, from_memory

LEAST = -(1 << 63)


class Looking(Dots):
    """Writes how tables are looked up.

    Attributes
    ----------
    near : bool
        Whether what is written is for tables in which 32 bits count the bytes.
    """

    near = False

    def near_and_far(
        self,
        nodes: Sequence[Node],
        loop: Callable[[Sequence[Carried]], list[str]],
        carried: Sequence[Carried],
    ) -> list[str]:
        """Write the loop that computes `nodes`, apart for near tables; return what it carries."""
        if not self.frame.near.intersection(nodes):
            return loop(carried)
        for near, relation in ((True, "ne"), (False, "eq")):
            self.near, given = near, list(carried)
            wanted = self.compare(relation, self.slot("near"), self.index(0))
            done = self.when(wanted, lambda given=given: loop(given), given)  # type: ignore[misc]
            carried = [(name, type_) for name, (_, type_) in zip(done, given, strict=True)]
        return [name for name, _ in carried]

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
        return 8 if scatters and node not in self.frame.near else super().bytes_of(node)

    def element_of_table(self, node: Node, names: Names, lanes: Lanes, i: str) -> Value:
        """Load the element that `node` looks up at iteration `i`."""
        (o,), dtype = self.frame.tables_of[node], node.spec.dtype.name
        body, near = Body(self, lanes), self.near and bool(lanes.count) and node in self.frame.near
        count = "i32" if near else "i64"
        place, start = self.offset(node, names, lanes, count), self.look_at[o]
        if o.moves:
            start = self.add(start, self.mul(i, self.slot(o.at)))
            if lanes.count:
                own = body.op(
                    "mul", (self.word_of(o.at, body, count), self.numbers(lanes.of(count))), lanes.of(count)
                )
                place = body.op("add", (place, own), lanes.of(count))
        if near:
            found = self.gather_near(start, place, lanes.of(stored(dtype)), lanes.mask)
            return Value(from_memory(body, found, dtype), lanes.count)
        start = self.change("bitcast", start, INDEX, WORD)
        address = body.op("add", (place, body.spread(start, "i64")), lanes.of("i64"))
        if lanes.count:
            found = self.gather(address, lanes.of(stored(dtype)), lanes.mask)
        else:
            view = self.reached(dtype, self.change("bitcast", address, WORD, INDEX))
            found = self.load(view, self.index(0), Type(stored(dtype)))
        return Value(from_memory(body, found, dtype), lanes.count)

    def offset(self, node: Node, names: Names, lanes: Lanes, count: str = "i64") -> str:
        """Return how far the indices of `node` lead, in bytes, counted in integers of type `count`."""
        body, total = Body(self, lanes), ""
        axes = [a for a, at in enumerate(node.params["along"]) if at is None]
        for axis, index in zip(axes, node.inputs[1:], strict=True):
            at = self.frame.axis_at(node, axis)
            place = self.checked(index, self.value(index, names, lanes), axis, at, body, count)
            step = body.op("mul", (place, self.word_of(at + 1, body, count)), lanes.of(count))
            total = body.op("add", (total, step), lanes.of(count)) if total else step
        return total

    def word_of(self, slot: int, body: Body, count: str = "i64") -> str:
        """Return a word of the plan in each lane, as an integer of type `count`."""
        word = self.change("bitcast", self.slot(slot), INDEX, WORD)
        return body.spread(word if count == "i64" else self.change("trunc", word, WORD, Type(count)), count)

    def checked(self, index: Node, value: str, axis: int, slot: int, body: Body, count: str = "i64") -> str:
        """Return a place along `axis`, of an index that may count from the end; its length is in `slot`.

        One out of range is told, and 0.
        """
        dtype, words, zero = held(index), body.lanes.of(count), body.number(0, count)
        whole, length = f"int{count[1:]}", self.word_of(slot, body, count)
        place = given = convert(body, value, dtype, whole)
        if is_signed(dtype):
            behind = body.op("add", (given, length), words)
            place = body.select(body.compare("lt", given, zero, whole), behind, given, words)
        wrong = self.compare("uge", place, length, words)
        if body.lanes.mask:
            wrong = body.op("and", (wrong, body.lanes.mask), body.type("bool"))
        self.tell(wrong, lambda: convert(body, value, dtype, "int64"), axis, slot, body)
        return body.select(wrong, zero, place, words)

    def tell(self, wrong: str, given: Callable[[], str], axis: int, slot: int, body: Body) -> None:
        """Write what is rejected, where there is a wrong index."""
        words, lanes = body.lanes.of("i64"), body.lanes.count

        def tell() -> None:
            refused = next(o for o in self.frame.operands if o.node is self.frame.refused)
            index, count = given(), self.change("bitcast", self.slot(slot), INDEX, WORD)
            if lanes:
                least = body.number(LEAST, "i64")
                index = self.across("smax", body.select(wrong, index, least, words), words)
            view = self.view("i64", self.operand(refused))
            for at, word in enumerate((count, index, self.number(axis, WORD))):
                self.store(word, view, self.index(at), WORD)

        self.when(self.across("or", wrong, body.type("bool")) if lanes else wrong, tell)
