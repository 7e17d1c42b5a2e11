"""Innermost loops: element by element, or by vectors and a masked rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from mgb.codegen import DOT, scalar
from mgb.ir import CONST, Kind, Node

from ..folds import held
from .body import Body, element, is_float, stored
from .builder import INDEX, SCALAR, WORD, Builder, Carried, Lanes, Type
from .words import SPELLINGS, from_memory, to_memory, waits

Nodes = tuple[Node, ...]

#: Ops from which the elements of a reduction are dear. In how many vectors at once, which do not wait for
#: each other, a reduction of cheap and of dear elements is carried. Of a vector of four registers LLVM loads
#: the last one first, and a pass that memory keeps waiting is slower then by half.
CHEAP, FEW, MANY = 8, 2, 4

#: Bytes of a vector from which a processor has registers for the sums of a dot of so many.
VAST = 64

#: From so many inputs on a loop without reductions has work enough in one vector, and takes long to compile.
BROAD = 16


@dataclass(frozen=True, slots=True)
class Value:
    """A value in a function: its name, and how many lanes it has; 0 for a scalar."""

    name: str
    lanes: int = 0


Names = dict[Node, Value]


@dataclass(frozen=True, slots=True)
class Width:
    """How many elements an innermost loop works on at once, and how many of them a vector has; 0: scalars."""

    turn: int
    vector: int


@dataclass(frozen=True, slots=True)
class Access:
    """Memory that an innermost loop reads or writes.

    Attributes
    ----------
    view : str
        As `Builder.view` gives it.
    dtype : str
    moves : bool
        Whether turn `i` is at element `i`; else all are at the first.
    """

    view: str
    dtype: str
    moves: bool = True


#: ``turn(counter, lanes, given) -> carried``
Turn = Callable[[str, Lanes, list[str]], Sequence[str]]


class Loops(Builder):
    """A function with innermost loops.

    Parameters
    ----------
    vector : int
        Bytes of a vector; 0: the loops stay scalar.
    """

    def __init__(self, vector: int) -> None:
        super().__init__()
        self.vector = vector

    def width(self, nodes: Iterable[Node], folds: bool = False) -> Width:
        """Return the width of a loop that reads and computes `nodes`: the widest of them fill a vector."""
        nodes = tuple(nodes)
        sizes = [self.bytes_of(v) for v in nodes]
        ops = sum(v.op.kind is not Kind.LEAF for v in nodes)
        reads = sum(v.op.kind is Kind.LEAF and v.op is not CONST for v in nodes)
        least = FEW if folds else 1
        dear = ops >= CHEAP or (folds and any(v.op.kind is Kind.REDUCE and waits(v) for v in nodes))
        vectors = MANY if dear and (folds or reads < BROAD) else least
        if any(v.op.name == DOT for v in nodes):  # it reads each factor of all once for so many vectors
            vectors = MANY if self.vector >= VAST else FEW
        lanes = self.vector // max(sizes, default=4)
        return Width(lanes * vectors, lanes)

    def bytes_of(self, node: Node) -> int:
        """Return those of a lane that computes `node`."""
        return np.dtype(held(node)).itemsize

    def over(self, count: str, width: Width, carried: Sequence[Carried], turn: Turn) -> list[str]:
        """Write the loop over `count` elements; returns what it carries at the end.

        The rest is apart from it: with a mask in every turn, loads wait for earlier stores. A rest that
        carries nothing goes vector by vector, which takes less code.
        """
        zero, one = self.index(0), self.index(1)
        if not width.turn:
            return self.loop(zero, count, one, carried, lambda i, given: turn(i, SCALAR, given))
        step = self.index(width.turn)
        rest = self.rem(count, step)
        full = self.sub(count, rest)
        done = self.loop(zero, full, step, carried, lambda i, given: turn(i, Lanes(width.turn), given))
        given = [(value, type_) for value, (_, type_) in zip(done, carried, strict=True)]

        def last(i: str, given: list[str]) -> Sequence[str]:
            lanes = Lanes(width.turn if carried else width.vector)
            return turn(i, Lanes(lanes.count, self.mask(self.sub(count, i), lanes.count)), given)

        if carried:
            return self.when(self.compare("ne", rest, zero), lambda: last(full, done), given)
        return self.loop(full, count, self.index(width.vector), [], last)

    # memory

    def reached(self, dtype: str, address: str) -> str:
        """Return the elements of `dtype` from `address` on."""
        return self.view(stored(dtype), address)

    def read(self, access: Access, i: str, lanes: Lanes = SCALAR) -> Value:
        """Load the value that a loop reads at iteration `i`."""
        if not access.moves:
            i, lanes = self.index(0), SCALAR
        found = self.load(access.view, i, lanes.of(stored(access.dtype)), lanes.mask)
        return Value(from_memory(Body(self, lanes), found, access.dtype), lanes.count)

    def write(self, access: Access, i: str, value: Value, lanes: Lanes = SCALAR) -> None:
        """Write what a loop has at turn `i`."""
        if not access.moves:
            value, i, lanes = self.first_of(value, access.dtype), self.index(0), SCALAR
        name = to_memory(Body(self, lanes), self.spread_to(value, access.dtype, lanes), access.dtype)
        self.store(name, access.view, i, lanes.of(stored(access.dtype)), lanes.mask)

    # values

    def spread_to(self, value: Value, dtype: str, lanes: Lanes) -> str:
        """Return a value in so many lanes."""
        if value.lanes == lanes.count:
            return value.name
        return Body(self, lanes).spread(value.name, element(dtype))

    def first_of(self, value: Value, dtype: str) -> Value:
        """Return the first lane, of a value that is the same in all."""
        if not value.lanes:
            return value
        return Value(self.first(value.name, Lanes(value.lanes).of(element(dtype))))

    def value(self, node: Node, names: Names, lanes: Lanes) -> str:
        """Return the value of `node` in so many lanes."""
        if node.op is CONST and node not in names:
            return Body(self, lanes).constant(scalar(node).astype(_exact(node)).item(), held(node))
        return self.spread_to(names[node], held(node), lanes)

    def compute(self, nodes: Iterable[Node], names: Names, lanes: Lanes, i: str = "") -> None:
        """Write the operations of `nodes` in turn `i`, and note their names."""
        body = Body(self, lanes)
        for node in nodes:
            if node not in names and node.op is not CONST:
                operands = [self.value(i, names, lanes) for i in node.inputs]
                names[node] = Value(SPELLINGS[node.op.name](body, node, *operands), lanes.count)

    def iota(self, dtype: str, place: str, i: str, moves: bool, lanes: Lanes) -> Value:
        """Return the places from ``place + i`` on, in `dtype`."""
        if not moves:
            i, lanes = self.index(0), SCALAR
        body = Body(self, lanes)
        start = self.change("bitcast", self.add(place, i), INDEX, WORD)
        if is_float(dtype):
            return Value(
                body.change("sitofp", self._counted(body, start, "i64"), "i64", element(dtype)), lanes.count
            )
        if dtype == "bool":
            return Value(Body(self, SCALAR).is_not_zero(start, WORD))
        type_ = element(dtype)
        narrow = start if type_ == "i64" else self.change("trunc", start, WORD, Type(type_))
        return Value(self._counted(body, narrow, type_), lanes.count)

    def _counted(self, body: Body, start: str, type_: str) -> str:
        """Return `start` and what follows it, one more in each lane."""
        if not body.lanes.count:
            return start
        steps = self.numbers(body.lanes.of(type_))
        return body.op("add", (body.spread(start, type_), steps), body.lanes.of(type_))


def _exact(node: Node) -> np.dtype[np.generic]:
    """Return a dtype that holds a constant of `node` and is NumPy's own."""
    return np.dtype(held(node))
