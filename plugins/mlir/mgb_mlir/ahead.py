"""Folds of the second pass in the first: `mgb.codegen.online` says which, and by what identities.

A sum of exponentials is found against the greatest element so far, or 0 where that is not finite; the lanes
of a row have one such shift, which moves between tiles. A sum of squares is found against a pivot that moves
to the mean so far each time the count doubles, so that no outlier stays the pivot of many others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from mgb.codegen import Online
from mgb.ir import Node
from mgb_cuda.variant import Kind
from mgb_native.folds import held
from mgb_native.nest.builder import Type
from mgb_native.nest.words import fold_step

from .places import Placed
from .words import exponential, term


class Ahead(Placed):
    """Writes such folds."""

    @property
    def groups(self) -> list[tuple[int, ...]]:
        """The lanes of each row of a thread, whose folds are found apart."""
        lanes = range(self.variant.lanes)
        return [(lane,) for lane in lanes] if self.variant.kind is Kind.COLUMNS else [tuple(lanes)]

    def reckon(self, operation: str, *operands: str) -> str:
        """An operation on numbers of the dtype at hand."""
        return self.body.op(operation, operands, self.body.type(self.at_hand))

    def exact(self, value: float) -> str:
        """A number of the dtype at hand."""
        return self.body.constant(np.float64(value), self.at_hand)

    at_hand = "float32"

    def keys(self, o: Online, g: int) -> Iterator[tuple[tuple[str, Node, int], float]]:
        """Yield the state of a row beside the sums of its lanes, with the initial values."""
        if o.maximum is not None:
            yield ("most", o.fold, g), -np.inf
            yield ("shift", o.fold, g), 0.0
        else:
            yield ("pivot", o.fold, g), 0.0

    def start_ahead(self, ahead: Iterable[Online]) -> None:
        """Begin to find folds before the second pass knows what to subtract."""
        for o in ahead:
            type_ = self.of(o)
            for g, lanes in enumerate(self.groups):
                for key, value in self.keys(o, g):
                    self.hold(key, self.exact(value), type_)
                if o.maximum is None:
                    for name in ("count", "next"):
                        self.hold((name, o.fold, g), self.number(0, _WHOLE), _WHOLE)
                for lane in lanes:
                    self.hold(("sum", o.fold, lane), self.exact(0.0), type_)
                    if o.maximum is None:
                        self.hold(("squares", o.fold, lane), self.exact(0.0), type_)

    def of(self, o: Online) -> Type:
        """The type of the numbers of a fold, which are at hand from here on."""
        self.at_hand = held(o.fold)
        return self.body.type(self.at_hand)

    def set(self, name: str, o: Online, g: int, value: str) -> None:
        """Set the partial result of a thread for a reduction."""
        self.hold((name, o.fold, g), value, self.state[name, o.fold, g][1])

    def total_of(self, name: str, o: Online, lanes: Sequence[int]) -> str:
        """Return the sum of the partial results of all lanes of a row."""
        first, *rest = (self.now((name, o.fold, lane)) for lane in lanes)
        for other in rest:
            first = self.reckon("fadd", first, other)
        return first

    # tiles

    def fold_ahead(self, slots: Sequence[tuple[int, str]], ahead: Sequence[Online]) -> None:
        """Fold the values of a tile, whose maximum is known."""
        for o in ahead:
            self.of(o)
            for g, lanes in enumerate(self.groups):
                if o.maximum is None:
                    self.first_pivot(o, g, lanes)
                else:
                    self.next_shift(o, g, lanes)
        self.each(slots, lambda slot: self.add_lanes(slot, ahead))
        for o in ahead:
            self.of(o)
            for g, lanes in enumerate(self.groups):
                if o.maximum is None:
                    self.next_pivot(o, g, lanes)
        for key in [k for k in self.state if k[0] == "ahead"]:  # type: ignore[index]
            del self.state[key]

    def each(self, slots: Sequence[tuple[int, str]], body: Callable[[tuple[int, str]], None]) -> None:
        """Write `body` for each slot that begins before the end of the row."""
        raise NotImplementedError

    def before_end(self, at: str, lane: int) -> str:
        """Whether a lane is before the end of the row; empty: it is."""
        raise NotImplementedError

    def add_lanes(self, slot: tuple[int, str], ahead: Sequence[Online]) -> None:
        """Fold the lanes of a slot."""
        s, at = slot
        for g, lanes in enumerate(self.groups):
            for lane in lanes:

                def one(g: int = g, lane: int = lane) -> None:
                    for o in ahead:
                        self.of(o)
                        value = self.now(("ahead", o.fold, s, lane))
                        (self.add_square if o.maximum is None else self.add_term)(o, g, lane, value)

                self.only(self.before_end(at, lane), one)

    # exponentials

    def most(self, maximum: Node, lanes: Sequence[int]) -> str:
        """The greatest that the lanes of a row have seen."""
        found = self.now(("fold", maximum, lanes[0]))
        for lane in lanes[1:]:
            found = fold_step(self.body, maximum, found, self.now(("fold", maximum, lane)), held(maximum))
        return found

    def is_finite(self, x: str) -> str:
        """Whether a number is neither infinite nor NaN."""
        return self.body.compare("eq", self.reckon("fsub", x, x), self.exact(0.0), self.at_hand)

    def finite_or_0(self, x: str) -> str:
        """Return a number, or 0 where it is not finite."""
        return self.body.select(self.is_finite(x), x, self.exact(0.0), self.body.type(self.at_hand))

    def next_shift(self, o: Online, g: int, lanes: Sequence[int]) -> None:
        assert o.maximum is not None
        most, old = self.most(o.maximum, lanes), self.now(("most", o.fold, g))
        differs = self.compare("une", most, old, self.body.type(self.at_hand))

        def move() -> None:
            shift = self.finite_or_0(most)

            def rescale() -> None:
                factor = exponential(self.body, self.reckon("fsub", old, shift))
                for lane in lanes:
                    self.set("sum", o, lane, self.reckon("fmul", self.now(("sum", o.fold, lane)), factor))

            self.only(self.is_finite(old), rescale)
            self.set("most", o, g, most)
            self.set("shift", o, g, shift)

        self.only(differs, move)

    def add_term(self, o: Online, g: int, lane: int, value: str) -> None:
        less = self.reckon("fsub", value, self.now(("shift", o.fold, g)))
        self.set("sum", o, lane, self.reckon("fadd", self.now(("sum", o.fold, lane)), term(self.body, less)))

    def settled_sum(self, total: str, most: str, shift: str) -> str:
        """A sum of exponentials that was found against `most`, against `shift`."""
        type_, away = self.body.type(self.at_hand), self.reckon("fsub", most, shift)
        finite = self.is_finite(most)
        factor = exponential(self.body, self.body.select(finite, away, self.reckon("fneg", shift), type_))
        nothing = self.body.compare("eq", most, self.exact(-np.inf), self.at_hand)
        empty = exponential(self.body, away)
        return self.body.select(nothing, empty, self.reckon("fmul", total, factor), type_)

    # squares

    def first_pivot(self, o: Online, g: int, lanes: Sequence[int]) -> None:
        none = self.compare("eq", self.now(("count", o.fold, g)), self.number(0, _WHOLE), _WHOLE)
        first, old = self.now(("ahead", o.fold, 0, lanes[0])), self.now(("pivot", o.fold, g))
        self.set("pivot", o, g, self.body.select(none, first, old, self.body.type(self.at_hand)))

    def add_square(self, o: Online, g: int, lane: int, value: str) -> None:
        away = self.reckon("fsub", value, self.now(("pivot", o.fold, g)))
        one = self.number(1, _WHOLE)
        self.set("count", o, g, self.apply("add", (self.now(("count", o.fold, g)), one), _WHOLE))
        self.set("sum", o, lane, self.reckon("fadd", self.now(("sum", o.fold, lane)), away))
        square = self.reckon("fmul", away, away)
        self.set("squares", o, lane, self.reckon("fadd", self.now(("squares", o.fold, lane)), square))

    def move_pivot(self, o: Online, g: int, lanes: Sequence[int], away: str) -> None:
        """The pivot goes so far; what was found against it follows."""
        whole = self.now(("count", o.fold, g))
        count = self.body.change("sitofp", whole, "i32", self.body.type(self.at_hand).element)
        moved = self.reckon("fmul", count, away)
        twice = self.reckon("fmul", self.exact(2.0), self.total_of("sum", o, lanes))
        by = self.reckon("fmul", away, self.reckon("fsub", moved, twice))
        first = lanes[0]
        self.set("squares", o, first, self.reckon("fadd", self.now(("squares", o.fold, first)), by))
        self.set("sum", o, first, self.reckon("fsub", self.now(("sum", o.fold, first)), moved))
        self.set("pivot", o, g, self.reckon("fadd", self.now(("pivot", o.fold, g)), away))

    def next_pivot(self, o: Online, g: int, lanes: Sequence[int]) -> None:
        count, next_ = (self.now((name, o.fold, g)) for name in ("count", "next"))
        enough = self.compare("sge", count, next_, _WHOLE)
        some = self.compare("ne", count, self.number(0, _WHOLE), _WHOLE)

        def move() -> None:
            number = self.body.change("sitofp", count, "i32", self.body.type(self.at_hand).element)
            mean = self.reckon("fdiv", self.total_of("sum", o, lanes), number)
            pivot = self.now(("pivot", o.fold, g))
            self.move_pivot(o, g, lanes, self.reckon("fsub", self.reckon("fadd", pivot, mean), pivot))
            self.set("next", o, g, self.apply("add", (count, count), _WHOLE))

        self.only(self.both(enough, some), move)

    # the end

    def settle(self, o: Online, g: int, lanes: Sequence[int], to: str) -> str:
        """Return the partial result of a thread as if the second pass had made it, which subtracts `to`."""
        type_ = self.of(o)
        if o.maximum is not None:
            return self.settled_sum(self.total_of("sum", o, lanes), self.now(("most", o.fold, g)), to)
        count = self.now(("count", o.fold, g))
        away = self.reckon("fsub", to, self.now(("pivot", o.fold, g)))
        self.move_pivot(o, g, lanes, away)
        some = self.compare("ne", count, self.number(0, _WHOLE), _WHOLE)
        return self.body.select(some, self.total_of("squares", o, lanes), self.exact(0.0), type_)

    def moved_squares(self, squares: str, total: str, count: str, to: str) -> str:
        """A sum of squares that a block found about its own mean, about another number."""
        away = self.reckon("fsub", self.reckon("fdiv", total, count), to)
        return self.reckon("fadd", squares, self.reckon("fmul", count, self.reckon("fmul", away, away)))


_WHOLE = Type("i32")
