"""Elements of products of matrices with a short inner axis: a loop along it in registers, in each turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mgb.codegen import alongs
from mgb.ir import Node

from ..folds import held
from ..frame import Operand
from ..target import fuses
from .body import Body, stored
from .builder import INDEX, WORD, Lanes
from .given import Given
from .lanes import Access, Value
from .words import from_memory

#: How many sums are carried side by side, so that none waits for the one before.
WAYS = 4


class Dots(Given):
    """Writes elements of products.

    Attributes
    ----------
    look_at : dict
        Where each table has the element at place 0 of the innermost loop, were all indices 0.
    """

    look_at: dict[Operand, str]

    def dot(self, node: Node, lanes: Lanes, i: str) -> Value:
        """Return the sums of products that `node` has at iteration `i`."""
        body, tables = Body(self, lanes), self.frame.tables_of[node]
        starts = [
            self.add(self.look_at[o], self.mul(i, self.slot(o.at))) if o.moves else self.look_at[o]
            for o in tables
        ]
        strides = [self.slot(o.at) for o in tables if o.moves] if lanes.count else []
        type_, size = body.type(held(node)), self.index(node.spec.dtype.itemsize)
        zero = body.constant(0.0, held(node))

        def sums(apart: bool) -> Callable[[], Sequence[str]]:
            return lambda: [self.sum_of_products(node, starts, lanes, apart)]

        if not strides:
            return Value(sums(False)()[0], lanes.count)
        even = self.compare("eq", strides[0], size)
        for stride in strides[1:]:
            even = self.both(even, self.compare("eq", stride, size))
        uneven = self.compare("ne", strides[0], size)
        (found,) = self.when(uneven, sums(True), [(zero, type_)])
        return Value(self.when(even, sums(False), [(found, type_)])[0], lanes.count)

    def sum_of_products(self, node: Node, starts: Sequence[str], lanes: Lanes, apart: bool) -> str:
        """Write the loop along the inner axis; where elements of lanes lie `apart`, they are gathered."""
        body, tables = Body(self, lanes), self.frame.tables_of[node]
        axes = [along.index(None) for along in alongs(node)]
        count = self.slot(self.frame.axis_at(node, axes[0]))
        steps = [self.slot(self.frame.axis_at(node, axis, side) + 1) for side, axis in enumerate(axes)]
        type_, zero = body.type(held(node)), body.constant(0.0, held(node))

        def terms(_: str, given: Sequence[str]) -> Sequence[str]:
            found, at = [], given[:2]  # addresses that go on: LLVM multiplies for each otherwise
            for total in given[2:]:
                a, b = (self.factor(o, address, lanes, apart) for o, address in zip(tables, at, strict=True))
                found.append(self.added(body, total, a, b, node))
                at = [self.add(address, step) for address, step in zip(at, steps, strict=True)]
            return [*at, *found]

        begun = [(start, INDEX) for start in starts]
        rest = self.sub(count, self.rem(count, self.index(WAYS)))
        ways = [*begun, *[(zero, type_)] * WAYS]
        a, b, first, *others = self.loop(self.index(0), rest, self.index(WAYS), ways, terms, "k")
        one = [(a, INDEX), (b, INDEX), (first, type_)]
        *_, total = self.loop(rest, count, self.index(1), one, terms, "k")
        for other in others:
            total = body.op("fadd", (total, other), type_)
        return total

    def added(self, body: Body, total: str, a: str, b: str, node: Node) -> str:
        """Return a sum with one more product."""
        type_ = body.type(held(node))
        if fuses():
            return body.op("fma", (a, b, total), type_)
        return body.op("fadd", (total, body.op("fmul", (a, b), type_)), type_)

    def factor(self, o: Operand, address: str, lanes: Lanes, apart: bool) -> str:
        """Return the elements of a table from `address` on, one for each lane."""
        if not (o.moves and apart):
            found = self.read(Access(self.reached(o.dtype, address), o.dtype, o.moves), self.index(0), lanes)
            return self.spread_to(found, o.dtype, lanes)
        body, words = Body(self, lanes), lanes.of("i64")
        step = body.spread(self.change("bitcast", self.slot(o.at), INDEX, WORD), "i64")
        start = body.spread(self.change("bitcast", address, INDEX, WORD), "i64")
        places = body.op("add", (start, body.op("mul", (step, self.numbers(words)), words)), words)
        mask = lanes.mask or self.mask(self.index(lanes.count), lanes.count)
        return from_memory(body, self.gather(places, lanes.of(stored(o.dtype)), mask), o.dtype)
