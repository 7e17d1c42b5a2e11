"""Elements of products of matrices with a short inner axis: a loop along it in registers, in each turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from mgb.codegen import alongs
from mgb.ir import Node

from ..folds import held
from ..slots import NOTE, Operand
from ..target import fuses
from .body import Body
from .builder import BIT, INDEX, WORD, Lanes
from .given import Given
from .lanes import Access, Value

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

    def forget_lines(self) -> None:
        """Note that nothing is laid out."""
        for o in (*self.frame.laid, *self.frame.lined):
            self.when(self.is_uneven(o), partial(self._forget, o))

    def _forget(self, o: Operand) -> None:
        self.store(self.number(0, WORD), self._note(o), self.index(0), WORD)

    def _note(self, o: Operand) -> str:
        return self.view("i64", self.buffer(self.buffer_of(f"e{o.name}", o.node)))

    def is_uneven(self, o: Operand) -> str:
        """Return whether the elements of an operand that are the lanes of a loop lie apart."""
        return self.compare("ne", self.slot(o.at), self.index(o.itemsize))

    def unless_laid(self, o: Operand, address: str, count: str, lay_out: Callable[[], None]) -> None:
        """Lay out what lies at `address`, unless it is what was laid out last, as what all rows share."""
        words, note = [self.change("bitcast", x, INDEX, WORD) for x in (address, count)], self._note(o)
        before = [self.load(note, self.index(k), WORD) for k in range(NOTE)]
        same = [self.compare("eq", a, b, WORD) for a, b in zip(words, before, strict=True)]

        def lay_out_and_note() -> None:
            lay_out()
            for k, word in enumerate(words):
                self.store(word, note, self.index(k), WORD)

        self.when(self.compare("eq", self.both(*same), self.number(0, BIT), BIT), lay_out_and_note)

    def laid(self, o: Operand, address: str, count: str) -> str:
        """Return where `count` elements of a table, from `address` on, lie side by side, term by term.

        Those of the dots before are not laid out again.
        """
        if o not in self.frame.laid:
            return address
        buffer = self.buffer(self.buffer_of(f"d{o.name}", o.node))
        terms = self.frame.axis_at(o.node, alongs(o.node)[o.side].index(None), o.side)
        given = (buffer, address, self.slot(o.at), count, self.slot(terms + 1), self.slot(terms))
        tile = partial(self.call, f"mgb_tile_{8 * o.itemsize}", *given, self.slot("line"))

        def lie() -> Sequence[str]:
            self.unless_laid(o, address, count, tile)
            return (buffer,)

        return self.when(self.is_uneven(o), lie, [(address, INDEX)])[0]

    def dot(self, node: Node, lanes: Lanes, i: str) -> Value:
        """Return the sums of products that `node` has at iteration `i`: a loop along the inner axis."""
        body, tables = Body(self, lanes), self.frame.tables_of[node]
        axes = [along.index(None) for along in alongs(node)]
        count = self.slot(self.frame.axis_at(node, axes[0]))
        begun = [(self._start(o, i), INDEX) for o in tables]
        steps = [self._step(o, axis) for o, axis in zip(tables, axes, strict=True)]
        type_, zero = body.type(held(node)), body.constant(0.0, held(node))

        def terms(_: str, given: Sequence[str]) -> Sequence[str]:
            found, at = [], given[:2]  # addresses that go on: LLVM multiplies for each otherwise
            for total in given[2:]:
                a, b = (self.factor(o, address, lanes) for o, address in zip(tables, at, strict=True))
                found.append(self.added(body, total, a, b, node))
                at = [self.add(address, step) for address, step in zip(at, steps, strict=True)]
            return [*at, *found]

        rest = self.sub(count, self.rem(count, self.index(WAYS)))
        ways = [*begun, *[(zero, type_)] * WAYS]
        a, b, first, *others = self.loop(self.index(0), rest, self.index(WAYS), ways, terms, "k")
        one = [(a, INDEX), (b, INDEX), (first, type_)]
        *_, total = self.loop(rest, count, self.index(1), one, terms, "k")
        for other in others:
            total = body.op("fadd", (total, other), type_)
        return Value(total, lanes.count)

    def _start(self, o: Operand, i: str) -> str:
        """Return where the first terms of lanes are."""
        at = self.look_at[o]
        return self.add(at, self.mul(i, self.index(o.itemsize))) if o.moves else at

    def _step(self, o: Operand, axis: int) -> str:
        """Return how far one term is from the next."""
        step = self.slot(self.frame.axis_at(o.node, axis, o.side) + 1)
        if not o.moves:
            return step
        return self.select(self.is_uneven(o), self.mul(self.slot("line"), self.index(o.itemsize)), step)

    def added(self, body: Body, total: str, a: str, b: str, node: Node) -> str:
        """Return a sum with one more product."""
        type_ = body.type(held(node))
        if fuses():
            return body.op("fma", (a, b, total), type_)
        return body.op("fadd", (total, body.op("fmul", (a, b), type_)), type_)

    def factor(self, o: Operand, address: str, lanes: Lanes) -> str:
        """Return the elements of a table from `address` on, one for each lane."""
        found = self.read(Access(self.reached(o.dtype, address), o.dtype, o.moves), self.index(0), lanes)
        return self.spread_to(found, o.dtype, lanes)
