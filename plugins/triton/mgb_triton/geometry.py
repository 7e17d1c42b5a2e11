"""Which variant serves a call, by a rule over sizes, and which others are worth a try."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace

from mgb.ir import Node
from mgb_cuda import Properties
from mgb_cuda.frame import Frame
from mgb_cuda.pattern import Choice, even_lanes, numbers, power
from mgb_cuda.steps import Steps

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

#: Elements of the smallest tile that is tried where larger ones do not fit.
SMALLEST = 32

#: Programs for each multiprocessor that keep it busy, and the most that share a row.
BUSY, MOST_CHUNKS = 4, 4096


def choose(frame: Frame, steps: Steps, properties: Properties, askew: Set[int] = frozenset()) -> Choice:
    """The variant for a call, by rule.

    Parameters
    ----------
    frame : Frame
    steps : Steps
    properties : Properties
    askew : set of int, optional
        The arrays that begin at no multiple of 16 bytes.
    """
    lanes = even_lanes(frame, steps, not frame.columns, askew)
    moving = tuple(sorted(i for i in askew if steps.class_of[i] >= 0))
    tail = not frame.columns and steps.length % lanes != 0
    v = Variant(steps.wide, steps.loops.folded, steps.letters, steps.class_of, lanes, tail, moving)
    shaped = _flat if frame.flat else _columns if frame.columns else _rows
    return chosen(frame, steps, properties, shaped(frame, steps, properties, v))


def chosen(frame: Frame, steps: Steps, properties: Properties, v: Variant) -> Choice:
    """How a variant with these tiles is launched."""
    blocks = -(-steps.length // v.long) if frame.flat else -(-steps.rows // v.tall)
    chunk, chunks = (steps.length, 1) if frame.flat else _chunks(steps, properties, v, blocks)
    v = replace(v, split=chunks > 1, online=bool(frame.online) and not v.stays and chunks == 1)
    return Choice(v, numbers(steps, chunk, chunks), blocks, chunks)


def candidates(frame: Frame, steps: Steps, properties: Properties, first: Choice) -> Iterator[Choice]:
    """The choice of the rule, and others that may be faster."""
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
    elif not frame.columns and v.tall > 1:
        yield chosen(frame, steps, properties, replace(v, tall=v.tall // 2, warps=max(1, v.warps // 2)))


def smaller(frame: Frame, steps: Steps, properties: Properties, first: Choice) -> Iterator[Choice]:
    """Choices that need less and less of a block: fewer rows, no whole rows, smaller tiles of fewer warps."""
    v: Variant = first.variant
    while v.tall > 1:
        v = _worked(v, v.tall // 2, v.long, OWN_ROW)
        yield chosen(frame, steps, properties, v)
    while v.long > SMALLEST:
        v = replace(_worked(v, v.tall, v.long // 2, OWN_ROW), stays=False)
        yield chosen(frame, steps, properties, v)


def _registers(nodes: Sequence[Node]) -> int:
    """Registers that one element of each of `nodes` takes."""
    return sum(max(1, node.spec.dtype.itemsize // 4) for node in nodes)


def _flat(frame: Frame, steps: Steps, properties: Properties, v: Variant) -> Variant:
    loaded = max(_registers(p.reads) for p in frame.plain.passes) or 1
    own = power(max(OWN, min(MOST_OWN, LOADED // loaded), v.lanes))
    own = own if own * loaded <= LOADED or own == v.lanes else own // 2
    while own > v.lanes and steps.length < own * 32 * WARPS * BUSY * properties.multiprocessors:
        own //= 2
    return replace(v, long=32 * WARPS * own, warps=WARPS)


def _row_registers(frame: Frame) -> int:
    """Registers for one element of a row that stays: what is read and made, and is read by a later pass."""
    return max(1, _registers(frame.kept), max(_registers(p.folds) for p in frame.plain.passes))


def _rows(frame: Frame, steps: Steps, properties: Properties, v: Variant) -> Variant:
    registers, whole = _row_registers(frame), power(max(1, steps.length))
    most = STAYING // registers if frame.kept else _looped(registers)
    if whole <= most:
        tall = min(power(max(1, SHORT // (registers * whole))), power(max(1, steps.rows)))
        return replace(_worked(v, tall, whole, OWN_ROW), stays=True)
    return _worked(v, 1, _looped(registers), OWN_ROW)


def _columns(frame: Frame, steps: Steps, properties: Properties, v: Variant) -> Variant:
    registers, whole = _row_registers(frame), power(max(1, steps.length))
    rows = power(max(1, steps.rows))
    most = STAYING if frame.kept else LOOPED
    if NEIGHBOURS * whole * registers <= most:
        tall = min(rows, max(NEIGHBOURS, power(SHORT // (whole * registers))))
        return replace(_worked(v, tall, whole, OWN_ROW), stays=True)
    tall = min(rows, MOST_NEIGHBOURS)
    long = max(1, min(whole, _looped(registers) // tall))
    return _worked(v, tall, long, OWN_ROW)


def _looped(registers: int) -> int:
    """Elements of a tile that is one of many along a row."""
    return LOOPED // power(min(registers, COUNTED))


def _worked(v: Variant, tall: int, long: int, own: int) -> Variant:
    """A tile, and as many warps as give each thread `own` elements of it. Triton takes but powers of two."""
    assert tall == power(tall) and long == power(long), (tall, long)
    return replace(v, tall=tall, long=long, warps=max(1, min(MOST_WARPS, tall * long // (32 * own))))


def _chunks(steps: Steps, properties: Properties, v: Variant, blocks: int) -> tuple[int, int]:
    """Elements of a row for each of the programs that share it, and how many there are."""
    wanted = BUSY * properties.multiprocessors // max(1, blocks)
    chunks = min(wanted, steps.length // v.long, MOST_CHUNKS)
    if v.stays or chunks < 2:
        return steps.length, 1
    chunk = -(-steps.length // chunks // v.long) * v.long
    return chunk, -(-steps.length // chunk)
