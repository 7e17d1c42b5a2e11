"""The operations of a thread of a grid at the level ``gpu``: values that branches change, places, memory.

A place is an ``index``, of 32 bits where the operands of a call are small enough: `Grid` says so in the data
layout of its module.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

from mgb.codegen import Schedule
from mgb.ir import CONST, Node
from mgb_cuda.frame import Frame, Operand
from mgb_cuda.variant import Variant
from mgb_native.folds import held
from mgb_native.nest import SCALAR
from mgb_native.nest.body import Body, stored
from mgb_native.nest.builder import Carried, Type
from mgb_native.nest.lanes import Loops, Names, Value

from .builder import MlirBuilder, type_text
from .words import SPELLINGS

#: Where a class of operands, or a loop, is.
Places = dict[int, str]

GLOBAL, SHARED = "!llvm.ptr<1>", "!llvm.ptr<3>"


def dtype_of(o: Operand) -> str:
    """The name of the dtype of an operand."""
    return o.node.spec.dtype.name


class Placed(Loops, MlirBuilder):
    """Writes what one thread does.

    Parameters
    ----------
    frame : Frame
    variant : Variant

    Attributes
    ----------
    state : dict
        What branches and loops change, by what it is: `only` and `repeat` keep account of it.
    """

    def __init__(self, frame: Frame, variant: Variant) -> None:
        super().__init__(0)
        self.frame, self.variant = frame, variant
        self.schedule: Schedule = frame.keeping if variant.stays else frame.schedule
        self.body = Body(self, SCALAR)
        self.number_of = {o: i for i, o in enumerate(frame.operands)}
        self.state: dict[Hashable, Carried] = {}
        self.depth = 2

    # values

    def compute(self, nodes: Iterable[Node], names: Names) -> None:  # type: ignore[override]
        """Write the operations of `nodes`, and note their names."""
        for node in nodes:
            if node not in names and node.op is not CONST:
                operands = [self.value(i, names, SCALAR) for i in node.inputs]
                names[node] = Value(SPELLINGS[node.op.name](self.body, node, *operands))

    def hold(self, key: Hashable, value: str, type_: Type) -> None:
        """Set the value of `key` from here on."""
        self.state[key] = value, type_

    def now(self, key: Hashable) -> str:
        """Return the current value of `key`."""
        return self.state[key][0]

    def only(self, condition: str, body: Callable[[], None]) -> None:
        """Write `body` under a condition.

        What it changes stays as it was elsewhere; what is new is nothing there, and nobody may look at it.
        """
        if not condition:
            body()
            return
        before, outer, self.lines = dict(self.state), self.lines, []
        self.depth += 1
        body()
        self.depth -= 1
        inner, self.lines = self.lines, outer
        changed = {key: now for key, now in self.state.items() if before.get(key) != now}

        def lines() -> Sequence[str]:
            self.lines += inner
            return [value for value, _ in changed.values()]

        others = [before.get(key) or (self.poison(type_), type_) for key, (_, type_) in changed.items()]
        found = self.when(condition, lines, others)
        for (key, (_, type_)), name in zip(changed.items(), found, strict=True):
            self.hold(key, name, type_)

    def repeat(self, first: str, last: str, step: int, body: Callable[[str], None]) -> None:
        """Write a loop, through which all that is held is carried; what is new does not leave it."""
        keys = list(self.state)

        def turn(at: str, given: list[str]) -> Sequence[str]:
            for key, name in zip(keys, given, strict=True):
                self.hold(key, name, self.state[key][1])
            body(at)
            ends = [self.now(key) for key in keys]
            for key in self.state.keys() - set(keys):
                del self.state[key]
            return ends

        found = self.loop(first, last, self.index(step), [self.state[k] for k in keys], turn)
        for key, name in zip(keys, found, strict=True):
            self.hold(key, name, self.state[key][1])

    # places: none wraps around, so that LLVM may reckon with them

    def add(self, a: str, b: str) -> str:
        zero = self.index(0)
        if zero in (a, b):
            return a if b == zero else b
        return self.op(f"arith.addi {a}, {b} overflow<nsw> : index")

    def sub(self, a: str, b: str) -> str:
        return a if b == self.index(0) else self.op(f"arith.subi {a}, {b} overflow<nsw> : index")

    def mul(self, a: str, b: str) -> str:
        zero, one = self.index(0), self.index(1)
        if zero in (a, b):
            return zero
        if one in (a, b):
            return a if b == one else b
        return self.op(f"arith.muli {a}, {b} overflow<nsw> : index")

    def beside(self, place: str, by: int) -> str:
        """So many after a place."""
        return self.add(place, self.index(by))

    def less(self, a: str, b: str) -> str:
        """Is a place before another?"""
        return self.compare("slt", a, b)

    def all_of(self, conditions: Iterable[str]) -> str:
        """Do all hold? Empty where there is none."""
        found = ""
        for condition in filter(None, conditions):
            found = self.both(found, condition) if found else condition
        return found

    def quotient(self, place: str, loop: int) -> str:
        """A place divided by the length of a loop."""
        if self.variant.wide:
            return self.div(place, f"%n{loop}")
        word = self.op(f"arith.index_cast {place} : index to i32")
        high = self.name("high")
        self.line(f"{self.name('low')}, {high} = arith.mului_extended {word}, %m{loop} : i32")
        total = self.op(f"arith.addi {high}, {word} : i32")
        found = self.op(f"arith.shrui {total}, %h{loop} : i32")
        return self.op(f"arith.index_cast {found} : i32 to index")

    def split(self, index: str, loops: Sequence[int]) -> Places:
        """The place in each of `loops`, outermost first, of a row-major `index`."""
        found = {}
        for j in reversed(loops[1:]):
            above = self.quotient(index, j)
            found[j] = self.sub(index, self.mul(above, f"%n{j}"))
            index = above
        return {**found, loops[0]: index} if loops else {}

    def offset(self, group: int, places: Places) -> str:
        """How far a class has gone at `places`."""
        letters, total = self.variant.classes[group], self.index(0)
        for j, place in sorted(places.items()):
            if letters[j] != "0":
                total = self.add(total, place if letters[j] == "1" else self.mul(place, f"%s{group}_{j}"))
        return total

    # operands

    @property
    def inner(self) -> int:
        """The innermost loop."""
        return len(self.variant.folded) - 1

    def is_vector(self, o: Operand) -> bool:
        """Are the lanes of an operand loaded and stored together?"""
        v, i = self.variant, self.number_of[o]
        if v.whole:
            return v.class_of[i] in v.whole
        return self.inner >= 0 and v.letter(i, self.inner) == "1"

    def width(self, o: Operand) -> int:
        """How many of its lanes differ."""
        return self.variant.lanes if self.variant.moves(self.number_of[o]) else 1

    def at(self, o: Operand, places: Places, lane: int = 0) -> str:
        """Where a lane of an operand is, with each class at its place; one of one element does not move."""
        group = self.variant.class_of[self.number_of[o]]
        if group < 0:
            return self.index(0)
        found = places[group]
        if not lane or self.width(o) == 1 or (self.variant.whole and not self.is_vector(o)):
            return found
        if self.variant.classes[group][self.inner] == "1":
            return self.beside(found, lane)
        return self.add(found, self.mul(self.index(lane), f"%s{group}_{self.inner}"))

    def pointer(self, name: str, place: str, dtype: str) -> str:
        """The address of an element of an array."""
        word = self.op(f"arith.index_cast {place} : index to i64")
        return self.op(
            f"llvm.getelementptr {name}[{word}] : ({GLOBAL}, i64) -> {GLOBAL}, {stored(dtype)}", "p"
        )

    def read_lanes(self, o: Operand, place: str, count: int) -> str:
        """So many neighbours at once, as they lie in memory; of one the element."""
        type_ = Type(stored(dtype_of(o)), count if count > 1 else 0)
        where = self.pointer(f"%{o.name}", place, dtype_of(o))
        return self.op(f"llvm.load {where}{self.aligned(o, count)} : {GLOBAL} -> {type_text(type_)}", "e")

    def write_lanes(self, o: Operand, place: str, values: Sequence[str]) -> None:
        """Write neighbours, as they lie in memory, at once."""
        type_ = Type(stored(dtype_of(o)), len(values) if len(values) > 1 else 0)
        value = self.together(values, type_)
        where = self.pointer(f"%{o.name}", place, dtype_of(o))
        self.line(f"llvm.store {value}, {where}{self.aligned(o, len(values))} : {type_text(type_)}, {GLOBAL}")

    def aligned(self, o: Operand, count: int) -> str:
        """Return the alignment attribute of an access to neighbours."""
        return f" {{alignment = {min(16, count * o.itemsize)} : i64}}" if count > 1 else ""

    def poison(self, type_: Type) -> str:
        """Emit a value that no element reads."""
        return self.op(f"llvm.mlir.poison : {type_text(type_)}")

    def together(self, values: Sequence[str], type_: Type) -> str:
        """Lanes as a vector."""
        if not type_.lanes:
            return values[0]
        found = self.poison(type_)
        for lane, value in enumerate(values):
            found = self.op(
                f"llvm.insertelement {value}, {found}[{self._lane(lane)} : i32] : {type_text(type_)}"
            )
        return found

    def apart(self, vector: str, lane: int, type_: Type) -> str:
        """A lane of a vector."""
        if not type_.lanes:
            return vector
        return self.op(f"llvm.extractelement {vector}[{self._lane(lane)} : i32] : {type_text(type_)}")

    def _lane(self, lane: int) -> str:
        return self.constant(f"{lane} : i32")

    def place_of(self, node: Node, place: str) -> Value:
        """The value of an ``iota`` at a place."""
        return self.iota(held(node), place, self.index(0), True, SCALAR)
