"""From a graph to the threads of a grid: the level ``gpu``, in the dialects ``gpu``, ``scf`` and ``arith``.

A group without reductions: each thread takes elements of the domain, as far apart as the grid has threads.
With reductions: each block takes rows, as far apart as there are blocks, and its threads the elements of a
row, as far apart as the block has threads. What they have folded meets in each warp by shuffles, then in
shared memory, in an order that depends on the number of threads alone; each thread knows the totals then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mgb.codegen import EXTENT, Pass
from mgb.ir import Node
from mgb_cuda.frame import Frame, Operand
from mgb_cuda.packing import Packing
from mgb_cuda.pattern import Choice, Pattern, numbers
from mgb_cuda.steps import Steps
from mgb_native.folds import held
from mgb_native.nest import SCALAR
from mgb_native.nest.body import Body, element, stored
from mgb_native.nest.casts import from_memory, to_memory
from mgb_native.nest.lanes import Loops, Names, Nodes, Value
from mgb_native.nest.words import fold_step, nothing

from .builder import MlirBuilder

#: The names of the function and of its module.
SYMBOL, MODULE = "kernel", "group"

#: The threads of a warp; those of a block at most. A block that folds has whole warps.
WARP, THREADS = 32, 256

#: The warps of a block at most.
PLACES = THREADS // WARP

#: A launch has no more blocks than this.
MOST_BLOCKS = (1 << 31) - 1

_WHERE = ("thread_id", "block_id", "block_dim", "grid_dim")

#: Where a class of operands is, in elements from the first.
Places = dict[int, str]


@dataclass(frozen=True)
class Layout(Pattern):
    """How the operands of a call step through memory, and the threads of a block.

    Every number is of 64 bits and a parameter of its own.
    """

    threads: int = THREADS

    def packing(self, frame: Frame) -> Packing:
        return Packing(len(self.pointers(frame)), self.numbers, apart=True)

    def parameters(self, frame: Frame) -> tuple[tuple[str, str], ...]:
        """(name, MLIR's type) of what the kernel is passed."""
        words = ((name, "index") for _, name in self.numbers)
        return (*((name, "!llvm.ptr<1>") for name in self.pointers(frame)), *words)


def choose(frame: Frame, steps: Steps) -> Choice:
    """The kernel for a call: a thread for each element, or a block for each row."""
    count, threads = -(-steps.length // THREADS), THREADS
    if not frame.flat:
        count, threads = steps.rows, max(WARP, min(THREADS, -(-steps.length // WARP) * WARP))
    layout = Layout(True, steps.loops.folded, steps.letters, steps.class_of, threads)
    return Choice(layout, numbers(steps, steps.length, 1), min(count, MOST_BLOCKS), 1)


class Grid(Loops, MlirBuilder):
    """The kernel of one group, as each thread runs it.

    Parameters
    ----------
    frame : Frame
    layout : Layout
    """

    def __init__(self, frame: Frame, layout: Layout) -> None:
        super().__init__(0)
        self.frame, self.layout = frame, layout
        self.body = Body(self, SCALAR)
        self.names: Names = {}
        self.shared: dict[Node, str] = {}
        self.depth = 2
        self.thread, self.block, self.threads, self.blocks = (self.op(f"gpu.{p} x", p) for p in _WHERE)
        self.class_of = dict(zip(frame.operands, layout.class_of, strict=True))

    def text(self) -> str:
        """The module."""
        self.extents()
        (self.elements if self.frame.flat else self.rows)()
        arguments = ", ".join(f"%{name}: {type_}" for name, type_ in self.layout.parameters(self.frame))
        shared = ", ".join(f"{name}: {_shared(f)}" for f, name in self.shared.items())
        memory = f" workgroup({shared})" if shared else ""
        # Of few threads a block may have all registers: fewer blocks at a time are better than a spill.
        bound = f"attributes {{nvvm.maxntid = array<i32: {THREADS}>, nvvm.minctasm = 1 : i32}}"
        head = f"  gpu.func @{SYMBOL}({arguments}){memory} kernel {bound} {{"
        lines = [head, *(f"  {line}" for line in self.head()), *self.lines, "    gpu.return", "  }"]
        return "\n".join([f"module {{\ngpu.module @{MODULE} {{", *lines, "}\n}", ""])

    # places

    def places(self, index: str, loops: Sequence[int]) -> dict[int, str]:
        """Split a row-major `index` into its places along `loops`."""
        found = {}
        for j in reversed(loops[1:]):
            found[j] = self.rem(index, f"%n{j}")
            index = self.div(index, f"%n{j}")
        return {**found, loops[0]: index} if loops else {}

    def moved(self, start: Places, places: dict[int, str]) -> Places:
        """Where each class is at `places`, begun from `start`."""
        found = dict(start)
        for c, letters in enumerate(self.layout.classes):
            for j, place in places.items():
                if letters[j] != "0":
                    way = place if letters[j] == "1" else self.mul(place, f"%s{c}_{j}")
                    found[c] = self.add(found[c], way)
        return found

    # memory

    def pointer(self, o: Operand, at: Places) -> str:
        """The address of the element of an array at `at`."""
        word = self.op(f"arith.index_cast {self.offset(o, at)} : index to i64")
        types = f"(!llvm.ptr<1>, i64) -> !llvm.ptr<1>, {stored(_dtype(o))}"
        return self.op(f"llvm.getelementptr %{o.name}[{word}] : {types}", "p")

    def offset(self, o: Operand, at: Places) -> str:
        """How many elements from its first one an operand is at `at`; one of one element does not move."""
        return at.get(self.class_of[o], self.index(0))

    def leaf(self, node: Node, at: Places) -> Value:
        """The element of a leaf at `at`."""
        o = self.frame.source_of[node]
        if o.is_iota:
            return self.iota(_dtype(o), self.offset(o, at), self.index(0), True, SCALAR)
        found = self.op(f"llvm.load {self.pointer(o, at)} : !llvm.ptr<1> -> {stored(_dtype(o))}", "e")
        return Value(from_memory(self.body, found, _dtype(o)))

    def write_value(self, node: Node, names: Names, at: Places) -> None:
        """Write a value to each output that it is."""
        for o in self.frame.outputs_of(node):
            value = to_memory(self.body, self.value(node, names, SCALAR), _dtype(o))
            self.line(f"llvm.store {value}, {self.pointer(o, at)} : {stored(_dtype(o))}, !llvm.ptr<1>")

    # loops

    def extents(self) -> None:
        """The lengths that reductions fold, as numbers."""
        span = self.frame.span
        for node in self.frame.graph.nodes:
            if node.op is EXTENT:
                folds = span[node] != span[node.inputs[0]]
                count = "%length" if folds else self.index(1)
                whole = self.op(f"arith.index_cast {count} : index to i64")
                self.names[node] = Value(self.op(f"arith.sitofp {whole} : i64 to {element(held(node))}", "n"))

    def elements(self) -> None:
        """A group without reductions."""
        first = self.add(self.mul(self.block, self.threads), self.thread)
        (part,) = self.frame.schedule.passes
        self.walk(part, self.start(), first, self.mul(self.blocks, self.threads))

    def start(self) -> Places:
        """Where every class begins."""
        return dict.fromkeys(range(len(self.layout.classes)), self.index(0))

    def rows(self) -> None:
        """A group with reductions."""
        warp = self.index(WARP)
        self.lane, self.warp = self.rem(self.thread, warp), self.div(self.thread, warp)
        self.warps = self.div(self.threads, warp)
        self.place = self.least(self.lane, self.index(PLACES - 1))
        self.loop(self.block, "%rows", self.blocks, [], self.row, "row")

    def row(self, row: str, _: list[str]) -> None:
        """One row, by the threads of a block."""
        plan, everywhere = self.frame.schedule, self.names
        begin = self.moved(self.start(), self.places(row, self.layout.kept_loops))
        self.names = dict(everywhere)
        for node in plan.row_reads:
            self.names[node] = self.leaf(node, begin)
        self.compute(plan.before, self.names, SCALAR)
        for part in plan.passes:
            totals = self.walk(part, begin, self.thread, self.threads)
            self.meet(part.folds, totals)
            self.compute(part.after, self.names, SCALAR)
        if plan.row_stores:
            first = self.compare("eq", self.thread, self.index(0))
            self.when(first, lambda: self.store_row(plan.row_stores, begin))
        self.names = everywhere

    def store_row(self, nodes: Iterable[Node], begin: Places) -> None:
        """Write the outputs of which a row has one element."""
        for node in nodes:
            self.write_value(node, self.names, begin)

    def walk(self, part: Pass, begin: Places, first: str, step: str) -> list[str]:
        """A pass of one thread over its elements of a row; returns what it folds."""
        carried = [(nothing(self.body, f, held(f)), self.body.type(held(f))) for f in part.folds]

        def turn(index: str, totals: list[str]) -> list[str]:
            at = self.moved(begin, self.places(index, self.layout.folded_loops))
            names = dict(self.names)
            for node in part.reads:
                names[node] = self.leaf(node, at)
            self.compute(part.computes, names, SCALAR)
            for node in part.stores:
                self.write_value(node, names, at)
            values = [self.value(f.inputs[0], names, SCALAR) for f in part.folds]
            found = zip(part.folds, totals, values, strict=True)
            return [fold_step(self.body, f, total, value, held(f)) for f, total, value in found]

        return self.loop(first, "%length", step, carried, turn)

    # the threads of a block

    def meet(self, folds: Nodes, values: Sequence[str]) -> None:
        """Fold what all threads of the block have found."""
        if not folds:
            return
        warps = [self.in_warp(f, value) for f, value in zip(folds, values, strict=True)]

        def leave() -> None:
            for f, value in zip(folds, warps, strict=True):
                name = self.shared.setdefault(f, f"%shared{len(self.shared)}")
                value = to_memory(self.body, value, held(f))
                self.line(f"memref.store {value}, {name}[{self.warp}] : {_shared(f)}")

        self.when(self.compare("eq", self.lane, self.index(0)), leave)
        self.line("gpu.barrier")
        there = self.compare("slt", self.lane, self.warps)
        for f in folds:
            found = self.op(f"memref.load {self.shared[f]}[{self.place}] : {_shared(f)}", "e")
            found = from_memory(self.body, found, held(f))
            found = self.select(there, found, nothing(self.body, f, held(f)), self.body.type(held(f)))
            self.names[f] = Value(self.in_warp(f, found))
        self.line("gpu.barrier")  # before the next ones are left there

    def in_warp(self, fold: Node, value: str) -> str:
        """Fold the values of a warp; each of its threads has the same bits then."""
        away = WARP // 2
        while away:
            other = self.shuffled(value, away, element(held(fold)))
            value = fold_step(self.body, fold, value, other, held(fold))
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


def _dtype(o: Operand) -> str:
    return o.node.spec.dtype.name


def _shared(fold: Node) -> str:
    """The type of the shared memory in which a fold meets: a place for each warp."""
    return f"memref<{PLACES}x{stored(held(fold))}, #gpu.address_space<workgroup>>"
