"""Passes over a row, or over the domain: tiles whose loads are all under way before anything is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mgb.codegen import Online, Pass
from mgb.ir import Node
from mgb_cuda.frame import Frame, Operand, registers
from mgb_cuda.variant import Kind, Variant
from mgb_native.folds import held
from mgb_native.nest import SCALAR
from mgb_native.nest.body import stored
from mgb_native.nest.builder import Type
from mgb_native.nest.lanes import Names, Nodes, Value
from mgb_native.nest.words import fold_step, from_memory, nothing, to_memory

from .ahead import Ahead
from .places import Places, dtype_of

#: Registers that all slots of what a pass loads may take beside a row that stays in others.
AT_ONCE = 16

#: A thread's place in the row, for a slot.
Slot = tuple[int, str]


class Sweep(Ahead):
    """Writes loops over rows.

    Attributes
    ----------
    names : list of Names
        Values of each row that a thread works on at once.
    begins : list of str
        Where each class is at the start of the thread's row.
    begin, end, lane : str
        The part of a row that the block works on, and which thread of those that share it this is.
    """

    def __init__(self, frame: Frame, variant: Variant) -> None:
        super().__init__(frame, variant)
        self.names: list[Names] = [{} for _ in range(variant.row_lanes)]
        self.row_places: Places = {}
        self.begins: list[str] = []
        self.begin = self.end = self.lane = ""
        self.full = False
        self.ends: dict[tuple[Node, int], str] = {}
        self.there: set[Node] = set()  # what is in registers of a row that stays

    @property
    def tail(self) -> bool:
        """May some lanes of a vector lie beyond the end of the row?"""
        return self.variant.tail and not self.full

    def names_of(self, lane: int) -> Names:
        """Return the known values of the row of a lane."""
        return self.names[lane if self.variant.row_lanes > 1 else 0]

    # tiles

    def visit(self, part: Pass, ahead: Iterable[Online] = ()) -> None:
        """Load, compute, fold and store every element of the row that the block works on.

        Folds that a later pass would do are done as well, as far as they can be, when they are given.
        """
        v, online = self.variant, tuple(ahead)
        step = v.stride * v.slots
        if v.kind is Kind.FLAT or v.stays:
            self.tile(part, online, self.begin)
            return
        rest = self.rem(self.sub(self.end, self.begin), self.index(step))
        whole = self.sub(self.end, rest)
        self.full = True
        self.repeat(self.begin, whole, step, lambda at: self.tile(part, online, at))
        self.full = False
        self.only(self.less(whole, self.end), lambda: self.passing(lambda: self.tile(part, online, whole)))

    def passing(self, body: Callable[[], None]) -> None:
        """Write `body`, and forget what only it held."""
        keys = set(self.state)
        body()
        for key in self.state.keys() - keys:
            del self.state[key]

    def tile(self, part: Pass, ahead: Sequence[Online], tile: str) -> None:
        """Emit the loads and the computation of one tile of a row."""
        v = self.variant
        loads = [
            o
            for n in dict.fromkeys(part.reads)
            if n not in self.there and not (o := self.frame.source_of[n]).is_iota
            if not v.whole or self.is_vector(o)
        ]
        slots = [(s, self.slot(tile, s)) for s in range(v.slots)]
        crowded = bool(self.there) and v.slots * registers([o.node for o in loads], v.lanes) > AT_ONCE
        if not crowded:
            self.each(slots, lambda slot: self.load(loads, slot))
        self.each(slots, lambda slot: self.elements(part, loads if crowded else [], ahead, slot))
        if ahead:
            self.fold_ahead(slots, ahead)
        if v.stays:
            self.there |= {o.node for o in loads} | set(part.keeps)

    def slot(self, tile: str, number: int) -> str:
        """The first place of a thread in a slot of a tile."""
        v = self.variant
        step = 1 if v.kind is Kind.COLUMNS else v.lanes
        place = self.add(tile, self.mul(self.lane, self.index(step)))
        return self.beside(place, number * v.stride)

    def each(self, slots: Sequence[Slot], body: Callable[[Slot], None]) -> None:
        """Write `body` for each slot that begins before the end of the row."""
        for slot in slots:
            self.only("" if self.full else self.less(slot[1], self.end), lambda slot=slot: body(slot))

    def classes_at(self, at: str) -> tuple[Places, Places]:
        """Where loops and classes are at a place of the row."""
        v = self.variant
        if v.whole:
            return {}, dict.fromkeys(v.whole, at)
        loops = self.split(at, v.folded_loops)
        moved = (self.offset(c, loops) for c in range(len(v.classes)))
        return loops, {c: self.add(b, m) for c, (b, m) in enumerate(zip(self.begins, moved, strict=True))}

    # loads

    def load(self, loads: Sequence[Operand], slot: Slot) -> None:
        """Load the lanes of operands."""
        s, at = slot
        _, classes = self.classes_at(at)
        for o in loads:
            width = self.width(o)
            type_ = Type(stored(dtype_of(o)), width if width > 1 else 0)
            if width > 1 and self.is_vector(o):
                self.load_vector(o, slot, classes, type_)
            else:
                guards = [self.before_end(at, v) if width > 1 else "" for v in range(width)]
                self.load_lanes(o, s, classes, guards, type_)

    def load_vector(self, o: Operand, slot: Slot, classes: Places, type_: Type) -> None:
        s, at = slot
        place, width = self.at(o, classes), self.width(o)

        def whole() -> None:
            self.hold(("read", o.node, s), self.read_lanes(o, place, width), type_)

        if not self.tail:
            whole()
            return
        fits = self.op(f"arith.cmpi sle, {self.beside(at, width)}, {self.end} : index")
        self.only(fits, whole)
        given = self.now(("read", o.node, s))
        guards = [self.all_of([self.inverse(fits), self.before_end(at, v)]) for v in range(width)]
        self.load_lanes(o, s, classes, guards, type_, given)

    def load_lanes(
        self, o: Operand, s: int, classes: Places, guards: Sequence[str], type_: Type, given: str = ""
    ) -> None:
        """Load lane by lane, each under its condition."""
        if len(guards) == 1:
            self.hold(("read", o.node, s), self.read_lanes(o, self.at(o, classes), 1), type_)
            return
        key, single = ("read", o.node, s), Type(type_.element)
        self.hold(key, given or self.poison(type_), type_)
        for v, guard in enumerate(guards):

            def one(v: int = v) -> None:
                value = self.read_lanes(o, self.at(o, classes, v), 1)
                self.hold(("lane", o.node, v), value, single)

            self.only(guard, one)
            value, old = self.state.pop(("lane", o.node, v))[0], self.now(key)
            if given:
                value = self.select(guard, value, self.apart(old, v, type_), single)
            place = self.constant(f"{v} : i32")
            text = f"llvm.insertelement {value}, {old}[{place} : i32] : vector<{type_.lanes}x{type_.element}>"
            self.hold(key, self.op(text), type_)

    def before_end(self, at: str, lane: int) -> str:
        """Whether a lane is before the end of the row; empty: it is."""
        if not self.tail or not lane:
            return ""
        return self.less(self.beside(at, lane), self.end)

    def inverse(self, bit: str) -> str:
        """Whether something does not hold."""
        return self.op(f"arith.xori {bit}, {self.constant('true')} : i1")

    # elements

    def elements(self, part: Pass, loads: Sequence[Operand], ahead: Sequence[Online], slot: Slot) -> None:
        """Emit the computation of each element, lane by lane, and the stores of whole vectors."""
        v, (s, at) = self.variant, slot
        self.load(loads, slot)
        loops, classes = self.classes_at(at)
        ends = self.load_ends(part, at)
        outputs = [o for n in part.stores for o in self.frame.outputs_of(n)]
        vectors = [o for o in outputs if v.lanes > 1 and self.is_vector(o)]
        for lane in range(v.lanes):

            def element(lane: int = lane) -> None:
                where = self.lane_classes(at, lane, classes) if v.whole else (loops, classes)
                names = self.lane_names(part, s, lane, where[1], ends)
                self.element(part, names, ahead, s, lane)
                for o in outputs:
                    value = to_memory(self.body, self.value(o.node, names, SCALAR), dtype_of(o))
                    if o in vectors:
                        self.hold(("write", o, lane), value, Type(stored(dtype_of(o))))
                    else:
                        self.write_one(o, value, lane, *where)

            self.only(self.before_end(at, lane), element)
        for o in vectors:
            self.store_vector(o, at, loops, classes)

    def lane_classes(self, at: str, lane: int, classes: Places) -> tuple[Places, Places]:
        """Where loops and classes are whose lanes are no neighbours of each other."""
        loops = self.split(self.beside(at, lane), self.variant.folded_loops)
        others = (c for c in range(len(self.variant.classes)) if c not in self.variant.whole)
        return loops, classes | {c: self.offset(c, loops) for c in others}

    def lane_names(self, part: Pass, s: int, lane: int, classes: Places, ends: dict[Node, str]) -> Names:
        """Return the values that a lane has before it computes."""
        names = dict(self.names_of(lane))
        kept = {k[1] for k in self.state if k[0] == "keep"} - set(part.keeps)
        for node in kept:
            names[node] = Value(self.now(("keep", node, s, lane)))
        for node in dict.fromkeys((*part.reads, *(self.there - kept))):
            if node not in self.frame.source_of:
                continue
            o = self.frame.source_of[node]
            if o.is_iota:
                names[node] = self.place_of(node, self.at(o, classes, lane))
                continue
            if node in ends:
                raw = self.select(self.in_first(ends, lane), *self.both_ends(ends, node))
            elif self.variant.whole and not self.is_vector(o):
                raw = self.read_lanes(o, self.at(o, classes), 1)
            else:
                width = self.width(o)
                type_ = Type(stored(dtype_of(o)), width if width > 1 else 0)
                raw = self.apart(self.now(("read", node, s)), lane, type_)
            names[node] = Value(from_memory(self.body, raw, dtype_of(o)))
        return names

    def element(self, part: Pass, names: Names, ahead: Sequence[Online], s: int, lane: int) -> None:
        """Compute an element, keep what is to be kept, and fold it."""
        self.compute(part.computes, names)
        for node in part.keeps:
            self.hold(("keep", node, s, lane), self.value(node, names, SCALAR), self.body.type(held(node)))
        for f in part.folds:
            key, type_ = ("fold", f, lane), self.body.type(held(f))
            value = self.value(f.inputs[0], names, SCALAR)
            self.hold(key, fold_step(self.body, f, self.now(key), value, held(f)), type_)
        for o in ahead:
            self.hold(
                ("ahead", o.fold, s, lane), self.value(o.value, names, SCALAR), self.body.type(held(o.fold))
            )

    def start_folds(self, folds: Nodes) -> None:
        """Begin to fold, in each lane."""
        for f in folds:
            for lane in range(self.variant.lanes):
                self.hold(("fold", f, lane), nothing(self.body, f, held(f)), self.body.type(held(f)))

    # what stays the same along the innermost loop, which lanes go past once at most

    def load_ends(self, part: Pass, at: str) -> dict[Node, str]:
        """Load it for the first lane and for the last one; which of them a lane takes."""
        v = self.variant
        nodes = [n for n in dict.fromkeys(part.reads) if self.has_ends(self.frame.source_of[n])]
        if not nodes:
            return {}
        last = self.least(self.beside(at, v.lanes - 1), self.sub(self.end, self.index(1)))
        for k, place in enumerate((at, last)):
            loops = self.split(place, v.folded_loops)
            for n in nodes:
                o = self.frame.source_of[n]
                where = self.offset(v.class_of[self.number_of[o]], loops)
                self.ends[n, k] = self.read_lanes(o, where, 1)
        inner = self.split(at, v.folded_loops[-2:])[self.inner]
        left = self.sub(f"%n{self.inner}", inner)
        return dict.fromkeys(nodes, left)

    def has_ends(self, o: Operand) -> bool:
        """Is it the same along the innermost loop, where lanes go past its end?"""
        v = self.variant
        group = v.class_of[self.number_of[o]]
        return bool(v.whole) and group >= 0 and not o.is_iota and v.classes[group][self.inner] == "0"

    def in_first(self, ends: dict[Node, str], lane: int) -> str:
        """Is a lane before the end of the innermost loop?"""
        return self.less(self.index(lane), next(iter(ends.values())))

    def both_ends(self, ends: dict[Node, str], node: Node) -> tuple[str, str, Type]:
        return self.ends[node, 0], self.ends[node, 1], Type(stored(node.spec.dtype.name))

    # stores

    def write_one(self, o: Operand, value: str, lane: int, loops: Places, classes: Places) -> None:
        """Write a lane of an output, by one thread where it varies along some loops only."""
        still = self.still(o, range(len(self.variant.folded)))
        by_lane = self.variant.lanes > 1 and not self.variant.whole and self.inner in still
        if by_lane and lane:
            return
        first = self.first_of_all(still, self.row_places | loops)
        self.only(first, lambda: self.write_lanes(o, self.at(o, classes, lane), [value]))

    def store_vector(self, o: Operand, at: str, loops: Places, classes: Places) -> None:
        lanes, place = self.variant.lanes, self.at(o, classes)
        values = [self.state.pop(("write", o, lane))[0] for lane in range(lanes)]
        places = self.row_places | loops
        first = self.first_of_all(self.still(o, places), places)
        if not self.tail:
            self.only(first, lambda: self.write_lanes(o, place, values))
            return
        fits = self.op(f"arith.cmpi sle, {self.beside(at, lanes)}, {self.end} : index")
        self.only(self.all_of([first, fits]), lambda: self.write_lanes(o, place, values))
        for lane, value in enumerate(values):
            guard = self.all_of([first, self.inverse(fits), self.before_end(at, lane)])
            self.only(
                guard, lambda lane=lane, value=value: self.write_lanes(o, self.beside(place, lane), [value])
            )

    def still(self, o: Operand, loops: Iterable[int]) -> list[int]:
        """Along which of `loops` an output is the same."""
        return [j for j in loops if self.variant.letter(self.number_of[o], j) == "0"]

    def first_of_all(self, still: Iterable[int], places: Places) -> str:
        """The condition that a thread is the first along these loops."""
        return self.all_of(self.compare("eq", places[j], self.index(0)) for j in still)
