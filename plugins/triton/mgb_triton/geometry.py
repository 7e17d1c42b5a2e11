"""Which variant serves a call, by a rule over sizes, and which others are worth a try."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Set
from dataclasses import replace

from mgb.codegen import Loops
from mgb_cuda import Properties
from mgb_cuda.frame import Frame, registers
from mgb_cuda.order import GAIN, INNERMOST, asked
from mgb_cuda.pattern import BUSY, MOST_CHUNKS, Choice, chunks, even_lanes, numbers, power
from mgb_cuda.steps import Steps

from .passes import TOGETHER
from .variant import Variant

#: Elements of a flat tile that each thread has, at least and at most; and warps.
OWN, MOST_OWN, WARPS, MOST_WARPS = 4, 16, 4, 32

#: Registers of a thread for all that a flat tile loads, and of all threads for rows that stay in them.
LOADED, STAYING = 32, 32 << 10

#: Registers of a tile that is one of many along a row, and of a tile of short rows.
LOOPED, SHORT = 4096, 1024

#: Of the registers of one element, those that make such a tile shorter.
COUNTED = 4

#: Elements of rows that each thread has.
OWN_ROW = 8

#: Neighbouring rows that a tile has at least where they are neighbours in memory.
NEIGHBOURS, MOST_NEIGHBOURS = 16, 64

#: The side of a tile that turns arrays without folding them, and the registers that one element of each takes
#: at most; with more registers, and where tiles are fewer than multiprocessors, the side is half of it.
SIDE, MOST_LOADED = 64, 4

#: Elements of the smallest tile that is tried where larger ones do not fit.
SMALLEST = 32


def choose(frame: Frame, steps: Steps, properties: Properties, askew: Set[int] = frozenset()) -> Choice:
    """Return the variant for a call, by rule.

    Parameters
    ----------
    frame : Frame
    steps : Steps
    properties : Properties
    askew : set of int, optional
        The arrays that begin at no multiple of 16 bytes.
    """
    across = _across(frame, steps)
    if across is None:
        return _plain(frame, steps, properties, askew)
    v = _unshaped(frame, across, askew)
    shaped = _square(frame, across, properties, v) if frame.flat else _turned(frame, across, v)
    return chosen(frame, across, properties, shaped)


def _plain(frame: Frame, steps: Steps, properties: Properties, askew: Collection[int]) -> Choice:
    """Return the variant for arrays that all have their neighbours along the innermost loop."""
    v = _unshaped(frame, steps, askew)
    if frame.flat:
        return chosen(frame, steps, properties, _flat(frame, steps, properties, v))
    return chosen(frame, steps, properties, (_columns if steps.columns else _rows)(frame, steps, v))


def _unshaped(frame: Frame, steps: Steps, askew: Collection[int]) -> Variant:
    lanes = even_lanes(frame, steps, not steps.columns, frozenset(askew))
    moving = tuple(sorted(i for i in askew if steps.class_of[i] >= 0))
    tail = not steps.columns and steps.length % lanes != 0
    return Variant(steps.wide, steps.loops.folded, steps.letters, steps.class_of, lanes, tail, askew=moving)


def chosen(frame: Frame, steps: Steps, properties: Properties, v: Variant) -> Choice:
    """Return how a variant with these tiles is launched."""
    if frame.flat and v.folded != steps.loops.folded:
        steps = _across(frame, steps) or steps
    if v.is_flat(frame):
        return Choice(v, numbers(steps, steps.length, 1), -(-steps.length // v.long), 1)
    blocks = -(-steps.rows // v.tall)
    chunk, count = _chunks(frame, steps, properties, v, blocks)
    v = replace(v, split=count > 1, online=bool(frame.online) and not v.stays)
    return Choice(v, numbers(steps, chunk, count), blocks, count)


def candidates(frame: Frame, steps: Steps, properties: Properties, first: Choice) -> Iterator[Choice]:
    """Yield the choice of the rule, and others that may be faster."""
    yield first
    v: Variant = first.variant
    for warps in (v.warps // 2, 2 * v.warps):
        if 1 <= warps <= MOST_WARPS:
            yield chosen(frame, steps, properties, replace(v, warps=warps))
    if frame.flat:
        yield chosen(frame, steps, properties, replace(v, long=2 * v.long))
        yield chosen(
            frame, steps, properties, replace(v, long=2 * v.long, warps=min(2 * v.warps, MOST_WARPS))
        )
    elif not v.stays:
        yield chosen(frame, steps, properties, replace(v, long=2 * v.long))
        yield chosen(frame, steps, properties, replace(v, long=max(v.long // 2, 1)))
    elif not steps.columns and v.tall > 1:
        yield chosen(frame, steps, properties, replace(v, tall=v.tall // 2, warps=max(1, v.warps // 2)))
    if _across(frame, steps) is not None:
        yield _plain(frame, steps, properties, v.askew)


def smaller(frame: Frame, steps: Steps, properties: Properties, first: Choice) -> Iterator[Choice]:
    """Yield choices that need less of a block: fewer rows, no whole rows, smaller tiles of fewer warps."""
    v: Variant = first.variant
    while v.tall > 1:
        v = _worked(v, v.tall // 2, v.long, OWN_ROW)
        yield chosen(frame, steps, properties, v)
    while v.long > SMALLEST:
        v = replace(_worked(v, v.tall, v.long // 2, OWN_ROW), stays=False)
        yield chosen(frame, steps, properties, v)


def _across(frame: Frame, steps: Steps) -> Steps | None:
    """Return the steps of a call with tiles of two axes, where arrays lie across each other; else None.

    Triton loads and stores each array along the axis of a tile along which it has neighbours, if the tile is
    long enough there. One axis is along the innermost loop, the other one along the last that is kept.
    """
    ways = (
        [_in_rows(steps, j) for j in reversed(range(len(steps.loops.shape) - 1))] if frame.flat else [steps]
    )
    found = []
    for way in ways:
        kept = [j for j, folded in enumerate(way.loops.folded) if not folded]
        if kept:
            found.append((asked(frame, way.loops, (kept[-1], -1)), way))
    least, best = min(found, key=lambda pair: pair[0], default=(0, None))
    return best if 0 < GAIN * least <= asked(frame, steps.loops, INNERMOST) else None


def _in_rows(steps: Steps, last: int) -> Steps:
    """Return the same without reductions, in rows along the innermost loop, after the loop `last`."""
    inner = len(steps.loops.shape) - 1
    order = (*(j for j in range(inner) if j != last), last, inner)

    def moved(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(values[j] for j in order)

    folded = (*[False] * inner, True)
    loops = Loops(moved(steps.loops.shape), tuple(map(moved, steps.loops.strides)), folded)
    return Steps(loops, tuple(map(moved, steps.classes)), steps.class_of)


def _flat(frame: Frame, steps: Steps, properties: Properties, v: Variant) -> Variant:
    loaded = max(registers(p.reads) for p in frame.schedule.passes) or 1
    own = power(max(OWN, min(MOST_OWN, LOADED // loaded), v.lanes))
    own = own if own * loaded <= LOADED or own == v.lanes else own // 2
    while own > v.lanes and steps.length < own * 32 * WARPS * BUSY * properties.multiprocessors:
        own //= 2
    return replace(v, long=32 * WARPS * own, warps=WARPS)


def _square(frame: Frame, steps: Steps, properties: Properties, v: Variant) -> Variant:
    """Return a tile without reductions that is long enough along either axis."""
    loaded = power(max(registers(p.reads) for p in frame.schedule.passes) or 1)
    few = -(-steps.rows // SIDE) * -(-steps.length // SIDE) < properties.multiprocessors
    side = SIDE // 2 if few or loaded > MOST_LOADED else SIDE
    own = max(2, min(MOST_OWN, LOADED // loaded))
    return replace(v, tall=side, long=side, warps=min(MOST_WARPS, side * side // (32 * own)))


def _row_registers(frame: Frame) -> int:
    """Return registers per element of a row that stays: what is read, made, and read by a later pass."""
    return max(1, registers(frame.kept), max(registers(p.folds) for p in frame.schedule.passes))


def _rows(frame: Frame, steps: Steps, v: Variant) -> Variant:
    registers, whole = _row_registers(frame), power(max(1, steps.length))
    most = STAYING // registers if frame.kept else _looped(frame)
    if whole <= most:
        tall = min(power(max(1, SHORT // (registers * whole))), power(max(1, steps.rows)))
        return replace(_worked(v, tall, whole, OWN_ROW), stays=True)
    return _worked(v, 1, _looped(frame), _own(frame))


def _columns(frame: Frame, steps: Steps, v: Variant) -> Variant:
    return _neighbours(frame, steps, v, NEIGHBOURS, STAYING)


def _turned(frame: Frame, steps: Steps, v: Variant) -> Variant:
    """Return a tile that is long enough along either axis.

    Turning what lies across takes registers as well.
    """
    return _neighbours(frame, steps, v, NEIGHBOURS // 2, STAYING // 2)


def _neighbours(frame: Frame, steps: Steps, v: Variant, least: int, staying: int) -> Variant:
    """Return a tile of `least` rows or more, which stay in so many registers of all threads."""
    registers, whole = _row_registers(frame), power(max(1, steps.length))
    rows, most = power(max(1, steps.rows)), staying if frame.kept else LOOPED
    if least * whole * registers <= most:
        tall = max(NEIGHBOURS, power(SHORT // (whole * registers)))
        while tall > least and tall * whole * registers > most:
            tall //= 2
        return replace(_worked(v, min(rows, tall), whole, OWN_ROW), stays=True)
    # Folds that are found ahead keep several numbers of each row.
    tall = min(rows, MOST_NEIGHBOURS // 2 if frame.online else MOST_NEIGHBOURS)
    long = max(1, min(whole, _looped(frame) // tall))
    return _worked(v, tall, long, _own(frame))


def _looped(frame: Frame) -> int:
    """Return elements of one of many tiles along a row; if reductions are found ahead, of some at a time."""
    if frame.online:
        return LOOPED // TOGETHER
    return LOOPED // power(min(_row_registers(frame), COUNTED))


def _own(frame: Frame) -> int:
    """Return the elements of such a tile that each thread has."""
    return OWN_ROW // 2 if frame.online else OWN_ROW


def _worked(v: Variant, tall: int, long: int, own: int) -> Variant:
    """Return a tile, and as many warps as give each thread `own` elements of it.

    Triton takes but powers of two.
    """
    assert tall == power(tall) and long == power(long), (tall, long)
    return replace(v, tall=tall, long=long, warps=max(1, min(MOST_WARPS, tall * long // (32 * own))))


def _chunks(frame: Frame, steps: Steps, properties: Properties, v: Variant, blocks: int) -> tuple[int, int]:
    """Return the elements of a row for each of the programs that share it, and the number of programs."""
    if frame.flat:
        tiles = -(-steps.length // v.long)
        chunk = -(-tiles // MOST_CHUNKS) * v.long
        return chunk, -(-steps.length // chunk) if chunk else 1
    return (steps.length, 1) if v.stays else chunks(steps, properties, blocks, v.long, v.long)
