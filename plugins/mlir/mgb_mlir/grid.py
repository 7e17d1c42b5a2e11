"""From a graph to the threads of a grid: the level ``gpu``, in the dialects ``gpu``, ``scf`` and ``arith``.

A group without reductions: each thread takes elements of the domain, as far apart as the grid has threads.
With reductions: each block takes rows, as far apart as there are blocks, and its threads the elements of a
row, as far apart as the block has threads. What they have folded meets in each warp by shuffles, then in
shared memory, in an order that depends on the number of threads alone; each thread knows the totals then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mgb.codegen import Pass
from mgb.ir import Node
from mgb_native.folds import held

from .body import Body, element, stored
from .builder import SCALAR
from .casts import from_memory, to_memory
from .lanes import Loops, Names, Nodes, Value
from .signature import Operand, Signature, length
from .words import fold_step, nothing

#: The names of the function and of its module.
SYMBOL, MODULE = "kernel", "group"

#: The threads of a warp; those of a block at most. A block that folds has whole warps.
WARP, THREADS = 32, 256

#: The warps of a block at most.
PLACES = THREADS // WARP

_WHERE = ("thread_id", "block_id", "block_dim", "grid_dim")


class Grid(Loops):
    """The kernel of one group, as each thread runs it.

    Parameters
    ----------
    signature : Signature
    """

    def __init__(self, signature: Signature) -> None:
        super().__init__(0)
        self.signature = signature
        self.body = Body(self, SCALAR)
        self.names: Names = {}
        self.shared: dict[Node, str] = {}
        self.depth = 2
        self.thread, self.block, self.threads, self.blocks = (self.op(f"gpu.{p} x", p) for p in _WHERE)

    def text(self) -> str:
        """The module."""
        self.extents()
        (self.elements if self.signature.flat else self.rows)()
        arguments = ", ".join(f"%{name}: {type_}" for name, type_ in self.signature.parameters)
        shared = ", ".join(f"{name}: {_shared(f)}" for f, name in self.shared.items())
        memory = f" workgroup({shared})" if shared else ""
        # Of few threads a block may have all registers: fewer blocks at a time are better than a spill.
        bound = f"attributes {{nvvm.maxntid = array<i32: {THREADS}>, nvvm.minctasm = 1 : i32}}"
        head = f"  gpu.func @{SYMBOL}({arguments}){memory} kernel {bound} {{"
        lines = [head, *(f"  {line}" for line in self.head()), *self.lines, "    gpu.return", "  }"]
        return "\n".join([f"module {{\ngpu.module @{MODULE} {{", *lines, "}\n}", ""])

    # places

    def count(self, axes: Sequence[int]) -> str:
        """How many places there are along `axes`."""
        total = self.index(1)
        for a in axes:
            total = self.mul(total, f"%{length(a)}")
        return total

    def places(self, index: str, axes: Sequence[int]) -> dict[int, str]:
        """Split a row-major `index` into its places along `axes`."""
        found = {}
        for a in reversed(axes[1:]):
            found[a] = self.rem(index, f"%{length(a)}")
            index = self.div(index, f"%{length(a)}")
        return {**found, axes[0]: index} if axes else {}

    def moved(self, start: str, o: Operand, places: dict[int, str]) -> str:
        """`start`, an offset into `o`, moved to `places`."""
        for a in o.axes:
            if a in places:
                start = self.add(start, self.mul(places[a], f"%{o.stride(a)}"))
        return start

    # memory

    def pointer(self, o: Operand, offset: str) -> str:
        """The address `offset` bytes into an array."""
        word = self.op(f"arith.index_cast {offset} : index to i64")
        return self.op(f"llvm.getelementptr %{o.name}[{word}] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8", "p")

    def read(self, o: Operand, offset: str) -> Value:
        """The element of an operand at `offset`."""
        if o.is_iota:
            return self.iota(o.dtype, offset, self.index(0), True, SCALAR)
        found = self.op(f"llvm.load {self.pointer(o, offset)} : !llvm.ptr<1> -> {stored(o.dtype)}", "e")
        return Value(from_memory(self.body, found, o.dtype))

    def write(self, node: Node, names: Names, offsets: dict[Operand, str]) -> None:
        """Write a value to each output that it is."""
        for o in self.signature.outputs_of(node):
            value = to_memory(self.body, self.value(node, names, SCALAR), o.dtype)
            pointer = self.pointer(o, offsets[o])
            self.line(f"llvm.store {value}, {pointer} : {stored(o.dtype)}, !llvm.ptr<1>")

    # loops

    def extents(self) -> None:
        """The lengths that reductions fold, as numbers."""
        span = self.signature.span
        for node in self.signature.graph.nodes:
            if node.op.name == "extent":
                folds = span[node] != span[node.inputs[0]]
                count = self.count(self.signature.schedule.reduced if folds else ())
                whole = self.op(f"arith.index_cast {count} : index to i64")
                self.names[node] = Value(self.op(f"arith.sitofp {whole} : i64 to {element(held(node))}", "n"))

    def elements(self) -> None:
        """A group without reductions."""
        first = self.add(self.mul(self.block, self.threads), self.thread)
        starts = dict.fromkeys(self.signature.operands, self.index(0))
        (part,) = self.signature.schedule.passes
        self.walk(part, starts, first, self.mul(self.blocks, self.threads))

    def rows(self) -> None:
        """A group with reductions."""
        count, warp = self.count(self.signature.kept), self.index(WARP)
        self.lane, self.warp = self.rem(self.thread, warp), self.div(self.thread, warp)
        self.warps = self.div(self.threads, warp)
        self.place = self.least(self.lane, self.index(PLACES - 1))
        self.loop(self.block, count, self.blocks, [], self.row, "row")

    def row(self, row: str, _: list[str]) -> None:
        """One row, by the threads of a block."""
        s, plan, everywhere = self.signature, self.signature.schedule, self.names
        places = self.places(row, s.kept)
        starts = {o: self.moved(self.index(0), o, places) for o in s.operands}
        self.names = dict(everywhere)
        for node in plan.row_reads:
            self.names[node] = self.read(s.source_of[node], starts[s.source_of[node]])
        self.compute(plan.before, self.names, SCALAR)
        for part in plan.passes:
            totals = self.walk(part, starts, self.thread, self.threads)
            self.meet(part.folds, totals)
            self.compute(part.after, self.names, SCALAR)
        if plan.row_stores:
            first = self.compare("eq", self.thread, self.index(0))
            self.when(first, lambda: self.store_row(plan.row_stores, starts))
        self.names = everywhere

    def store_row(self, nodes: Iterable[Node], starts: dict[Operand, str]) -> None:
        """Write the outputs of which a row has one element."""
        for node in nodes:
            self.write(node, self.names, starts)

    def walk(self, part: Pass, starts: dict[Operand, str], first: str, step: str) -> list[str]:
        """A pass of one thread over its elements of a row; returns what it folds."""
        s = self.signature
        carried = [(nothing(self.body, f, held(f)), element(held(f))) for f in part.folds]

        def turn(index: str, totals: list[str]) -> list[str]:
            places, names = self.places(index, s.folded), dict(self.names)
            offsets = {o: self.moved(starts[o], o, places) for o in s.operands if _is_used(o, part)}
            for node in part.reads:
                names[node] = self.read(s.source_of[node], offsets[s.source_of[node]])
            self.compute(part.computes, names, SCALAR)
            for node in part.stores:
                self.write(node, names, offsets)
            values = [self.value(f.inputs[0], names, SCALAR) for f in part.folds]
            found = zip(part.folds, totals, values, strict=True)
            return [fold_step(self.body, f, total, value, held(f)) for f, total, value in found]

        return self.loop(first, self.count(s.folded), step, carried, turn)

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
            found = self.select(there, found, nothing(self.body, f, held(f)), element(held(f)))
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


def _is_used(o: Operand, part: Pass) -> bool:
    return o.node in (part.stores if o.is_output else part.reads)


def _shared(fold: Node) -> str:
    """The type of the shared memory in which a fold meets: a place for each warp."""
    return f"memref<{PLACES}x{stored(held(fold))}, #gpu.address_space<workgroup>>"
