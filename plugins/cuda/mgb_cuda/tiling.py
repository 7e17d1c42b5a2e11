"""Which inputs lie across the way in which threads walk, and are turned: a rule over sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .device import Properties
from .frame import Frame
from .order import GAIN, INNERMOST, SECTOR, WARP, asked, sectors
from .steps import Steps

#: The side of a square, and that of elements of up to `NARROW` bytes: a thread has as many bytes under way.
SIDE, WIDE_SIDE, NARROW = 32, 64, 2


#: Rows that a block turns at least.
ROWS = 8


@dataclass(frozen=True)
class Tiling:
    """Squares of the domain, which a block turns.

    Attributes
    ----------
    fast : int
        The loop along which the turned operands have neighbours. The other side is the innermost loop.
    side : int
        Elements.
    turned : tuple of int
        The operands.
    """

    fast: int
    side: int
    turned: tuple[int, ...]


def pitch(side: int, itemsize: int) -> int:
    """Return the elements from row to row of a square: an odd number of words, to spread over banks."""
    return side + max(1, 4 // itemsize)


def row_pitch(team: int, across: int, itemsize: int) -> int:
    """Return the elements from row to row of a piece of `across` rows: a warp's stores hit all banks."""
    return team + max(WARP // across, 4 // itemsize)


def squares(shape: tuple[int, ...], fast: int, side: int) -> tuple[int, ...]:
    """Return how many squares there are along each loop.

    Along those that are no side of them, their length.
    """
    sides = {fast, len(shape) - 1}
    return tuple(-(-length // side) if j in sides else length for j, length in enumerate(shape))


def tiling(frame: Frame, steps: Steps, properties: Properties) -> Tiling | None:
    """Return the squares for a call; None where threads had better load all operands as they walk.

    Few sectors are worth nothing: squares must keep every multiprocessor busy.
    """
    found = [_along(frame, steps, properties, j) for j in range(len(steps.loops.shape) - 1)]
    worth = [(saved, t) for saved, t in found if t is not None]
    return max(worth, key=lambda pair: pair[0])[1] if worth else None


def rows_across(frame: Frame, steps: Steps, properties: Properties) -> tuple[tuple[int, ...], int]:
    """Return the inputs that lie across rows which threads walk along, and rows per block to turn them.

    None where other arrays are most of what there is, or where blocks of so many rows do not keep every
    multiprocessor busy.
    """
    kept = [j for j, folded in enumerate(steps.loops.folded) if not folded]
    if not kept or steps.loops.shape[kept[-1]] < WARP:
        return (), 1
    saved = _saved(frame, steps, kept[-1])
    if asked(frame, steps.loops, INNERMOST) < GAIN * asked(frame, steps.loops, (kept[-1], -1)) or not saved:
        return (), 1
    rows = max(SECTOR // min(frame.operands[i].itemsize for i in saved), ROWS)
    return (tuple(sorted(saved)), rows) if steps.rows >= rows * properties.multiprocessors else ((), 1)


def _along(frame: Frame, steps: Steps, properties: Properties, fast: int) -> tuple[int, Tiling | None]:
    """Return the sectors that a warp saves, and the squares, when the other side of them is this loop."""
    shape = steps.loops.shape
    shortest = min(shape[fast], shape[-1])
    saved = _saved(frame, steps, fast)
    if not saved or shortest < SIDE:
        return 0, None
    narrow = max(frame.operands[i].itemsize for i in saved) <= NARROW
    side = WIDE_SIDE if narrow and shortest >= WIDE_SIDE else SIDE
    if math.prod(squares(shape, fast, side)) < properties.multiprocessors:
        return 0, None
    turned: list[int] = []
    room = properties.shared_bytes
    for i in sorted(saved, key=lambda i: (-saved[i], i)):
        size = square_bytes(side, frame.operands[i].itemsize)
        if size <= room:
            turned.append(i)
            room -= size
    return sum(saved[i] for i in turned), Tiling(fast, side, tuple(sorted(turned)))


def square_bytes(side: int, itemsize: int) -> int:
    """Return the shared memory of a square."""
    return -(-side * pitch(side, itemsize) * itemsize // 16) * 16


def _saved(frame: Frame, steps: Steps, fast: int) -> dict[int, int]:
    """Map each operand that is worth it to how many sectors fewer a warp touches that walks along `fast`."""
    found = {}
    for i, (o, c) in enumerate(zip(frame.operands, steps.class_of, strict=True)):
        if c < 0 or o.is_output or o.is_iota:
            continue
        walked, other = steps.classes[c][-1], steps.classes[c][fast]
        if walked and other:
            now, then = sectors(walked, o.itemsize), sectors(other, o.itemsize)
            if now >= GAIN * then:
                found[i] = now - then
    return found
