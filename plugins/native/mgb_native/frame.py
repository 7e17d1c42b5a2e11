"""The interface of a kernel and its launcher: the operands, the buffers, and the slots of the launch plan.

A kernel knows the pattern of its shapes, never a size. Every size, stride and offset stands in a *plan*, an
array of int64 that `launch` fills for each new set of shapes and strides and the kernel reads by `slot`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from mgb import codegen
from mgb.codegen import (
    DOT,
    EXTENT,
    alongs,
    is_scatter,
    is_sequential,
    is_whole,
    reached,
    schedule,
    tables,
    varying,
)
from mgb.ir import CONST, Graph, Kind, Node, Spec, input_node
from mgb.ir.sizes import same_shape
from mgb.runtime.forking import cached_property

from .folds import parts
from .slots import HEAD, Buffer, Operand

#: How many ops an op is worth.
COST = {
    "div": 8, "sqrt": 8, "quotient": 60, "fmod_float": 100, "fmod_double": 100, "look_up": 8,
    "decayed_sum": 8, "logcumsumexp": 60,
}  # fmt: skip


def cost_of(node: Node) -> int:
    """Return how many ops an op is worth."""
    if is_sequential(node):
        return sum(map(cost_of, node.params["body"].graph.nodes))
    return COST.get(node.op.name, 1)


#: Bytes that an element is worth which is folded into any place of a table.
APART = 600

#: What a kernel that looks up tells of an index that is out of range: the length of the axis, 0 if there is
#: none; the index; the axis.
REFUSED = Spec((3,), np.dtype("int64"))


class Frame(codegen.Frame[Operand]):
    """The operands and buffers of one graph's kernel."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph, schedule(graph))
        loops = sum(self.loops.values())
        width, start = 1 + loops, len(HEAD) + loops
        self.refused = input_node(REFUSED) if self.reaching else None
        self.tables = tables(graph)
        self.operands = tuple(
            Operand(name, v, self.inner is not None and self.varies(name, v)[self.inner], start + i * width)
            for i, (name, v) in enumerate(self.named())
        )
        self.buffers = self._buffers()

    def named(self) -> Iterator[tuple[str, Node]]:
        yield from super().named()
        if self.refused is not None:
            yield f"y{len(self.graph.outputs)}", self.refused
        yield from ((f"l{i}", v) for i, v in enumerate((*self.look_ups, *self.dots)))
        yield from ((f"m{i}", v) for i, v in enumerate(self.dots))

    def varies(self, name: str, node: Node) -> tuple[bool, ...]:
        """Return the axes of the domain along which an operand varies."""
        if node is self.refused:
            return (False,) * self.ndim
        apart = name[0] in "lm" or is_scatter(node)
        return varying(reached(node, int(name[0] == "m")), self.ndim) if apart else self.span[node]

    @cached_property
    def scans(self) -> dict[Node, None]:
        """The scans that fold anything."""
        return dict.fromkeys((*(v for part in self.schedule.passes for v in part.totals), *self.whole))

    @cached_property
    def whole(self) -> tuple[Node, ...]:
        """Those whose rows are one chunk."""
        return tuple(filter(is_whole, self.graph.nodes))

    @property
    def sequential(self) -> bool:
        """Return whether elements are found one after the other."""
        return any(map(is_sequential, self.whole))

    @property
    def reverse(self) -> bool:
        """Return whether scans begin with the last element."""
        return any(v.params.get("reverse") for v in self.whole)

    @cached_property
    def look_ups(self) -> tuple[Node, ...]:
        return tuple(n for n in self.graph.nodes if n.op.kind is Kind.GATHER and n.op.name != DOT)

    @cached_property
    def near(self) -> frozenset[Node]:
        """The look-ups of neighbours that lie anywhere, by indices of 32 bits or fewer."""
        found = (n for n in self.look_ups if all(i.spec.dtype.itemsize <= 4 for i in n.inputs[1:]))
        return frozenset(n for n in found if self.scatters(n))

    @cached_property
    def dots(self) -> tuple[Node, ...]:
        return tuple(n for n in self.graph.nodes if n.op.name == DOT)

    @cached_property
    def source_of(self) -> dict[Node, Operand]:
        return {v: o for v, o in super().source_of.items() if not o.is_table}

    @cached_property
    def sinks(self) -> tuple[Node, ...]:
        """The outputs that elements are folded into where values say."""
        return tuple(n for part in self.schedule.passes for n in part.scatters)

    @cached_property
    def together(self) -> dict[Node, tuple[Node, ...]]:
        """For each sink those whose elements belong to the same places, itself among them.

        They share a table, in which each place has a number for each of them.
        """
        found: list[list[Node]] = []
        for part in self.schedule.passes:
            own: list[list[Node]] = []
            for v in part.scatters:
                mates = [] if self.columns else [m for m in own if _is_like(m[0], v)]
                if mates:
                    mates[0].append(v)
                else:
                    own.append([v])
            found += own
        return {v: tuple(mates) for mates in found for v in mates}

    @cached_property
    def reaching(self) -> tuple[Node, ...]:
        """The nodes with indices: look-ups and sinks."""
        return (*self.look_ups, *self.sinks)

    @cached_property
    def tables_of(self) -> dict[Node, tuple[Operand, ...]]:
        """The tables that each look-up and dot goes through."""
        found = [o for o in self.operands if o.is_table]
        return {n: tuple(o for o in found if o.node is n) for n in (*self.look_ups, *self.dots)}

    @cached_property
    def laid(self) -> tuple[Operand, ...]:
        """The tables whose elements are the lanes of dots: they have to lie side by side."""
        return tuple(o for n in self.dots for o in self.tables_of[n] if o.moves)

    @cached_property
    def lined(self) -> tuple[Operand, ...]:
        """The inputs whose elements are copied side by side where they lie apart."""
        inputs = (o for o in self.operands if o.moves and not (o.is_iota or o.is_output))
        return tuple(o for o in inputs if o not in self.laid)

    def scatters(self, node: Node) -> bool:
        """Return whether neighbours in the innermost loop lie anywhere in the table of `node`."""
        if node in self.sinks and not (self.columns and all(map(self.is_full, node.inputs[1:]))):
            return True
        return self.inner is not None and any(self.span[i][self.inner] for i in node.inputs[1:])

    def is_full(self, node: Node) -> bool:
        """Return whether there is a value for each element of a row."""
        return self.flat or any(self.span[node][a] for a in self.schedule.reduced)

    @cached_property
    def arrays(self) -> tuple[Operand, ...]:
        return tuple(o for o in self.operands if o.is_array)

    @property
    def has_rows(self) -> bool:
        """Return whether there are rows, with lanes along them, that fold something."""
        return not (self.flat or self.columns or self.sinks) and self.loops["kept"] > 0

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
        done = [v for p in self.schedule.passes for v in (*p.computes, *p.folds, *p.totals)]
        cost = sum(cost_of(v) * v.spec.dtype.itemsize for v in done)
        return cost + sum(APART if self.scatters(v) else v.spec.dtype.itemsize for v in self.sinks)

    @cached_property
    def kept(self) -> frozenset[Node]:
        """The values that are wanted beside the loop that computes them."""
        passes = self.schedule.passes
        folded = (v for p in passes for v in (*p.folds, *p.totals, *p.ends))
        kept = (v for p in passes for v in p.keeps)
        return frozenset((*self.graph.outputs, *folded, *kept, *self.row_values))

    @cached_property
    def outer(self) -> dict[str, tuple[int, ...]]:
        """The axes of the kept and of the folded loops around the innermost one."""
        axes = [a for a, d in enumerate(self.schedule.shape) if d != 1 and a != self.inner]
        folded = tuple(a for a in axes if a in self.folded_axes)
        return {"kept": tuple(a for a in axes if a not in folded), "folded": folded}

    @cached_property
    def loops(self) -> dict[str, int]:
        """Return how many kept and how many folded loops there are around the innermost one.

        Where the lanes run along the row, one of the folded loops is over the pieces of the inner axis.
        """
        return {"kept": len(self.outer["kept"]), "folded": len(self.outer["folded"]) + (not self.columns)}

    @cached_property
    def lengths_at(self) -> dict[str, int]:
        """The first slot of the lengths of the kept and of the folded loops, innermost first."""
        return {"kept": len(HEAD), "folded": len(HEAD) + self.loops["kept"]}

    def strides_at(self, o: Operand, kind: str) -> range:
        """Return the slots of an operand's strides along the loops of a kind; none when they are all 0."""
        first = o.at + 1 + (0 if kind == "kept" else self.loops["kept"])
        varies = any(self.varies(o.name, o.node)[a] for a in self.outer[kind])
        pieces = kind == "folded" and o.moves and not self.columns
        return range(first, first + self.loops[kind] * (varies or pieces))

    @cached_property
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
        around = "folded" if self.flat else "kept"  # the pieces are one of the folded loops
        if self.columns or self.loops[around] <= self.flat:
            return {}
        found = [o for o in self.operands if o.moves and not o.is_output and o.is_array]
        found = [o for o in found if self.strides_at(o, around)]
        return {o: self.indexed_at.stop + i for i, o in enumerate(found)}

    def asked(self, k: int) -> list[Operand]:
        """Return the inputs of the first pass whose next row pass `k` asks memory for.

        Of the later passes that read an input it is the one that computes most, so that memory has time.
        """
        passes = self.schedule.passes
        found = []
        for o in self.tiled:
            first, *later = [i for i, part in enumerate(passes) if o.node in part.reads] or [k]
            if first == 0 and k == max(later, key=lambda i: len(passes[i].computes), default=0) > 0:
                found.append(o)
        return found

    @cached_property
    def buffers_at(self) -> int:
        """The first slot of the buffers' offsets."""
        return self.indexed_at.stop + len(self.tiled)

    @cached_property
    def indexed_at(self) -> range:
        """The slots of lengths and strides along the axes of tables that indices reach; of the places of each
        sink; and of the strides along such axes of the outputs that they are.
        """
        count = 2 * len(self.indexed) + len(self.sinks) + len(self.placed)
        return range(self.starts_at.stop, self.starts_at.stop + count)

    @cached_property
    def indexed(self) -> tuple[tuple[Node, int, int], ...]:
        """Each dot, look-up and sink, which table of it, and each axis that is summed or an index reaches."""
        tables = [(n, k, along) for n in (*self.dots, *self.reaching) for k, along in enumerate(alongs(n))]
        return tuple((n, k, a) for n, k, along in tables for a, at in enumerate(along) if at is None)

    @property
    def placed(self) -> tuple[tuple[Node, int], ...]:
        """Those of sinks."""
        return tuple((n, a) for n, _, a in self.indexed if n in self.sinks)

    def axis_at(self, node: Node, axis: int, side: int = 0) -> int:
        """Return the slot of the length along such an axis; the stride follows."""
        return self.indexed_at[2 * self.indexed.index((node, side, axis))]

    def places_at(self, sink: Node) -> int:
        """Return the slot of how many places a sink has that indices reach."""
        return self.indexed_at[2 * len(self.indexed) + self.sinks.index(sink)]

    def placed_at(self, sink: Node, axis: int) -> int:
        """Return the slot of an output's stride along an axis that an index reaches."""
        return self.indexed_at[2 * len(self.indexed) + len(self.sinks) + self.placed.index((sink, axis))]

    def _buffers(self) -> tuple[Buffer, ...]:
        folds = [f for p in self.schedule.passes for f in p.folds]
        scans = [f for f in self.scans for _ in range(parts(f))]
        keeps = [v for p in self.schedule.passes for v in p.keeps]
        found = [_buffer(f"k{i}", v, "units * piece", True) for i, v in enumerate(keeps)]
        if self.columns:
            found += [_buffer(f"p{i}", f, "chunks * piece", True) for i, f in enumerate((*folds, *scans))]
            found += [_buffer(f"{c}{i}", f, "piece", False) for c in "cb" for i, f in enumerate(scans)]
            found += [_buffer(f"t{i}", f, "piece", False) for i, f in enumerate(folds)]
            found += [_buffer(f"r{i}", v, "piece", False) for i, v in enumerate(self.row_values)]
        else:
            found += [_buffer(f"p{i}", f, "chunks", True) for i, f in enumerate((*folds, *scans))]
        first = {v for v, (leader, *_) in self.together.items() if v is leader}
        found += [_buffer(f"z{i}", v, f"table {i}", True) for i, v in enumerate(self.sinks) if v in first]
        for i, v in enumerate(v for v in self.sinks if self.scatters(v)):
            found.append(_buffer(f"v{i}", v, "piece", False))
            found += [Buffer(f"w{i}", "int64", "piece", False, v)] if v in first else []
        for i, o in enumerate(self.laid):
            found += [Buffer(f"d{o.name}", o.dtype, f"lines {i}", False, o.node)]
        for o in (*self.laid, *self.lined):
            found.append(Buffer(f"e{o.name}", "int64", "note", False, o.node))
        written = [o for o in self.operands if o.moves and o.is_output]
        found += [_buffer(f"g{o.name}", o.node, "piece", False) for o in self.lined]
        return (*found, *(_buffer(f"s{o.name}", o.node, "piece", False) for o in written))

    @cached_property
    def row_values(self) -> list[Node]:
        """The values of which a row has one, or one in each column."""
        rows = (*self.schedule.before, *(v for p in self.schedule.passes for v in p.after))
        return [v for v in rows if v.op is not CONST and v.op is not EXTENT]

    def buffer(self, prefix: str, node: Node) -> Buffer:
        """Return the buffer of `node` whose name begins with `prefix`."""
        return next(b for b in self.buffers if b.node is node and b.name.startswith(prefix))

    def buffers_of(self, prefix: str, scan: Node) -> list[Buffer]:
        """Return those of the numbers that a scan carries."""
        return [b for b in self.buffers if b.node is scan and b.name.startswith(prefix)]


def _is_like(one: Node, other: Node) -> bool:
    """Return whether the elements of two sinks belong to the same places, and are as wide."""
    same = one.inputs[1:] == other.inputs[1:] and one.params["along"] == other.params["along"]
    shapes = one.params["shape"], other.params["shape"]
    return same and same_shape(*shapes) and one.spec.dtype.itemsize == other.spec.dtype.itemsize


def _buffer(name: str, node: Node, size: str, shared: bool) -> Buffer:
    return Buffer(name, node.spec.dtype.name, size, shared, node)
