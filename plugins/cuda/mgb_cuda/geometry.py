"""Which variant serves a call, and the numbers that it is passed: a table of rules over sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace

from mgb.codegen import row_major
from mgb.ir import Node

from .device import Properties
from .frame import Frame, registers
from .pattern import BUSY, VECTOR, Choice, chunks, even_lanes, magic, numbers, power
from .steps import Steps
from .tiling import rows_across, squares, tiling
from .variant import ROUND_BYTES, Kind, Variant

__all__ = ["VECTOR", "Choice", "choose", "magic"]

#: Bytes that a thread should have under way.
UNDER_WAY = 64

#: Registers of a thread for one slot, and for all of them.
LOADED, SLOTS = 64, 32

#: Registers for its part of a row that stays there: in a block of few threads, in one of half of those that
#: there may be or more; and for rows that lie across, whose blocks have as many threads as they need.
OWN, OWN_FULL, STAYING = 16, 32, 64

#: Threads of a block, those of one with teams smaller than a warp, and the most.
THREADS, SMALL_TEAMS, MOST = 256, 128, 1024

#: Compute capabilities that have clusters, by their first number; blocks of one, which all of these take.
WITH_CLUSTERS, CLUSTERS = (9, 10), (2, 4, 8)

#: Elements of a row that a thread should have when there is a choice: of one that stays and is loaded by
#: single elements, so that neighbours are loaded by neighbours; of one that is only summed.
SINGLE, SUMMED = 8, 16

#: Arrays at most that are loaded lane by lane beside others whose lanes are loaded at once.
SMALL = 8


def choose(
    frame: Frame,
    steps: Steps,
    properties: Properties,
    askew: Set[int] = frozenset(),
    turns: bool = True,
    clusters: bool = True,
) -> Choice:
    """Return the variant for a call.

    Parameters
    ----------
    frame : Frame
    steps : Steps
    properties : Properties
    askew : set of int, optional
        The arrays that begin at no multiple of `VECTOR` bytes.
    turns : bool, optional
        Does the printer have kernels that turn operands in shared memory?
    clusters : bool, optional
        Does it have kernels whose blocks share a row that stays in registers?
    """
    kind = Kind.FLAT if frame.flat else Kind.COLUMNS if steps.columns else Kind.ROWS
    lanes = _lanes(frame, steps, kind, askew)
    variant = Variant(steps.wide, steps.loops.folded, steps.letters, steps.class_of, lanes, kind=kind)
    if kind is Kind.FLAT:
        variant = _whole(frame, steps, askew, variant)
    if kind is not Kind.COLUMNS:
        variant = replace(variant, tail=steps.length % variant.lanes != 0)
    if kind is Kind.FLAT:
        variant = _without_folds(frame, steps, properties, variant, turns)
    elif kind is Kind.ROWS:
        able = CLUSTERS if clusters and properties.capability[0] in WITH_CLUSTERS else ()
        busy = [c for c in able if steps.rows * c >= properties.multiprocessors]
        variant = _of_rows(frame, steps, properties, variant, turns, busy)
    else:
        variant = _columns(frame, steps, frame.kept, variant)
    return _chosen(frame, steps, properties, variant)


def _without_folds(frame: Frame, steps: Steps, properties: Properties, v: Variant, turns: bool) -> Variant:
    found = tiling(frame, steps, properties) if turns else None
    if found is None:
        return _flat(frame, steps, properties, v)
    v = replace(v, turned=found.turned, fast=found.fast, side=found.side)
    return _tiles(frame, replace(v, kind=Kind.TILES, lanes=1, tail=False))


def _of_rows(
    frame: Frame, steps: Steps, properties: Properties, v: Variant, turns: bool, clusters: Sequence[int]
) -> Variant:
    turned, rows = rows_across(frame, steps, properties) if turns else ((), 1)
    if not turned:
        return _rows(frame, steps, frame.kept, v, clusters)
    return _turned(frame, steps, rows, replace(v, turned=turned, lanes=1, tail=False))


def smaller(frame: Frame, steps: Steps, properties: Properties, first: Choice) -> Iterator[Choice]:
    """Yield choices that need less and less of a block: nothing that stays there, then fewer threads."""
    v: Variant = first.variant
    if v.kind is Kind.TILES:
        v = replace(v, kind=Kind.FLAT, turned=(), fast=0, side=0)
        v = _flat(frame, steps, properties, v)
        yield _chosen(frame, steps, properties, v)
    v = replace(v, turned=())
    if v.stays:
        v = (_rows if v.kind is Kind.ROWS else _columns)(frame, steps, (), replace(v, stays=False, cluster=1))
        yield _chosen(frame, steps, properties, v)
    while v.threads > 32:
        threads = v.threads // 2
        fewer = v.kind is Kind.COLUMNS and v.team > 1  # of a team, not of teams
        team = v.team // 2 if fewer else min(v.team, threads)
        v = replace(v, threads=threads, team=team, slots=1)
        yield _chosen(frame, steps, properties, v)


def _chosen(frame: Frame, steps: Steps, properties: Properties, variant: Variant) -> Choice:
    """Return how a variant with these threads is launched."""
    chunk, count = _chunks(steps, properties, variant)
    together = bool(frame.online) and not variant.stays
    variant = replace(variant, split=count > 1, online=together)
    passed = numbers(steps, chunk, count) | _counts(steps, variant)
    return Choice(variant, passed, _blocks(steps, variant), count)


def _counts(steps: Steps, v: Variant) -> dict[str, int]:
    """Return the values that `Variant.counts` names: the squares along both loops, and their divisors."""
    found: dict[str, int] = {}
    for j in v.square:
        count = squares(steps.loops.shape, v.fast, v.side)[j]
        found |= zip((f"t{j}", f"mt{j}", f"ht{j}"), (count, *magic(count)), strict=True)
    return found


def _blocks(steps: Steps, v: Variant) -> int:
    if v.kind is Kind.TILES:
        return math.prod(squares(steps.loops.shape, v.fast, v.side))
    if v.kind is Kind.FLAT:
        return -(-steps.length // (v.stride * v.slots))
    return -(-steps.rows // v.rows_of_block) * v.cluster


# lanes


def _lanes(frame: Frame, steps: Steps, kind: Kind, askew: Set[int]) -> int:
    """Return as many neighbours as may be loaded at once, and as there are registers for."""
    lanes = even_lanes(frame, steps, kind is not Kind.COLUMNS, askew)
    while lanes > 1 and not _fits(frame, kind, lanes):
        lanes //= 2
    return lanes


def _whole(frame: Frame, steps: Steps, askew: Set[int], v: Variant) -> Variant:
    """Return a variant with lanes past the end of the innermost loop, if most arrays lie like the domain."""
    lie = row_major(steps.loops.shape)
    whole = tuple(c for c, strides in enumerate(steps.classes) if strides == lie)
    arrays = [(i, o) for i, o in enumerate(frame.operands) if not o.is_iota]
    vectors = {i: o.itemsize for i, o in arrays if steps.class_of[i] in whole}
    if len(steps.loops.shape) < 2 or not vectors or not askew.isdisjoint(vectors):
        return v
    lanes = VECTOR // max(vectors.values())
    if steps.loops.shape[-1] < lanes:
        return v
    others = [(i, o) for i, o in arrays if i not in vectors and steps.class_of[i] >= 0]
    beside = sum(o.itemsize for i, o in others if steps.classes[steps.class_of[i]][-1])
    fits = lanes * sum(-(-size // 4) for size in vectors.values()) <= LOADED and len(others) <= SMALL
    pays = lanes > v.lanes and beside < sum(vectors.values())
    return replace(v, lanes=lanes, whole=whole) if fits and pays else v


def _meeting(frame: Frame, lanes: int) -> int:
    """Return bytes of shared memory in which threads combine their lanes of the widest reduction."""
    return lanes * max((f.spec.dtype.itemsize for p in frame.schedule.passes for f in p.folds), default=0)


def _fits(frame: Frame, kind: Kind, lanes: int) -> bool:
    """Return whether registers and shared memory suffice for what a pass loads, folds and stores."""
    if kind is Kind.COLUMNS and THREADS * _meeting(frame, lanes) > ROUND_BYTES:
        return False
    held = (registers((*p.reads, *p.folds, *p.stores)) for p in frame.schedule.passes)
    return max(*held, registers(frame.kept)) * lanes <= LOADED


def _tile(frame: Frame, v: Variant, most: int) -> int:
    """Return enough slots to keep bytes in flight, but no more than there are registers for, or work."""
    index = {o: i for i, o in enumerate(frame.operands)}
    moving = [
        [n for n in dict.fromkeys(p.reads) if v.moves(index[frame.source_of[n]])]
        for p in frame.schedule.passes
    ]
    nbytes = v.lanes * max(sum(n.spec.dtype.itemsize for n in reads) for reads in moving)
    ahead = [o.value for o in frame.online]  # they wait until the maximum of a tile is known
    held = max(registers(dict.fromkeys((*reads, *ahead)), v.lanes) for reads in moving)
    slots = power(UNDER_WAY / max(1, nbytes))
    while slots > 1 and (slots > most or slots * max(held, v.lanes) > SLOTS):
        slots //= 2
    return slots


# threads


def _flat(frame: Frame, steps: Steps, properties: Properties, v: Variant) -> Variant:
    v = replace(v, threads=THREADS, team=THREADS)
    blocks = -(-steps.length // v.stride)
    enough = blocks // (BUSY * properties.multiprocessors)
    return replace(v, slots=_tile(frame, v, max(1, enough)))


def _tiles(frame: Frame, v: Variant) -> Variant:
    v = replace(v, threads=THREADS, team=THREADS)
    return replace(v, slots=_tile(frame, v, v.side**2 // THREADS))


def _rows(
    frame: Frame, steps: Steps, kept: Sequence[Node], v: Variant, clusters: Sequence[int] = ()
) -> Variant:
    vectors = max(1, -(-steps.length // v.lanes))
    if kept:
        again = not frame.online or len(frame.schedule.passes) > 2
        most = MOST if again else THREADS  # nobody reads it again
        clusters = clusters if again and v.lanes > 1 else ()
        for team in _powers(1, most):
            if team == MOST and (found := _cluster(v, vectors, kept, clusters)):
                return found  # a block that has a multiprocessor for itself loads and computes by turns
            slots = -(-vectors // team)
            held = max(registers(kept, v.lanes), v.lanes // 2)  # what is computed of narrow ones is not
            room = (OWN_FULL if team >= MOST // 2 else OWN) // held
            if slots <= (room if v.lanes > 1 or team >= THREADS else min(room, SINGLE)):
                return replace(_team(v, team), slots=_rounded(slots, room), stays=True)
        team = MOST // 2
    else:
        own = max(1, SUMMED // v.lanes)
        team = min(power(-(-vectors // own)), THREADS)
    v = _team(v, team)
    return replace(v, slots=_tile(frame, v, max(1, vectors // team)))


def _cluster(v: Variant, vectors: int, kept: Sequence[Node], clusters: Sequence[int]) -> Variant | None:
    """Return the fewest blocks in whose registers a row stays, two on a multiprocessor.

    None where none do.
    """
    threads, room = MOST // 2, OWN_FULL // max(registers(kept, v.lanes), v.lanes // 2)
    for cluster in clusters:
        slots = -(-vectors // (cluster * threads))
        if slots <= room:
            v = replace(v, threads=threads, team=cluster * threads, cluster=cluster, stays=True)
            return replace(v, slots=_rounded(slots, room))
    return None


def _turned(frame: Frame, steps: Steps, rows: int, v: Variant) -> Variant:
    """Return a variant with blocks of this many rows, which stay in registers where they fit."""
    if frame.kept:
        for threads in (t for t in (THREADS, 2 * THREADS, MOST) if t >= rows):
            room = (OWN_FULL if threads == MOST else STAYING) // 2 // registers(frame.kept)
            slots = -(-steps.length // (threads // rows))
            if slots <= room:
                v = replace(v, team=threads // rows, threads=threads, stays=True)
                return replace(v, slots=_rounded(slots, room))
    v = replace(v, team=THREADS // rows, threads=THREADS)
    return replace(v, slots=_tile(frame, v, max(1, steps.length // v.team)))


def _team(v: Variant, team: int) -> Variant:
    return replace(v, team=team, threads=max(team, SMALL_TEAMS) if team <= 32 else team)


def _columns(frame: Frame, steps: Steps, kept: Sequence[Node], v: Variant) -> Variant:
    across = min(32, power(-(-steps.rows // v.lanes)))
    most = power(max(1, steps.length))
    if kept:
        most_threads = ROUND_BYTES // max(1, _meeting(frame, v.lanes))
        for threads in (t for t in (THREADS, 2 * THREADS, MOST) if t <= most_threads):
            team = max(1, min(threads // across, most))
            room = (OWN_FULL if threads == MOST else STAYING) // registers(kept, v.lanes)
            slots = max(1, -(-steps.length // team))
            if slots <= room:
                v = replace(v, threads=team * across, team=team, stays=True)
                return replace(v, slots=_rounded(slots, room))
    team = max(1, min(THREADS // across, most))
    v = replace(v, threads=team * across, team=team)
    return replace(v, slots=_tile(frame, v, max(1, steps.length // team)))


def _chunks(steps: Steps, properties: Properties, v: Variant) -> tuple[int, int]:
    """Return the elements of a row for each of the blocks that share it, and the number of blocks."""
    several = v.kind is Kind.ROWS and v.team <= 32 < v.threads  # rows in a block
    if v.kind in (Kind.FLAT, Kind.TILES) or v.stays or several:
        return steps.length, 1
    return chunks(steps, properties, _blocks(steps, v), v.stride * v.slots, v.stride)


def _powers(first: int, last: int) -> list[int]:
    return [1 << k for k in range(first.bit_length() - 1, last.bit_length())]


def _rounded(slots: int, most: int) -> int:
    """Return one of few numbers that is not smaller, so that few kernels are compiled."""
    step = 1 if slots <= 4 else 2 if slots <= 8 else 4
    return min(-(-slots // step) * step, max(slots, most))
