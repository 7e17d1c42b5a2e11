"""Where the work of a kernel lies in memory, for one set of shapes and strides."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from mgb.codegen import aligned, alongs, broadcast_strides, collapse, is_scatter, reach, row_major
from mgb.ir import Node

from .frame import Frame
from .sinks import COLUMNS, GATHERED, Sinks
from .slots import HEAD, NOTE, Operand

Array = np.ndarray[Any, Any]

#: Elements of a piece of the inner loop, of one with all of its buffers in the innermost cache, and of a
#: chunk that is summed on its own.
PIECE, BUFFERED, CHUNK = 1 << 14, 1 << 9, 1 << 14

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

#: The fewest columns that are worth a block, and the bytes that several passes find in cache.
NARROW, CACHED = 64, 1 << 18

#: Columns of rows through which a block of columns goes on its own.
NARROWEST = 64

#: Rows of columns that are summed before the sums are.
GROUP = 128

#: The bytes of a table that 32 bits count.
NEAREST = 1 << 31

#: Nanoseconds of work from which several threads are worth waking.
PARALLEL = 40_000

#: Bytes of ops that a byte of a term of a dot is worth; bytes of the lines that a piece of dots goes along,
#: and that of a row that is folded, where all pieces are laid out again for the next row.
TERM, LINES, ROW_LINES = 6, 1 << 14, 1 << 22

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


def _domain(shapes: list[tuple[int, ...]], given: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that `shapes` broadcast to; an axis where all have length 1 is as in `given`."""
    domain = list(given)
    for shape in shapes:
        for axis, length in enumerate(shape, len(given) - len(shape)):
            if length != 1:
                domain[axis] = length
    return tuple(domain)


class Planner(Sinks):
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
        self.by_pieces = bool(frame.columns and self.gathers)  # lines of what is gathered stay in cache
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
            "line": self.line, "cycle": rows if self.by_pieces else pieces, "by_pieces": int(self.by_pieces),
            "near": int(all(map(self.is_near, self.frame.near))),
            "rows": rows * pieces if self.frame.columns else rows,
        }  # fmt: skip

    def is_near(self, look_up: Node) -> bool:
        """Return whether 32 bits count the bytes from the first element of a table to any other."""
        shape, strides = self.tables[look_up, 0]
        return sum(d * max(abs(step), 1) for d, step in zip(shape, strides, strict=True)) < NEAREST

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
        laid = self.frame.laid
        moving = (i for i, o in enumerate(self.frame.operands) if o.moves and not o.is_iota and o not in laid)
        far = max((abs(self.inner[i]) for i in moving if i not in self.tiled), default=0) >= FAR
        if self.frame.sinks:
            return self.piece_of_sinks()
        if self.frame.dots and not far:
            wide = max(self.inner_length(n) * n.spec.dtype.itemsize for n in self.frame.dots)
            lines = ROW_LINES if self.frame.has_rows and self.kept else LINES
            return max(SPREAD, lines // wide // SPREAD * SPREAD)
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

    @property
    def line(self) -> int:
        """Elements from one term of a dot to the next where they are laid out."""
        return (-(-self.piece // LANES) + 1) * LANES

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

    def rooms(self, counts: dict[str, int]) -> tuple[int, int]:
        """Say where buffers lie in scratch memory; how many bytes that is, each thread's own and shared."""
        unused = {
            "g": not (self.gathers or self.tiled),
            "s": not (self.streams or self.scatters),
            "d": not self.gathers,
            "e": not self.gathers,
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
            **{f"table {i}": self.table_of(v, sizes) for i, v in enumerate(self.frame.sinks)},
            **{f"lines {i}": self.line * self.inner_length(o.node) for i, o in enumerate(self.frame.laid)},
            "note": NOTE,
        }  # fmt: skip
