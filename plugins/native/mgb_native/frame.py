"""What a kernel and its launcher agree on: the operands, the buffers, and the slots of the launch plan.

A kernel knows the pattern of its shapes, never a size. Every size, stride and offset stands in a *plan*, an
array of int64 that `launch` fills for each new set of shapes and strides and the kernel reads by `slot`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from mgb.codegen import EXTENT, IOTA, Schedule, is_operand, schedule, spans
from mgb.forking import cached_property
from mgb.ir import CONST, Graph, Node

#: The work of one call of a kernel: stages, rows, chunks of the row; and where its buffers are.
SPAN = ("first", "last", "row0", "row1", "chunk0", "chunk1", "own", "shared")

#: The head of the plan. A row is cut in `units`: a piece of the inner loop at one place of the outer folded
#: loops. `group` units make a chunk, whose partial sums do not depend on who computes it. Rows of transposed
#: inputs are laid out `tile` at a time, `pitch` elements apart; `tile` is 0 where there are none. Before a
#: short row is read, memory is asked for the row `ahead` rows later; `ahead` is 0 where that is of no use.
#: Where `next` is not 0, each unit of a later pass asks memory for the same unit of the next row. `short` is
#: not 0 where each row is one unit, whose elements lie side by side.
HEAD = (
    "n", "piece", "pieces", "group", "units", "chunks", "extent", "stream", "tile", "pitch", "ahead", "next",
    "short",
)  # fmt: skip


#: How many ops an op is worth.
COST = {"div": 8, "sqrt": 8, "floor_div": 120, "mod": 120}


@cache
def _itemsize(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


@dataclass(frozen=True, slots=True)
class Operand:
    """An array that a kernel reads or writes, or an ``iota``, whose elements are their own addresses."""

    name: str
    node: Node
    moves: bool  # whether it varies along the innermost axis
    at: int  # its slots in the plan: the stride of the inner loop, of the kept loops, of the folded loops

    @property
    def is_iota(self) -> bool:
        return self.node.op is IOTA

    @property
    def is_output(self) -> bool:
        return self.name.startswith("y")

    @property
    def itemsize(self) -> int:
        return 1 if self.is_iota else self.node.spec.dtype.itemsize

    @property
    def dtype(self) -> str:
        return self.node.spec.dtype.name


@dataclass(frozen=True, slots=True)
class Buffer:
    """Scratch memory of a kernel.

    Attributes
    ----------
    name : str
    dtype : str
    size : str
        How many elements, in the words of the plan: ``"piece"``, ``"chunks"``, ``"chunks *
        piece"`` or ``"units * piece"``.
    shared : bool
        Whether all threads that work on one row share it.
    node : Node
        The value it holds.
    """

    name: str
    dtype: str
    size: str
    shared: bool
    node: Node

    @property
    def itemsize(self) -> int:
        return _itemsize(self.dtype)


class Frame:
    """The operands and buffers of one graph's kernel.

    Attributes
    ----------
    schedule : Schedule
    columns : bool
        Whether the innermost axis is kept: then the lanes of a loop are neighbouring rows. Otherwise they
        run along the row.
    flat : bool
        There are no reductions: the whole domain is one row that folds nothing.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.schedule: Schedule = schedule(graph)
        self.span = spans(graph)
        self.ndim = len(self.schedule.shape)
        long = [a for a, d in enumerate(self.schedule.shape) if d != 1]
        self.flat = not self.schedule.reduced
        self.columns = bool(long) and not self.flat and long[-1] not in self.schedule.reduced
        self.inner = long[-1] if long else None
        self.folded_axes = tuple(range(self.ndim)) if self.flat else self.schedule.reduced
        self.operands = self._operands()
        self.buffers = self._buffers()

    def _operands(self) -> tuple[Operand, ...]:
        leaves = [v for v in self.graph.nodes if is_operand(v)]
        consts = [v for v in leaves if v.op is CONST]
        named = [(f"x{i}", v) for i, v in enumerate((*self.graph.inputs, *consts))]
        named += [(f"y{i}", v) for i, v in enumerate(self.graph.outputs)]
        named += [(f"i{i}", v) for i, v in enumerate(v for v in leaves if v.op is not CONST)]
        loops = sum(self.loops.values())
        width, start = 1 + loops, len(HEAD) + loops
        return tuple(
            Operand(name, v, self.inner is not None and self.span[v][self.inner], start + i * width)
            for i, (name, v) in enumerate(named)
        )

    @cached_property
    def stages(self) -> int:
        """The passes, and when the last one folds a stage after it, in which its totals are used."""
        passes = self.schedule.passes
        return len(passes) + bool(passes[-1].folds)

    @property
    def has_rows(self) -> bool:
        """Whether there are rows, with lanes along them, that fold something."""
        return not self.flat and not self.columns and self.loops["kept"] > 0

    @cached_property
    def itemsizes(self) -> tuple[int, ...]:
        """Bytes of an element of each operand that lies in memory; 0 for an ``iota``."""
        return tuple(0 if o.is_iota else o.itemsize for o in self.operands)

    @cached_property
    def rooms(self) -> tuple[tuple[str, bool, str, int], ...]:
        """Of each buffer the kind, whether it is shared, how many elements it has, and bytes of one."""
        return tuple((b.name[0], b.shared, b.size, b.itemsize) for b in self.buffers)

    @cached_property
    def work(self) -> int:
        """Bytes that the ops compute for an element, each by what it is worth."""
        done = (v for p in self.schedule.passes for v in (*p.computes, *p.folds))
        return sum(COST.get(v.op.name, 1) * v.spec.dtype.itemsize for v in done)

    @cached_property
    def arrays(self) -> tuple[Operand, ...]:
        """The operands that a call passes: inputs, constants, outputs."""
        return tuple(o for o in self.operands if not o.is_iota)

    @cached_property
    def constants(self) -> tuple[Node, ...]:
        """The constants that a call passes."""
        return tuple(o.node for o in self.arrays[len(self.graph.inputs) :] if not o.is_output)

    @cached_property
    def source_of(self) -> dict[Node, Operand]:
        """The operand that each leaf is loaded from."""
        return {o.node: o for o in reversed(self.operands) if not o.is_output}

    @cached_property
    def outer(self) -> dict[str, tuple[int, ...]]:
        """The axes of the kept and of the folded loops around the innermost one."""
        axes = [a for a, d in enumerate(self.schedule.shape) if d != 1 and a != self.inner]
        folded = tuple(a for a in axes if a in self.folded_axes)
        return {"kept": tuple(a for a in axes if a not in folded), "folded": folded}

    @cached_property
    def loops(self) -> dict[str, int]:
        """How many kept and how many folded loops there are around the innermost one.

        Where the lanes run along the row, one of the folded loops is over the pieces of the inner axis.
        """
        return {"kept": len(self.outer["kept"]), "folded": len(self.outer["folded"]) + (not self.columns)}

    @property
    def lengths_at(self) -> dict[str, int]:
        """The first slot of the lengths of the kept and of the folded loops, innermost first."""
        return {"kept": len(HEAD), "folded": len(HEAD) + self.loops["kept"]}

    def strides_at(self, o: Operand, kind: str) -> range:
        """The slots of an operand's strides along the loops of a kind; none when they are all 0."""
        first = o.at + 1 + (0 if kind == "kept" else self.loops["kept"])
        varies = any(self.span[o.node][a] for a in self.outer[kind])
        pieces = kind == "folded" and o.moves and not self.columns
        return range(first, first + self.loops[kind] * (varies or pieces))

    @property
    def starts_at(self) -> range:
        """The slots of how far the folded loops go along the inner axis, where they do."""
        loops = sum(self.loops.values())
        first = len(HEAD) + loops + len(self.operands) * (1 + loops)
        return range(first, first + self.loops["folded"])

    @cached_property
    def tiled(self) -> dict[Operand, int]:
        """The inputs that may be laid out in tiles: the slot of the distance of an element from the next in
        the row, 0 for one that is not.
        """
        if self.columns or self.flat or not self.loops["kept"]:
            return {}
        found = [o for o in self.operands if o.moves and not o.is_output and not o.is_iota]
        found = [o for o in found if self.strides_at(o, "kept")]
        return {o: self.starts_at.stop + i for i, o in enumerate(found)}

    def asked(self, k: int) -> list[Operand]:
        """The inputs of the first pass whose next row pass `k` asks memory for.

        Of the later passes that read an input it is the one that computes most, so that memory has time.
        """
        passes = self.schedule.passes
        found = []
        for o in self.tiled:
            first, *later = [i for i, part in enumerate(passes) if o.node in part.reads] or [k]
            if first == 0 and k == max(later, key=lambda i: len(passes[i].computes), default=0) > 0:
                found.append(o)
        return found

    @property
    def buffers_at(self) -> int:
        """The first slot of the buffers' offsets."""
        return self.starts_at.stop + len(self.tiled)

    def _buffers(self) -> tuple[Buffer, ...]:
        folds = [f for p in self.schedule.passes for f in p.folds]
        keeps = [v for p in self.schedule.passes for v in p.keeps]
        found = [_buffer(f"k{i}", v, "units * piece", True) for i, v in enumerate(keeps)]
        if self.columns:
            found += [_buffer(f"p{i}", f, "chunks * piece", True) for i, f in enumerate(folds)]
            found += [_buffer(f"t{i}", f, "piece", False) for i, f in enumerate(folds)]
            found += [_buffer(f"r{i}", v, "piece", False) for i, v in enumerate(self._row_values())]
        else:
            found += [_buffer(f"p{i}", f, "chunks", True) for i, f in enumerate(folds)]
        moving = [o for o in self.operands if o.moves and not o.is_iota]
        sides = {False: "g", True: "s"}  # what is gathered, what is streamed
        return (*found, *(_buffer(f"{sides[o.is_output]}{o.name}", o.node, "piece", False) for o in moving))

    def _row_values(self) -> list[Node]:
        rows = (*self.schedule.before, *(v for p in self.schedule.passes for v in p.after))
        return [v for v in rows if v.op is not CONST and v.op is not EXTENT]

    def buffer(self, prefix: str, node: Node) -> Buffer:
        """The buffer of `node` whose name begins with `prefix`."""
        return next(b for b in self.buffers if b.node is node and b.name.startswith(prefix))


def _buffer(name: str, node: Node, size: str, shared: bool) -> Buffer:
    return Buffer(name, node.spec.dtype.name, size, shared, node)
