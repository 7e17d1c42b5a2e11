"""Which variant serves a call, and the numbers that it is passed: a table of rules over sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace

from mgb.codegen import Schedule
from mgb_cuda import Properties
from mgb_cuda.frame import Frame
from mgb_cuda.pattern import VECTOR, Choice, even_lanes, magic, numbers, power
from mgb_cuda.steps import Steps

from .tiling import rows_across, squares, tiling
from .variant import ROUND_BYTES, Kind, Variant

__all__ = ["VECTOR", "Choice", "choose", "magic"]

#: How many loads of 16 bytes a thread should have under way.
UNDER_WAY = 4

#: Registers of a thread for one slot, for all of them, and for a row that stays there, by threads of a block.
LOADED, SLOTS, STAYING, STAYING_FULL = 64, 32, 64, 32

#: Threads of a block, those of one with teams smaller than a warp, and the most.
THREADS, SMALL_TEAMS, MOST = 256, 128, 1024

#: Elements of a row that a thread should have when there is a choice: of one that stays, of one that is only
#: summed.
OWN, SUMMED = 8, 16

#: Blocks for each multiprocessor that keep it busy, and the most that share a row.
BUSY, MOST_CHUNKS = 4, 4096


def choose(frame: Frame, steps: Steps, properties: Properties, askew: Set[int] = frozenset()) -> Choice:
    """The variant for a call.

    Parameters
    ----------
    frame : Frame
    steps : Steps
    properties : Properties
    askew : set of int, optional
        The arrays that begin at no multiple of `VECTOR` bytes.
    """
    kind = Kind.FLAT if frame.flat else Kind.COLUMNS if steps.columns else Kind.ROWS
    lanes = _lanes(frame, steps, kind, askew)
    variant = Variant(steps.wide, steps.loops.folded, steps.letters, steps.class_of, kind, lanes)
    if kind is not Kind.COLUMNS:
        variant = replace(variant, tail=steps.length % lanes != 0)
    shaped = {Kind.FLAT: _without_folds, Kind.ROWS: _of_rows, Kind.COLUMNS: _of_columns}[kind]
    return _chosen(frame, steps, properties, shaped(frame, steps, properties, variant))


def _without_folds(frame: Frame, steps: Steps, properties: Properties, v: Variant) -> Variant:
    found = tiling(frame, steps, properties)
    if found is None:
        return _flat(frame, steps, properties, v)
    v = replace(v, turned=found.turned, fast=found.fast, side=found.side)
    return _tiles(frame, replace(v, kind=Kind.TILES, lanes=1, tail=False))


def _of_rows(frame: Frame, steps: Steps, properties: Properties, v: Variant) -> Variant:
    turned, rows = rows_across(frame, steps, properties)
    if not turned:
        return _rows(frame, steps, frame.kept, v)
    return _turned(frame, steps, rows, replace(v, turned=turned, lanes=1, tail=False))


def _of_columns(frame: Frame, steps: Steps, properties: Properties, v: Variant) -> Variant:
    return _columns(frame, steps, frame.kept, v)


def smaller(frame: Frame, steps: Steps, properties: Properties, first: Choice) -> Iterator[Choice]:
    """Choices that need less and less of a block: nothing that stays there, then fewer threads."""
    v: Variant = first.variant
    if v.kind is Kind.TILES:
        v = replace(v, kind=Kind.FLAT, turned=(), fast=0, side=0)
        v = _flat(frame, steps, properties, v)
        yield _chosen(frame, steps, properties, v)
    v = replace(v, turned=())
    if v.stays:
        v = (_rows if v.kind is Kind.ROWS else _columns)(frame, steps, (), replace(v, stays=False))
        yield _chosen(frame, steps, properties, v)
    while v.threads > 32:
        threads = v.threads // 2
        fewer = v.kind is Kind.COLUMNS and v.team > 1  # of a team, not of teams
        team = v.team // 2 if fewer else min(v.team, threads)
        v = replace(v, threads=threads, team=team, slots=1)
        yield _chosen(frame, steps, properties, v)


def _chosen(frame: Frame, steps: Steps, properties: Properties, variant: Variant) -> Choice:
    """How a variant with these threads is launched."""
    chunk, chunks = _chunks(steps, properties, variant)
    together = bool(frame.online) and not variant.stays and chunks == 1
    variant = replace(variant, split=chunks > 1, online=together)
    passed = numbers(steps, chunk, chunks) | _counts(steps, variant)
    return Choice(variant, passed, _blocks(steps, variant), chunks)


def _counts(steps: Steps, v: Variant) -> dict[str, int]:
    """What `Variant.counts` names: the squares along both loops, and what divides by them."""
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
    return -(-steps.rows // v.rows_of_block)


# lanes


def _lanes(frame: Frame, steps: Steps, kind: Kind, askew: Set[int]) -> int:
    """As many neighbours as may be loaded at once, and as there are registers for."""
    lanes = even_lanes(frame, steps, kind is not Kind.COLUMNS, askew)
    while lanes > 1 and not _fits(frame, kind, lanes):
        lanes //= 2
    return lanes


def _registers(nodes: Sequence[object]) -> int:
    """Registers that one element of each of `nodes` takes."""
    return sum(max(1, node.spec.dtype.itemsize // 4) for node in nodes)  # type: ignore[attr-defined]


def _most_loaded(schedule: Schedule) -> int:
    """Registers for one element of everything that a pass loads."""
    return max(_registers(p.reads) for p in schedule.passes) or 1


def _meeting(frame: Frame, lanes: int) -> int:
    """Shared memory in which a thread adds its lanes of the widest fold to those of others, in columns."""
    return lanes * max((f.spec.dtype.itemsize for p in frame.schedule.passes for f in p.folds), default=0)


def _fits(frame: Frame, kind: Kind, lanes: int) -> bool:
    """Are there registers for the lanes of all that a pass loads, folds and stores, and shared memory?"""
    if kind is Kind.COLUMNS and THREADS * _meeting(frame, lanes) > ROUND_BYTES:
        return False
    held = (_registers((*p.reads, *p.folds, *p.stores)) for p in frame.schedule.passes)
    return max(*held, _registers(frame.kept)) * lanes <= LOADED


def _tile(frame: Frame, lanes: int, most: int) -> int:
    """Slots so that enough loads are under way, but no more than there are registers for, or work."""
    loads = max(len(p.reads) for p in frame.schedule.passes)
    slots = max(1, UNDER_WAY // max(1, loads))
    while slots > 1 and (slots > most or slots * lanes * _most_loaded(frame.schedule) > SLOTS):
        slots //= 2
    return slots


# threads


def _flat(frame: Frame, steps: Steps, properties: Properties, v: Variant) -> Variant:
    v = replace(v, threads=THREADS, team=THREADS)
    blocks = -(-steps.length // v.stride)
    enough = blocks // (BUSY * properties.multiprocessors)
    return replace(v, slots=_tile(frame, v.lanes, max(1, enough)))


def _tiles(frame: Frame, v: Variant) -> Variant:
    v = replace(v, threads=THREADS, team=THREADS)
    return replace(v, slots=_tile(frame, 1, v.side**2 // THREADS))


def _rows(frame: Frame, steps: Steps, kept: Sequence[object], v: Variant) -> Variant:
    vectors = max(1, -(-steps.length // v.lanes))
    if kept:
        for team in _powers(1, MOST):
            slots = -(-vectors // team)
            full = team > MOST // 2
            room = (STAYING_FULL if full else STAYING) // _registers(kept) // v.lanes
            if slots <= (room if full else min(room, max(1, OWN // v.lanes))):
                return replace(_team(v, team), slots=_rounded(slots, room), stays=True)
        team = MOST // 2
    else:
        own = max(1, SUMMED // v.lanes)
        team = min(power(-(-vectors // own)), THREADS)
    v = _team(v, team)
    return replace(v, slots=_tile(frame, v.lanes, max(1, vectors // team)))


def _turned(frame: Frame, steps: Steps, rows: int, v: Variant) -> Variant:
    """Blocks of so many rows, which stay in registers where they fit."""
    if frame.kept:
        for threads in (t for t in (THREADS, 2 * THREADS, MOST) if t >= rows):
            room = (STAYING_FULL if threads == MOST else STAYING) // 2 // _registers(frame.kept)
            slots = -(-steps.length // (threads // rows))
            if slots <= room:
                v = replace(v, team=threads // rows, threads=threads, stays=True)
                return replace(v, slots=_rounded(slots, room))
    v = replace(v, team=THREADS // rows, threads=THREADS)
    return replace(v, slots=_tile(frame, 1, max(1, steps.length // v.team)))


def _team(v: Variant, team: int) -> Variant:
    return replace(v, team=team, threads=max(team, SMALL_TEAMS) if team <= 32 else team)


def _columns(frame: Frame, steps: Steps, kept: Sequence[object], v: Variant) -> Variant:
    across = min(32, power(-(-steps.rows // v.lanes)))
    most = power(max(1, steps.length))
    if kept:
        most_threads = ROUND_BYTES // max(1, _meeting(frame, v.lanes))
        for threads in (t for t in (THREADS, 2 * THREADS, MOST) if t <= most_threads):
            team = max(1, min(threads // across, most))
            room = (STAYING_FULL if threads == MOST else STAYING) // _registers(kept) // v.lanes
            slots = max(1, -(-steps.length // team))
            if slots <= room:
                v = replace(v, threads=team * across, team=team, stays=True)
                return replace(v, slots=_rounded(slots, room))
    team = max(1, min(THREADS // across, most))
    v = replace(v, threads=team * across, team=team)
    return replace(v, slots=_tile(frame, v.lanes, max(1, steps.length // team)))


def _chunks(steps: Steps, properties: Properties, v: Variant) -> tuple[int, int]:
    """Elements of a row for each of the blocks that share it, and how many there are."""
    blocks, tile = _blocks(steps, v), v.stride * v.slots
    wanted = BUSY * properties.multiprocessors // max(1, blocks)
    chunks = min(wanted, steps.length // tile, MOST_CHUNKS)
    if (
        v.kind in (Kind.FLAT, Kind.TILES)
        or v.stays
        or chunks < 2
        or (v.team <= 32 < v.threads and v.kind is Kind.ROWS)
    ):
        return steps.length, 1
    chunk = -(-steps.length // chunks // v.stride) * v.stride
    return chunk, -(-steps.length // chunk)


def _powers(first: int, last: int) -> list[int]:
    return [1 << k for k in range(first.bit_length() - 1, last.bit_length())]


def _rounded(slots: int, most: int) -> int:
    """One of few numbers that is not smaller, so that few kernels are compiled."""
    step = 1 if slots <= 4 else 2 if slots <= 8 else 4
    return min(-(-slots // step) * step, max(slots, most))
