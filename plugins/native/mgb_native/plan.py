"""Where the work of a kernel lies in memory, for one set of shapes and strides."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from mgb.codegen import aligned, alongs, broadcast_strides, collapse, is_scatter, reach, row_major
from mgb.ir import Node

from .frame import HEAD, Frame, Operand

Array = np.ndarray[Any, Any]

#: Elements of a piece of the inner loop, of one that is gathered, of one with all of its buffers in the
#: innermost cache, and of a chunk that is summed on its own.
PIECE, GATHERED, BUFFERED, CHUNK = 1 << 14, 1 << 11, 1 << 9, 1 << 14

#: The same when an input's elements lie `FAR` bytes apart or more: few enough lines to stay in cache.
SPREAD, FAR = 1 << 6, 1 << 8

#: Rows of a tile, and the longest: a tile is in cache when it is read. The same where nothing is folded and
#: rows are cut.
TILE, TILED = 16, 1 << 14
FLAT_TILE, FLAT_TILED = 32, 1 << 8

#: Bytes from row to row up to which rows are neighbours in cache lines, and elements in a line, roughly.
NEAR, LANES = 16, 16

#: Bytes that a call reads and writes from which its outputs go past the caches, and elements of a piece then,
#: as of one that asks memory for another.
#: Of a server's last cache a guest of it has only a share.
STREAM, STREAMED = 1 << 26, 1 << 9

#: Elements of a row that is too short for the processor to run ahead of its sum, how many bytes ahead memory
#: is asked for then, and the bytes of a call from which they are not in cache.
SHORT, AHEAD, DISTANT = 1 << 9, 1 << 12, 1 << 21

#: Columns of a block, the fewest that are worth a block, and the bytes that several passes find in cache.
COLUMNS, NARROW, CACHED = 512, 64, 1 << 18

#: Columns of rows through which a block of columns goes on its own.
NARROWEST = 64

#: Rows of columns that are summed before the sums are.
GROUP = 128

#: The most tables that the elements of a row are folded into; how many elements there are at least for each
#: place of one; the fewest elements, and columns, of one; how many numbers the elements of one place take
#: turns with, where a table is in cache: the most bytes of that.
JOINED, EACH, FILLING, APART, WAYS, NEARBY = 16, 8, 1 << 14, 16, 4, 1 << 17

#: Nanoseconds of work from which several threads are worth waking.
PARALLEL = 40_000

#: Bytes of ops that a byte of a term of a dot is worth; bytes of the lines that a piece of dots goes along.
TERM, LINES = 6, 1 << 14

#: Nanoseconds that a byte of an operand, a byte of what an op computes, and an innermost loop take one
#: thread, roughly.
BYTE, OP, UNIT = 0.02, 0.002, 5


@dataclass(frozen=True, slots=True)
class Plan:
    """One kernel on one set of shapes and strides.

    Attributes
    ----------
    words : array of int64
        What the kernel reads by ``slot``.
    address : int
        Of `words`.
    rows, chunks, own, shared : int
        The number of rows, of chunks in a row, and bytes of scratch memory.
    work : float
        Nanoseconds that it takes one thread, roughly.
    """

    words: Array
    address: int
    rows: int
    chunks: int
    own: int
    shared: int
    work: float

    @property
    def parallel(self) -> bool:
        """Return whether the work is for several threads; else a call keeps the GIL."""
        return self.work >= PARALLEL


def _domain(shapes: list[tuple[int, ...]], given: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that `shapes` broadcast to; an axis where all have length 1 is as in `given`."""
    domain = list(given)
    for shape in shapes:
        for axis, length in enumerate(shape, len(given) - len(shape)):
            if length != 1:
                domain[axis] = length
    return tuple(domain)


class Planner:
    """Fills the plan for one set of shapes and strides, in bytes."""

    def __init__(self, frame: Frame, shapes: list[tuple[int, ...]], strides: list[tuple[int, ...]]) -> None:
        self.frame = frame
        self.tables = self._tables(shapes, strides)
        self.domain = _domain(self._inside(shapes), frame.schedule.shape)
        steps = [self.strides(o, i, shapes, strides) for i, o in enumerate(frame.operands)]
        self.loops = collapse(self.domain, steps, frame.folded_axes)
        inner = len(self.loops.shape) - 1
        self.kept = [a for a in range(inner - 1, -1, -1) if not self.loops.folded[a]]
        self.folded = [a for a in range(inner - 1, -1, -1) if self.loops.folded[a]]
        self.n = self.loops.shape[inner] if self.loops.shape else 1
        self._traffic = self._bytes()
        self.streams = self._traffic >= STREAM
        self.inner = [steps[-1] if steps else 0 for steps in self.loops.strides]
        self.steps = math.prod(self.loops.shape[a] for a in self.folded)
        self.tiled = self.transposed()
        self.tile = FLAT_TILE if frame.flat else TILE
        for i in self.tiled if not frame.flat else ():
            self.inner[i] = frame.operands[i].itemsize
        apart = [o for i, o in enumerate(frame.operands) if o.moves and self.inner[i] != o.itemsize]
        self.gathers, self.scatters = bool(apart), any(o.is_output for o in apart)
        self.places = [self.places_of(v) for v in frame.sinks]
        self.piece = max(1, self.n if self.short() else min(self.n, self.longest()))
        self.pieces = -(-self.n // self.piece)
        self.words = [0] * (frame.buffers_at + len(frame.buffers) + 1)

    def strides(self, o: Operand, i: int, shapes: Any, strides: Any) -> tuple[int, ...]:
        if o.is_iota:
            own = aligned(o.node.spec.shape, len(self.domain))
            shape = tuple(1 if d == 1 else full for d, full in zip(own, self.domain, strict=True))
            return row_major(shape)
        if o.is_table or (o.is_output and is_scatter(o.node)):
            shape, steps = (
                reach(lengths, alongs(o.node)[o.side], ones)
                for lengths, ones in zip(self.tables[o.node, o.side], (1, 0), strict=True)
            )
            return broadcast_strides(shape, steps, self.domain)
        if o.node is self.frame.refused or o.node in self.frame.tables:
            return (0,) * len(self.domain)
        return broadcast_strides(shapes[i], strides[i], self.domain)

    def _tables(self, shapes: list[tuple[int, ...]], strides: list[tuple[int, ...]]) -> dict[Node, Any]:
        """Map each look-up, dot and sink, and which table, to the shape and the strides of that."""
        place = {(o.node, o.is_output): i for i, o in enumerate(self.frame.arrays)}
        reads = ((o.node, o.side) for found in self.frame.tables_of.values() for o in found)
        found = [((n, k), place[n.inputs[k], False]) for n, k in reads]
        found += [((n, 0), place[n, True]) for n in self.frame.sinks]
        return {key: (shapes[i], strides[i]) for key, i in found}

    def places_of(self, sink: Node) -> int:
        """Return how many places of a sink indices reach."""
        shape, _ = self.tables[sink, 0]
        return math.prod(d for d, at in zip(shape, sink.params["along"], strict=True) if at is None)

    def _inside(self, shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Return the shapes of what lies in the domain."""
        apart = {*self.frame.tables, *self.frame.sinks, self.frame.refused}
        found = [s for o, s in zip(self.frame.arrays, shapes, strict=True) if o.node not in apart]
        return found + [reach(shape, alongs(n)[k]) for (n, k), (shape, _) in self.tables.items()]

    def plan(self) -> Plan:
        sizes = self.sizes()
        own, shared = self.fill(sizes)
        words, rows, chunks = np.array(self.words, np.int64), sizes["rows"], sizes["chunks"]
        return Plan(words, words.ctypes.data, rows, chunks, own, shared, self.work(sizes))

    def sizes(self) -> dict[str, int]:
        """Return the head of the plan, and the number of rows."""
        rows = math.prod(self.loops.shape[a] for a in self.kept)
        n, steps, piece, pieces = self.n, self.steps, self.piece, self.pieces
        if self.frame.columns:
            group, units, extent = max(GROUP, math.isqrt(steps)), steps, steps
        else:
            group, units, extent = max(1, CHUNK // piece), steps * pieces, steps * n
        if self.frame.sinks:
            group = -(-units // self.chunks_of(units))
        if self.frame.whole:
            group = max(1, units)
        return {
            "n": n, "piece": piece, "pieces": pieces, "group": group, "units": units,
            "chunks": -(-units // group), "extent": extent, "stream": int(self.streams),
            "tile": self.tile if self.tiled else 0, "pitch": self.pitch,
            "ahead": self.ahead(), "next": int(self.asks_for_next()), "short": int(self.short()),
            "ways": self.ways(), "direct": int(-(-units // group) == 1 and self.is_direct()),
            "narrow": int(self.frame.columns and self.n <= NARROWEST and not (self.gathers or self.tiled)),
            "rows": rows * pieces if self.frame.columns else rows,
        }  # fmt: skip

    def chunks_of(self, units: int) -> int:
        """Return in how many chunks, with a table each, a row is folded into its sinks."""
        return max(1, min(JOINED, units, self.joins()))

    def joins(self) -> int:
        """Return how many tables are worth joining: each is smaller than what is folded into it."""
        most = max(self.places, default=0)
        elements = self.steps * (1 if self.frame.columns else self.n)
        return min(elements // (EACH * most * self.ways()), self.steps * self.n // FILLING) if most else 1

    def ways(self) -> int:
        """Return in how many numbers elements of one place are folded in turn."""
        wide = sum(k * v.spec.dtype.itemsize for k, v in zip(self.places, self.frame.sinks, strict=True))
        few = WAYS * wide <= NEARBY and WAYS * EACH * max(self.places, default=0) <= self.steps * self.n
        return WAYS if self.frame.sinks and not self.frame.columns and few else 1

    def is_direct(self) -> bool:
        """Return whether elements may be folded where the outputs lie."""
        own = ((i, o) for i, o in enumerate(self.frame.operands) if o.is_output and is_scatter(o.node))
        return self.ways() == 1 and all(
            self._is_even(o.node) and (self.inner[i] == o.itemsize if o.moves else self._is_whole(o.node))
            for i, o in own
        )

    def _is_even(self, sink: Node) -> bool:
        """Return whether the places of a sink are one step apart."""
        steps = self.steps_of(sink)
        return all(before[1] == own[0] * own[1] for before, own in itertools.pairwise(steps))

    def _is_whole(self, sink: Node) -> bool:
        """Return whether the places of a sink lie side by side."""
        return self.steps_of(sink)[-1][1] == sink.spec.dtype.itemsize

    def steps_of(self, sink: Node) -> list[tuple[int, int]]:
        """Return the lengths and the strides of the axes that indices reach."""
        triples = zip(*self.tables[sink, 0], sink.params["along"], strict=True)
        return [(length, stride) for length, stride, at in triples if at is None]

    def ahead(self) -> int:
        """Return how many rows ahead memory is asked for; 0: not at all."""
        if not self.short() or self.traffic() < DISTANT:
            return 0
        return -(-AHEAD // (self.n * max(o.itemsize for o in self.frame.operands)))

    def short(self) -> bool:
        """Return whether rows are so short that the walk around a row would take as long as its elements."""
        rows = self.frame.has_rows and self.steps == 1 and self.n <= SHORT
        return rows and not self.tiled and not self.gathers

    def asks_for_next(self) -> bool:
        """Return whether the next row is prefetched while this one, which is in cache, is worked on."""
        if len(self.frame.schedule.passes) < 2 or self.frame.columns or not self.kept or self.ahead():
            return False
        widest = max((o.itemsize for o in self.frame.operands), default=1)
        near = self.n * self.steps * widest > CACHED or self.traffic() < DISTANT
        return not (near or self.tiled or self.gathers)

    def longest(self) -> int:
        """Return the most elements of the innermost loop that are worked on at once."""
        moving = (i for i, o in enumerate(self.frame.operands) if o.moves and not o.is_iota)
        far = max((abs(self.inner[i]) for i in moving if i not in self.tiled), default=0) >= FAR
        if self.frame.sinks:
            return self.piece_of_sinks()
        if self.frame.dots and not far:
            wide = max(self.inner_length(n) * n.spec.dtype.itemsize for n in self.frame.dots)
            return max(SPREAD, LINES // wide // SPREAD * SPREAD)
        if not self.frame.columns:
            few = self.streams or self.asks_for_next()
            if self.frame.flat:
                gathered = FLAT_TILED if self.tiled else BUFFERED
            else:
                gathered = GATHERED  # on which a sum depends
            return SPREAD if far else STREAMED if few else gathered if self.gathers else PIECE
        fits = CACHED // 8 // max(self.steps, 1)  # columns that the next pass still finds in cache
        if sum(not part.is_for_chunks for part in self.frame.schedule.passes) > 1 and fits >= NARROW:
            return min(COLUMNS, fits)
        return SPREAD if far else COLUMNS

    def piece_of_sinks(self) -> int:
        """Return the most elements, or columns, whose places are found before they are folded."""
        if not self.frame.columns:
            return GATHERED
        return COLUMNS if self.joins() > 1 else max(APART, self.n // JOINED // APART * APART)

    def transposed(self) -> tuple[int, ...]:
        """Return the operands whose rows lie across cache lines that neighbouring rows share."""
        around = self.folded if self.frame.flat else self.kept
        if not around or (not self.frame.flat and (self.steps > 1 or self.n > TILED)):
            return ()
        strides, across = self.loops.strides, around[0]
        candidates = (i for i, o in enumerate(self.frame.operands) if o in self.frame.tiled)
        return tuple(
            i for i in candidates if abs(strides[i][-1]) >= FAR and 0 < abs(strides[i][across]) <= NEAR
        )

    @property
    def pitch(self) -> int:
        """Elements from row to row of a tile: one line more than a row has, lest rows meet in a cache set."""
        return (-(-(self.piece if self.frame.flat else self.n) // LANES) + 1) * LANES

    def traffic(self) -> int:
        """Return the bytes of all operands."""
        return self._traffic

    def _bytes(self) -> int:
        total, shape = 0, self.loops.shape
        for itemsize, steps in zip(self.frame.itemsizes, self.loops.strides, strict=True):
            total += itemsize * math.prod([d for d, s in zip(shape, steps, strict=True) if s])
        return total

    def work(self, sizes: dict[str, int]) -> float:
        """Return the nanoseconds that one thread needs, roughly."""
        loops = sizes["rows"] * sizes["units"] * len(self.frame.schedule.passes)
        terms = sum(self.inner_length(n) * n.spec.dtype.itemsize for n in self.frame.dots)
        work = self.frame.work + TERM * terms
        return math.prod(self.domain) * work * OP + self._traffic * BYTE + loops * UNIT

    def inner_length(self, dot: Node) -> int:
        """Return how many products are summed for an element."""
        shape, _ = self.tables[dot, 0]
        return shape[alongs(dot)[0].index(None)]

    def fill(self, sizes: dict[str, int]) -> tuple[int, int]:
        """Write every slot; returns the bytes of scratch memory, each thread's own and shared."""
        frame, words = self.frame, self.words
        words[: len(HEAD)] = [sizes[name] for name in HEAD]
        kept = [self.loops.shape[a] for a in self.kept]
        folded = [self.loops.shape[a] for a in self.folded]
        self.write(frame.lengths_at["kept"], frame.loops["kept"], kept, 1)
        self.write(frame.lengths_at["folded"], frame.loops["folded"], self.ordered(folded, self.pieces), 1)
        outer, around = frame.loops["kept"], sum(frame.loops.values())
        for o, steps, inner in zip(frame.operands, self.loops.strides, self.inner, strict=True):
            folded = self.ordered([steps[a] for a in self.folded], self.piece * inner)
            line = [inner, *[steps[a] for a in self.kept]]
            line += [0] * (1 + outer - len(line))
            line += folded
            words[o.at : o.at + 1 + around] = line + [0] * (1 + around - len(line))
        starts = self.ordered([0] * len(self.folded), self.piece)
        self.write(frame.starts_at.start, frame.loops["folded"], starts)
        for i in self.tiled:
            words[frame.tiled[frame.operands[i]]] = self.loops.strides[i][-1]
        for node, side, axis in frame.indexed:
            at = frame.axis_at(node, axis, side)
            words[at : at + 2] = (each[axis] for each in self.tables[node, side])
        for sink, places in zip(frame.sinks, self.places, strict=True):
            self.fill_sink(sink, places, sizes)
        own, shared = self.rooms(self.counts(sizes))
        return own, shared

    def fill_sink(self, sink: Node, places: int, sizes: dict[str, int]) -> None:
        """Write how many places a sink has, its strides, and those of the tables that are joined to it."""
        frame, words = self.frame, self.words
        words[frame.places_at(sink)] = places
        step = sink.spec.dtype.itemsize * sizes["ways"] * (sizes["piece"] if frame.columns else 1)
        for _, axis in reversed([pair for pair in frame.placed if pair[0] is sink]):
            at = frame.axis_at(sink, axis)
            words[frame.placed_at(sink, axis)] = words[at + 1]
            if not sizes["direct"]:
                words[at + 1] = step
            step *= words[at]

    def rooms(self, counts: dict[str, int]) -> tuple[int, int]:
        """Say where buffers lie in scratch memory; how many bytes that is, each thread's own and shared."""
        unused = {
            "g": not (self.gathers or self.tiled),
            "s": not (self.streams or self.scatters),
        }  # not needed by these arrays
        tile = self.tile * self.pitch if self.tiled else 0
        used, words = [0, 0], self.words
        for at, (kind, shared, size, itemsize) in enumerate(self.frame.rooms, self.frame.buffers_at):
            words[at] = used[shared]
            if not unused.get(kind, False):
                count = tile if tile and kind == "g" else counts[size]
                used[shared] += -(-count * itemsize // 64) * 64
        return used[0], used[1]

    def ordered(self, folded: list[int], pieces: int) -> list[int]:
        """Return the values of the reduced loops in order, innermost first, with those of the pieces.

        The pieces of a line follow each other. Where they are copied side by side, the lines of one piece
        follow each other instead: those of a transposed input share its cache lines.
        """
        if self.frame.columns:
            return folded
        lines_follow = self.gathers or self.frame.dots or self.pieces == 1
        return [*folded, pieces] if lines_follow else [pieces, *folded]

    def write(self, at: int, count: int, values: list[int], rest: int = 0) -> None:
        """Write `values` into `count` slots from `at` on, and `rest` behind them."""
        self.words[at : at + count] = [*values, *[rest] * (count - len(values))]

    def counts(self, sizes: dict[str, int]) -> dict[str, int]:
        """Return how many elements buffers hold, by `Buffer.size`."""
        return {
            "piece": sizes["piece"], "chunks": sizes["chunks"],
            "chunks * piece": sizes["chunks"] * sizes["piece"],
            "units * piece": sizes["units"] * sizes["piece"],
            **{f"table {i}": self.table_of(k, sizes) for i, k in enumerate(self.places)},
        }  # fmt: skip

    def table_of(self, places: int, sizes: dict[str, int]) -> int:
        """Return the elements of all tables that are joined to a sink."""
        wide = sizes["ways"] * (sizes["piece"] if self.frame.columns else 1)
        return 0 if sizes["direct"] else sizes["chunks"] * places * wide
