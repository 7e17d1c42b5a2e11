"""Which inputs lie across the way in which threads walk, and are turned: a rule over sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mgb_cuda import Properties
from mgb_cuda.frame import Frame
from mgb_cuda.steps import Steps

#: Threads that load together, and bytes that memory gives out at once.
WARP, SECTOR = 32, 32

#: How many times fewer sectors must be loaded, so that a square is worth its barrier.
GAIN = 2

#: The side of a square, and that of elements of up to `NARROW` bytes: a thread has as many bytes under way.
SIDE, WIDE_SIDE, NARROW = 32, 64, 2


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


def sectors(step: int, itemsize: int) -> int:
    """The sectors that a warp touches whose threads are `step` elements apart, in memory that is aligned."""
    return min(WARP, max(1, abs(step) * itemsize * WARP // SECTOR))


def pitch(side: int, itemsize: int) -> int:
    """Elements from row to row of a square: an odd number of words, so that columns lie in all banks."""
    return side + max(1, 4 // itemsize)


def squares(shape: tuple[int, ...], fast: int, side: int) -> tuple[int, ...]:
    """How many squares there are along each loop; along those that are no side of them, their length."""
    sides = {fast, len(shape) - 1}
    return tuple(-(-length // side) if j in sides else length for j, length in enumerate(shape))


def tiling(frame: Frame, steps: Steps, properties: Properties) -> Tiling | None:
    """The squares for a call; None where threads had better load all operands as they walk.

    Few sectors are worth nothing: squares must keep every multiprocessor busy.
    """
    found = [_along(frame, steps, properties, j) for j in range(len(steps.loops.shape) - 1)]
    worth = [(saved, t) for saved, t in found if t is not None]
    return max(worth, key=lambda pair: pair[0])[1] if worth else None


def _along(frame: Frame, steps: Steps, properties: Properties, fast: int) -> tuple[int, Tiling | None]:
    """The sectors that a warp saves, and the squares, when the other side of them is this loop."""
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
    """The shared memory of a square."""
    return -(-side * pitch(side, itemsize) * itemsize // 16) * 16


def _saved(frame: Frame, steps: Steps, fast: int) -> dict[int, int]:
    """For each operand that is worth it, how many sectors fewer a warp touches that walks along `fast`."""
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
