"""A caching allocator: a fresh array costs page faults, a used one does not.

Large arrays come from free lists by size class. Between an array and its memory stands a `Block`: the base
of the array, which is the base of each view of it. When the last of them dies the block dies, and gives the
memory back to its list.
"""

from __future__ import annotations

import itertools
import math
import weakref
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, Protocol

import numpy as np

from . import config, forking

__all__ = ["Stats", "empty", "empty_cache", "stats", "trim"]

Array = np.ndarray[Any, np.dtype[Any]]

#: Every array of at least `SMALL` bytes begins at a multiple of this: a cache line, an AVX-512 vector.
ALIGNMENT = 64

#: Below this the C library's own free lists are as good, and NumPy is faster to ask.
SMALL = 64 * 1024

#: Memory of at least so many bytes begins near a multiple of it, so that large pages can back all of it;
#: NumPy asks the system for them.
LARGE_PAGE = 1 << 21

#: How far from that multiple: arrays at the same place of a page would contend for the same sets of a cache.
#: An odd number of cache lines, times 0 up to `PLACES` - 1.
STEP, PLACES = 17 * ALIGNMENT, 16

#: Memory that lay idle while so much came from the system is for sizes that are asked for no more: where the
#: pool is full, it goes first.
IDLE_MISSES = 64

BYTE = np.dtype(np.uint8)


class _Memory(np.ndarray[Any, np.dtype[Any]]):
    """Bytes from the system; a class of its own, so that NumPy, in search of a base, stops at the block."""

    __slots__ = ("bytes", "idle_since", "start")

    bytes: int  # what an array may use, from `start` on
    idle_since: int  # the number of misses when it came back to the pool
    start: int


class Block(np.ndarray[Any, np.dtype[Any]]):
    """Bytes of a `_Memory` while an array is on them; lives as long as the last view."""

    __slots__ = ()

    def __del__(self) -> None:
        memory = self.base
        if type(memory) is _Memory:  # not so for a slice of a block, which is of this class too
            _take_back(memory)


class Holder(Protocol):
    """Something that keeps memory which it does not need now.

    Attributes
    ----------
    used : int
        The `next_use` when it was needed last.
    """

    used: int

    def idle_bytes(self) -> int:
        """Return the idle bytes."""

    def release(self) -> None:
        """Drop it."""


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of the pool: the bytes that it holds, and its hits and misses.

    Attributes
    ----------
    live : int
        In use by arrays.
    pooled : int
        Kept for the next array.
    peak : int
        The most that was ever in use at a time.
    hits, misses : int
        Arrays served from the pool, and from the system.
    """

    live: int
    pooled: int
    peak: int
    hits: int
    misses: int


_lock = forking.lock()  # of the holders; between arrays and free lists there is none
_free: dict[int, list[_Memory]] = {}
_holders: weakref.WeakSet[Holder] = weakref.WeakSet()
#: A number that is larger at every call.
next_use = itertools.count().__next__
# Without a lock where arrays come and go, for `__del__` may run anywhere: CPython does not cut `+=` of a
# global in two.
_live = _pooled = _peak = _hits = _misses = 0
_limit = 0  # of `_pooled`; read from the environment whenever memory comes from the system


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return a row-major array whose elements are what happens to be there.

    Parameters
    ----------
    shape : tuple of int
        Extents, 0 allowed.
    dtype : np.dtype
        Any.

    Returns
    -------
    np.ndarray
        Aligned to `ALIGNMENT` bytes if it has `SMALL` bytes or more.
    """
    nbytes = math.prod(shape, start=dtype.itemsize)
    if nbytes < SMALL:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, _block(size_class(nbytes)))


@lru_cache(1024)
def size_class(nbytes: int) -> int:
    """Return `nbytes`, at least `SMALL`, rounded up by less than an eighth: near sizes share a list."""
    step = 1 << (nbytes - 1).bit_length() - 4
    return -(-nbytes // step) * step


def _block(size: int) -> Block:
    global _live, _pooled, _peak, _hits
    try:
        memory = _free[size].pop()
        _hits += 1
        _pooled -= size
    except (KeyError, IndexError):
        memory = _from_system(size)
    _live += size
    if _live > _peak:
        _peak = _live
    return Block(size, BYTE, memory, memory.start)


def _from_system(size: int) -> _Memory:
    """Return `size` bytes and room to align them; when the system has no more, the pool is emptied first."""
    global _misses, _limit
    _limit = config.POOL_BYTES.whole()
    _misses += 1
    _free.setdefault(size, [])
    _make_room(size)
    memory = _allocate(size)
    memory.bytes = size
    if size < LARGE_PAGE:
        memory.start = -memory.ctypes.data % ALIGNMENT
    else:
        memory.start = -memory.ctypes.data % LARGE_PAGE + _misses % PLACES * STEP
    return memory


def _make_room(size: int) -> None:
    """Give the system what nobody asked for in a long while, until all that is in use could come back."""
    global _pooled
    with suppress(IndexError):  # nothing is idle, or an array of another thread was faster
        while _pooled + _live + size > _limit:
            lists = [kept for kept in list(_free.values()) if kept]  # each the oldest first
            oldest = min(lists, key=lambda kept: kept[0].idle_since, default=[])
            if _misses - oldest[0].idle_since < IDLE_MISSES:
                return
            _pooled -= oldest.pop(0).bytes


def _allocate(size: int) -> _Memory:
    """Return `size` bytes and room to align them; the room is never touched, so that no page backs it."""
    room = ALIGNMENT if size < LARGE_PAGE else LARGE_PAGE + PLACES * STEP
    try:
        return _Memory(size + room, BYTE)
    except MemoryError:
        empty_cache()
    return _Memory(size + room, BYTE)


def _take_back(memory: _Memory) -> None:
    """Put memory on its free list; where the pool is full, nobody keeps it."""
    global _live, _pooled
    size = memory.bytes
    _live -= size
    if _pooled + size <= _limit:
        _pooled += size
        memory.idle_since = _misses
        _free[size].append(memory)


def empty_cache() -> None:
    """Give all memory that no array uses back to the system."""
    global _pooled
    for holder in _all_holders():
        holder.release()
    for size, kept in list(_free.items()):
        for _ in range(len(kept)):
            with suppress(IndexError):  # an array was faster
                kept.pop()
                _pooled -= size


def release_idle(holder: Holder) -> None:
    """Let `empty_cache` and `trim` call ``holder.release()``, as long as `holder` lives."""
    with _lock:
        _holders.add(holder)


def _all_holders() -> list[Holder]:
    """Return those that live now, who was needed last the first."""
    with _lock:
        return sorted(_holders, key=attrgetter("used"), reverse=True)


def trim() -> None:
    """Let holders keep no more together than the pool may; who was needed last keeps what it has."""
    holders = _all_holders()
    allowed = config.POOL_BYTES.whole()
    for holder in holders:
        idle = holder.idle_bytes()
        if idle > allowed and holder is not holders[0]:
            holder.release()
        else:
            allowed -= idle


def stats() -> Stats:
    """Return the statistics of the pool; arrays below `SMALL` bytes are not counted."""
    return Stats(_live, _pooled, _peak, _hits, _misses)


def __dir__() -> list[str]:
    return __all__
