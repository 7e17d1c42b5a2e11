"""The totals of the threads that share a row: by shuffles in a warp, then in shared memory.

Threads meet in rounds, which use two parts of shared memory in turn: who writes in a round has passed the
barrier of the one before, and so has everybody else, who had then read what the round before that left there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mgb.ir import Node
from mgb_cuda.frame import Frame
from mgb_cuda.occupancy import WARP
from mgb_cuda.variant import ROUND_BYTES, Kind, Variant
from mgb_native.folds import held
from mgb_native.nest.body import element, stored
from mgb_native.nest.lanes import Nodes, Value
from mgb_native.nest.words import fold_step, from_memory, to_memory

from .places import SHARED
from .sweep import Sweep

#: Where the folds of a round begin in shared memory, in bytes.
Memory = dict[Node, int]


class Totals(Sweep):
    """Writes how threads meet."""

    def __init__(self, frame: Frame, variant: Variant) -> None:
        super().__init__(frame, variant)
        self.rounds = 0
        self.shared_bytes = 0  # of each of the two parts
        self.team = ""

    def total(self, folds: Nodes) -> None:
        """Fold what the threads of a team have found; each of them knows the total then."""
        if not folds:
            return
        v = self.variant
        if v.kind is Kind.COLUMNS:
            if v.team > 1:
                self.in_rounds(folds, self.column_totals)
            for f in folds:
                for lane, names in enumerate(self.names):
                    names[f] = Value(self.now(("fold", f, lane)))
        else:
            for f in folds:
                self.names[0][f] = Value(self.in_warp(f, self.of_lanes(f)))
            if v.team > WARP:
                self.in_rounds(folds, self.block_totals)
        for f in folds:
            for lane in range(v.lanes):
                del self.state["fold", f, lane]

    def step(self, fold: Node, a: str, b: str) -> str:
        """Two parts of a fold as one."""
        return fold_step(self.body, fold, a, b, held(fold))

    def of_lanes(self, fold: Node) -> str:
        """The lanes of a thread together."""
        found = self.now(("fold", fold, 0))
        for lane in range(1, self.variant.lanes):
            found = self.step(fold, found, self.now(("fold", fold, lane)))
        return found

    def in_warp(self, fold: Node, value: str) -> str:
        """Fold the values of a team in a warp; each of its threads has the same bits then."""
        away = min(self.variant.team, WARP) // 2
        while away:
            value = self.step(fold, value, self.shuffled(value, away, element(held(fold))))
            away //= 2
        return value

    def shuffled(self, value: str, away: int, type_: str) -> str:
        """The value of the thread whose number differs in the bit `away`; words of 32 bits are exchanged."""
        narrow = type_ in ("i1", "i8", "i16")
        word = "i32" if narrow else type_
        value = self.op(f"arith.extui {value} : {type_} to i32", "v") if narrow else value
        found, valid = self.name("v"), self.name("valid")
        distance, width = self.constant(f"{away} : i32"), self.constant(f"{WARP} : i32")
        self.line(f"{found}, {valid} = gpu.shuffle xor {value}, {distance}, {width} : {word}")
        return self.op(f"arith.trunci {found} : i32 to {type_}", "v") if narrow else found

    # rounds

    def in_rounds(self, folds: Nodes, meet: Callable[[Memory], None]) -> None:
        """Let threads meet, as few times as shared memory allows."""
        waiting: list[Node] = []
        for f in folds:
            if waiting and self.round_bytes([*waiting, f]) > ROUND_BYTES:
                self.round(waiting, meet)
                waiting = []
            waiting.append(f)
        self.round(waiting, meet)

    def round(self, folds: list[Node], meet: Callable[[Memory], None]) -> None:
        """One of them."""
        used = [self.round_bytes(folds[:k]) for k in range(len(folds))]
        self.shared_bytes = max(self.shared_bytes, self.round_bytes(folds))
        meet(dict(zip(folds, used, strict=True)))
        self.rounds += 1

    def round_bytes(self, folds: Iterable[Node]) -> int:
        """The shared memory in which the totals of `folds` meet."""
        v = self.variant
        count = v.threads * v.lanes if v.kind is Kind.COLUMNS else v.threads // WARP
        return sum(-(-count * f.spec.dtype.itemsize // 16) * 16 for f in folds)

    def place_in(self, fold: Node, start: int, place: str) -> str:
        """The address of an element of a fold's shared memory."""
        word = self.op(f"arith.index_cast {place} : index to i64")
        part = self.op(f"llvm.mlir.addressof @shared{self.rounds % 2} : {SHARED}", "s")
        byte = self.constant(f"{start} : i64")
        first = self.op(f"llvm.getelementptr {part}[{byte}] : ({SHARED}, i64) -> {SHARED}, i8", "s")
        type_ = stored(held(fold))
        return self.op(f"llvm.getelementptr {first}[{word}] : ({SHARED}, i64) -> {SHARED}, {type_}", "s")

    def leave(self, fold: Node, start: int, place: str, value: str) -> None:
        """Put a number where others find it."""
        value, where = to_memory(self.body, value, held(fold)), self.place_in(fold, start, place)
        self.line(f"llvm.store {value}, {where} : {stored(held(fold))}, {SHARED}")

    def find(self, fold: Node, start: int, place: str) -> str:
        """A number that another thread has put there."""
        where = self.place_in(fold, start, place)
        found = self.op(f"llvm.load {where} : {SHARED} -> {stored(held(fold))}", "e")
        return from_memory(self.body, found, held(fold))

    def block_totals(self, memory: Memory) -> None:
        """The warps of a team together."""
        warps, warp = self.variant.team // WARP, self.index(WARP)
        first = self.mul(self.team, self.index(warps))
        mine = self.add(first, self.div(self.lane, warp))
        names = self.names[0]

        def put() -> None:
            for f, start in memory.items():
                self.leave(f, start, mine, names[f].name)

        self.only(self.compare("eq", self.rem(self.lane, warp), self.index(0)), put)
        self.line("gpu.barrier")
        for f, start in memory.items():
            found = self.find(f, start, first)
            for w in range(1, warps):
                found = self.step(f, found, self.find(f, start, self.beside(first, w)))
            names[f] = Value(found)

    def column_totals(self, memory: Memory) -> None:
        """The threads that share columns together; a lane is a column."""
        v = self.variant
        for lane in range(v.lanes):
            row = self.add(self.lane, self.index(lane * v.team))
            place = self.add(self.mul(row, self.index(v.across)), self.team)
            for f, start in memory.items():
                self.leave(f, start, place, self.now(("fold", f, lane)))
        self.line("gpu.barrier")
        for lane in range(v.lanes):
            first = self.beside(self.team, lane * v.threads)
            for f, start in memory.items():
                self.hold(("fold", f, lane), self.find(f, start, first), self.body.type(held(f)))

        def turn(other: str) -> None:
            by = self.add(self.mul(other, self.index(v.across)), self.team)
            for lane in range(v.lanes):
                for f, start in memory.items():
                    key = "fold", f, lane
                    found = self.find(f, start, self.beside(by, lane * v.threads))
                    self.hold(key, self.step(f, self.now(key), found), self.body.type(held(f)))

        self.repeat(self.index(1), self.index(v.team), 1, turn)
