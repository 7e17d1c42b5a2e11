"""A caching allocator: a fresh array costs page faults, a used one does not.

Large arrays come from free lists by size class. Between an array and its memory stands a `_Block`: the base
of the array, which is the base of each view of it. When the last of them dies the block dies, and gives the
memory back to its list.
"""

from __future__ import annotations

import itertools
import math
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import c_char, string_at
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, Protocol

import numpy as np

from . import config

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

_BYTE = np.dtype(np.uint8)


class _Memory(np.ndarray[Any, np.dtype[Any]]):
    """Bytes from the system; a class of its own, so that NumPy, in search of a base, stops at the block."""

    __slots__ = ("bytes", "start")

    bytes: int  # what an array may use, from `start` on
    start: int


class _Block(np.ndarray[Any, np.dtype[Any]]):
    """Bytes of a `_Memory` while an array is on them; lives as long as the last view."""

    __slots__ = ()

    def __del__(self) -> None:
        memory = self.base
        if type(memory) is _Memory:  # not so for a slice of a block, which is of this class too
            _take_back(memory)


class Adopted:
    """Memory that a library has allocated, as the base of an array.

    Attributes
    ----------
    owner : object
        What keeps it.
    address : int
        Where it begins.
    """

    owner: Any
    address: int


@lru_cache(4096)
def _adopted(nbytes: int) -> Any:
    """The class of such memory of `nbytes`; ctypes gives it out as a buffer."""
    array: Any = c_char * nbytes
    return type(array)("Adopted", (Adopted, array), {})


def adopt(address: int, shape: tuple[int, ...], dtype: np.dtype[Any], owner: object) -> Array:
    """A writable row-major array on memory that a library has allocated.

    Parameters
    ----------
    address : int
        Where it begins.
    shape, dtype
        Of the array.
    owner : object
        Kept as long as the array or a view of it lives.

    Returns
    -------
    np.ndarray
        Its `base` is an `Adopted`. That of a view of it is another array.
    """
    memory = _adopted(math.prod(shape, start=dtype.itemsize)).from_address(address)
    memory.owner, memory.address = owner, address
    return np.ndarray(shape, dtype, memory)


class Holder(Protocol):
    """Something that keeps memory which it does not need now.

    Attributes
    ----------
    used : int
        The `next_use` when it was needed last.
    """

    used: int

    def idle_bytes(self) -> int:
        """How much that is."""

    def release(self) -> None:
        """Drop it."""


@dataclass(frozen=True, slots=True)
class Stats:
    """What the pool holds, in bytes, and how often it could serve.

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


_lock = threading.Lock()  # where the system is asked; between arrays and free lists there is none
_free: dict[int, list[_Memory]] = {}
_holders: weakref.WeakSet[Holder] = weakref.WeakSet()
#: A number that is larger at every call.
next_use = itertools.count().__next__
# Without a lock where arrays come and go, for `__del__` may run anywhere: CPython does not cut `+=` of a
# global in two.
_live = _pooled = _peak = _hits = _misses = 0
_limit = 0  # of `_pooled`; read from the environment whenever memory comes from the system


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A row-major array whose elements are what happens to be there.

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
    """`nbytes`, at least `SMALL`, rounded up by less than an eighth, so that near sizes share a list."""
    step = 1 << (nbytes - 1).bit_length() - 4
    return -(-nbytes // step) * step


def _block(size: int) -> _Block:
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
    return _Block(size, _BYTE, memory, memory.start)


def _from_system(size: int) -> _Memory:
    """`size` bytes and room to align them; when the system has no more, the pool is emptied first."""
    global _misses, _limit
    with _lock:
        _limit = config.POOL_BYTES.whole()
        _misses += 1
        _free.setdefault(size, [])
    memory = _allocate(size)
    memory.bytes = size
    if size < LARGE_PAGE:
        memory.start = -memory.ctypes.data % ALIGNMENT
    else:
        memory.start = -memory.ctypes.data % LARGE_PAGE + _misses % PLACES * STEP
    return memory


def _allocate(size: int) -> _Memory:
    """`size` bytes and room to align them; the room is never touched, so that no page stands behind it."""
    room = ALIGNMENT if size < LARGE_PAGE else LARGE_PAGE + PLACES * STEP
    try:
        return _Memory(size + room, _BYTE)
    except MemoryError:
        empty_cache()
    return _Memory(size + room, _BYTE)


def _take_back(memory: _Memory) -> None:
    """Put memory on its free list; where the pool is full, nobody keeps it."""
    global _live, _pooled
    size = memory.bytes
    _live -= size
    if _pooled + size <= _limit:
        _pooled += size
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
    """Those that live now, who was needed last the first."""
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
    """What the pool holds now; arrays below `SMALL` bytes are not counted."""
    return Stats(_live, _pooled, _peak, _hits, _misses)


# whose is it?


def _references(arrays: Sequence[Any], index: int) -> int:
    return sys.getrefcount(arrays[index])


def _base_references(array: Any) -> int:
    return sys.getrefcount(array.base)


# What the two functions above see when nobody else looks; measured, because it differs between Pythons.
_LISTED = _references([np.empty(0)], 0)
_BASED = _base_references(np.ndarray(1, _BYTE, bytearray(1)))


def owned_alone(arrays: Sequence[Any], index: int) -> bool:
    """May the memory of ``arrays[index]`` be overwritten, because one owner alone would notice?

    The caller vouches for one reference beside the one in `arrays`: the owner that the update is for.
    Any further one makes the answer False. Nothing is missed, because

    * the array owns its memory, or is alone on a block or on adopted memory: then it is the ``base`` that
      NumPy gives to each of its views, ``Tensor.numpy()`` among them, and to views of views, and a base is
      a reference;
    * memoryviews and DLPack capsules of an array refer to it as well;
    * an array that is a view, of a user's array perhaps, is never owned.

    What no count can show is a bare address, ``array.ctypes.data``, and a thread that comes to the owner
    after the answer: what one thread updates, another must not read at the same time.

    Parameters
    ----------
    arrays : sequence of arrays
        It must hold the array once; no local variable may hold it.
    index : int
        Which of them.

    Returns
    -------
    bool
        True only for a writable row-major NumPy array.
    """
    return _references(arrays, index) <= _LISTED + 1 and _is_whole(arrays[index])


def _is_whole(array: Any) -> bool:
    if type(array) is not np.ndarray or not (array.flags.writeable and array.flags.c_contiguous):
        return False
    if array.flags.owndata:
        return True
    return isinstance(array.base, _BASES) and _base_references(array) <= _BASED


#: What stands between an array and memory that is not its own.
_BASES = (_Block, Adopted)

# the same questions about hundreds of arrays at once: they cost a tenth when C asks them

_base = attrgetter("base")


#: Where the items of a tuple begin, and the bytes of each: an address.
_ITEMS, _ITEM = tuple.__basicsize__, tuple.__itemsize__


def _addresses(objects: tuple[Any, ...]) -> bytes:
    """The addresses of the objects in a tuple."""
    return string_at(id(objects) + _ITEMS, len(objects) * _ITEM)


class Seen:
    """Which objects were there at the last look; it does not keep them alive.

    While none of them has died no other object can have the address of one. So a look at hundreds of them
    compares two strings of bytes, and touches none: what it would touch is not in cache after a step.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[bytes, list[Any], Any] = b"", [None], None

    def same(self, objects: tuple[Any, ...]) -> bool:
        """Are they the very objects that `remember` was given, as many and in that order?"""
        addresses, dead, _ = self._last
        return not dead and _addresses(objects) == addresses

    def remember(self, objects: tuple[Any, ...]) -> None:
        """Take these as seen."""
        dead: list[Any] = []
        self._last = _addresses(objects), dead, [weakref.ref(o, dead.append) for o in objects]


class Updates:
    """Which inputs a call may overwrite with the values that replace them: where `owned_alone` allows it.

    Nearly always they are the arrays that the call before has written. Then they are whole, as `owned_alone`
    wants it, and nothing but their reference counts is asked.

    Parameters
    ----------
    positions : sequence of int
        Which inputs.
    fresh : sequence of callables
        What makes an array instead of each, for `targets`.
    """

    def __init__(self, positions: Sequence[int], fresh: Sequence[Callable[[], Any]] = ()) -> None:
        self._positions, self._fresh = tuple(positions), tuple(fresh)
        self._pick = picker(positions)
        self._last = Seen(), picker(())  # the arrays, and what picks those of them that lie on blocks
        self._all = (True,) * len(self._positions)

    def targets(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """An array for each of the updated inputs; the conditions of `owned_alone` hold for `arrays`."""
        if self._as_before(arrays):
            return self._pick(arrays)
        pairs = zip(self._positions, self._fresh, strict=True)
        targets = [arrays[i] if owned_alone(arrays, i) else fresh() for i, fresh in pairs]
        if all(type(target) is np.ndarray for target in targets):
            self._remember(tuple(targets))
        return targets

    def spare(self, arrays: Sequence[Any]) -> tuple[bool, ...]:
        """Which of the updated inputs may be overwritten, for kernels that have memory of their own."""
        if self._as_before(arrays):
            return self._all
        found = tuple([owned_alone(arrays, i) for i in self._positions])
        if all(found):
            self._remember(self._pick(arrays))
        return found

    def _as_before(self, arrays: Sequence[Any]) -> bool:
        """Are they the arrays that were whole when last looked at, and is each still its owner's alone?"""
        found = self._pick(arrays)
        seen, pick_blocks = self._last
        return seen.same(found) and _alone(found, pick_blocks)

    def _remember(self, arrays: tuple[Any, ...]) -> None:
        seen = Seen()
        seen.remember(arrays)
        blocks = [i for i, array in enumerate(arrays) if isinstance(_base(array), _BASES)]
        self._last = seen, picker(blocks)


def picker(positions: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """What gives a tuple of the elements at `positions` of a sequence."""
    if len(positions) > 1:
        return itemgetter(*positions)
    return lambda sequence: tuple([sequence[i] for i in positions])


def _alone(arrays: Sequence[Any], pick_blocks: Callable[[Sequence[Any]], Sequence[Any]]) -> bool:
    """Does one owner alone hold each of `arrays`, which were picked from a list, and they their blocks?"""
    blocks = map(_base, pick_blocks(arrays))
    return max(map(sys.getrefcount, arrays)) <= _PICKED + 1 and (
        max(map(sys.getrefcount, blocks), default=0) <= _PICKED_BASE
    )


def _picked_references(arrays: list[Any]) -> tuple[int, int]:
    found = picker((0, 1))(arrays)
    return max(map(sys.getrefcount, found)), max(map(sys.getrefcount, map(_base, found)))


# What `_alone` sees when nobody else looks.
_PICKED, _PICKED_BASE = _picked_references([np.ndarray(1, _BYTE, bytearray(1)) for _ in range(2)])
