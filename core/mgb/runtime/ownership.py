"""Ownership of memory: arrays on memory of a library, and arrays that one owner alone holds.

The executor writes a parameter in place where nobody else would notice. Reference counts tell.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Sequence
from ctypes import addressof, c_char, string_at
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np

from . import device
from .memory import BYTE, Array, Block


class Adopted:
    """Memory that a library has allocated, as the base of an array.

    Attributes
    ----------
    owner : object
        What keeps it.

    Examples
    --------
    >>> import ctypes
    >>> from mgb.backends import Adopted, adopt
    >>> buffer = ctypes.create_string_buffer(8)
    >>> isinstance(adopt(ctypes.addressof(buffer), (2,), np.dtype("int32"), buffer).base, Adopted)
    True
    """

    owner: Any

    @property
    def address(self) -> int:
        """Return where it begins."""
        memory: Any = self
        return addressof(memory)


@lru_cache(4096)
def _adopted(nbytes: int) -> Any:
    """Return the class of such memory of `nbytes`; ctypes gives it out as a buffer."""
    array: Any = c_char * nbytes
    return type(array)("Adopted", (Adopted, array), {})


def adopter(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[[int, object], Array]:
    """Return `adopt` for arrays of one type: a function of address and owner.

    Examples
    --------
    >>> import ctypes
    >>> buffer = (ctypes.c_float * 4)(1, 2, 3, 4)
    >>> adopter((2, 2), np.dtype("float32"))(ctypes.addressof(buffer), buffer)
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    at, new = _adopted(math.prod(shape, start=dtype.itemsize)).from_address, np.ndarray

    def adopt_one(address: int, owner: object) -> Array:
        memory = at(address)
        memory.owner = owner
        return new(shape, dtype, memory)

    return adopt_one


def adopt(address: int, shape: tuple[int, ...], dtype: np.dtype[Any], owner: object) -> Array:
    """Return a writable row-major array on memory that a library has allocated.

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

    Examples
    --------
    >>> import ctypes
    >>> buffer = (ctypes.c_float * 3)(1, 2, 3)
    >>> adopt(ctypes.addressof(buffer), (3,), np.dtype("float32"), buffer)
    array([1., 2., 3.], dtype=float32)
    """
    return adopter(shape, dtype)(address, owner)


def _references(arrays: Sequence[Any], index: int) -> int:
    return sys.getrefcount(arrays[index])


def _base_references(array: Any) -> int:
    return sys.getrefcount(array.base)


# What the two functions above see when nobody else looks; measured, because it differs between Pythons.
_LISTED = _references([np.empty(0)], 0)
_BASED = _base_references(np.ndarray(1, BYTE, bytearray(1)))


def owned_alone(arrays: Sequence[Any], index: int) -> bool:
    """Return whether the memory of ``arrays[index]`` may be overwritten: one owner alone would notice.

    The caller vouches for one reference beside the one in `arrays`: the owner that the update is for.
    Any further one makes the answer False. Nothing is missed, because

    * the array owns its memory, or is alone on a block or on adopted memory: then it is the ``base`` that
      NumPy gives to each of its views, ``Tensor.numpy()`` among them, and to views of views, and a base is
      a reference;
    * memoryviews and DLPack capsules of an array refer to it as well;
    * an array that is a view, of a user's array perhaps, is never owned;
    * an array of a GPU is not a view, and alone on memory that CuPy itself has allocated for it: views, and
      arrays that are made on its pointer, refer to the array, the pointer or the memory.

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
        True only for a writable row-major array.
    """
    return _references(arrays, index) <= _LISTED + 1 and _is_whole(arrays[index])


def _is_whole(array: Any) -> bool:
    if _is_on_gpu(array):
        return _is_whole_on_gpu(array)
    if type(array) is not np.ndarray or not (array.flags.writeable and array.flags.c_contiguous):
        return False
    if array.flags.owndata:
        return True
    return isinstance(array.base, _BASES) and _base_references(array) <= _BASED


#: What stands between an array and memory that is not its own.
_BASES = (Block, Adopted)

# arrays of a GPU

_pointer, _allocated = attrgetter("data"), attrgetter("data.mem")


def _is_on_gpu(array: Any) -> bool:
    return device.gpu_module is not None and type(array) is device.gpu_module.ndarray


def _is_whole_on_gpu(array: Any) -> bool:
    kind, *_ = _fresh_on_gpu(device.gpu_module)
    whole = array.flags.owndata and array.flags.c_contiguous and type(_allocated(array)) is kind
    return whole and _alone_on_gpu([array])


def _alone_on_gpu(arrays: Sequence[Any]) -> bool:
    """Return whether each of `arrays` alone refers to its pointer, and that alone to its memory."""
    _, pointer, allocated = _fresh_on_gpu(device.gpu_module)
    return _most_references(_pointer, arrays) <= pointer and _most_references(_allocated, arrays) <= allocated


def _most_references(part: Callable[[Any], Any], arrays: Sequence[Any]) -> int:
    return max(map(sys.getrefcount, map(part, arrays)))


@lru_cache(2)
def _fresh_on_gpu(xp: Any) -> tuple[type, int, int]:
    """Return the class of what CuPy allocates.

    The references to pointer and memory of an array that is alone.
    """
    fresh = [xp.empty(8, np.uint8)]
    kind = type(_allocated(fresh[0]))
    return kind, _most_references(_pointer, fresh), _most_references(_allocated, fresh)


# the same questions about hundreds of arrays at once: they cost a tenth when C asks them

_base = attrgetter("base")


#: Where the items of a tuple begin, and the bytes of each: an address.
_ITEMS, _ITEM = tuple.__basicsize__, tuple.__itemsize__


def _addresses(objects: tuple[Any, ...]) -> bytes:
    """Return the addresses of the objects in a tuple."""
    return string_at(id(objects) + _ITEMS, len(objects) * _ITEM)


class Seen:
    """A snapshot of the identities of objects; it does not keep them alive.

    While none of them has died no other object can have the address of one. So a look at hundreds of them
    compares two strings of bytes, and touches none: what it would touch is not in cache after a step.

    Examples
    --------
    >>> seen, arrays = Seen(), (np.ones(2), np.ones(3))
    >>> seen.remember(arrays)
    >>> seen.same(arrays), seen.same((np.ones(2), np.ones(3)))
    (True, False)
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[bytes, list[Any], Any] = b"", [None], None

    def same(self, objects: tuple[Any, ...]) -> bool:
        """Return whether they are the very objects that `remember` was given, as many and in that order."""
        addresses, dead, _ = self._last
        return not dead and _addresses(objects) == addresses

    def remember(self, objects: tuple[Any, ...]) -> None:
        """Take these as seen."""
        dead: list[Any] = []
        self._last = _addresses(objects), dead, [weakref.ref(o, dead.append) for o in objects]


class Updates:
    """The inputs that a call may overwrite with their new values, where `owned_alone` allows it.

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
        # The arrays, what picks those of them that lie on blocks, and those on GPUs.
        self._last = Seen(), picker(()), picker(())
        self._all = (True,) * len(self._positions)

    def targets(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Return an array for each of the updated inputs.

        The conditions of `owned_alone` hold for `arrays`.
        """
        if self._as_before(arrays):
            return self._pick(arrays)
        pairs = zip(self._positions, self._fresh, strict=True)
        targets = [arrays[i] if owned_alone(arrays, i) else fresh() for i, fresh in pairs]
        self._remember(tuple(targets))
        return targets

    def spare(self, arrays: Sequence[Any]) -> tuple[bool, ...]:
        """Return which updated inputs may be overwritten, for kernels with memory of their own."""
        if self._as_before(arrays):
            return self._all
        found = tuple([owned_alone(arrays, i) for i in self._positions])
        if all(found):
            self._remember(self._pick(arrays))
        return found

    def _as_before(self, arrays: Sequence[Any]) -> bool:
        """Return whether they are the arrays that were whole before, each still its owner's alone."""
        found = self._pick(arrays)
        seen, pick_blocks, pick_gpu = self._last
        if not (seen.same(found) and _alone(found, pick_blocks)):
            return False
        on_gpu = pick_gpu(found)
        return not on_gpu or _alone_on_gpu(on_gpu)

    def _remember(self, arrays: tuple[Any, ...]) -> None:
        seen = Seen()
        seen.remember(arrays)
        on_gpu = [i for i, array in enumerate(arrays) if _is_on_gpu(array)]
        blocks = [i for i, array in enumerate(arrays) if isinstance(_base(array), _BASES)]
        self._last = seen, picker(blocks), picker(on_gpu)


def picker(positions: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Return a function that takes a sequence and returns a tuple of the elements at `positions`."""
    if len(positions) > 1:
        return itemgetter(*positions)
    return lambda sequence: tuple([sequence[i] for i in positions])


def _alone(arrays: Sequence[Any], pick_blocks: Callable[[Sequence[Any]], Sequence[Any]]) -> bool:
    """Return whether one owner alone holds each of `arrays`, picked from a list, and they their blocks."""
    blocks = map(_base, pick_blocks(arrays))
    return max(map(sys.getrefcount, arrays)) <= _PICKED + 1 and (
        max(map(sys.getrefcount, blocks), default=0) <= _PICKED_BASE
    )


def _picked_references(arrays: list[Any]) -> tuple[int, int]:
    found = picker((0, 1))(arrays)
    return max(map(sys.getrefcount, found)), max(map(sys.getrefcount, map(_base, found)))


# What `_alone` sees when nobody else looks.
_PICKED, _PICKED_BASE = _picked_references([np.ndarray(1, BYTE, bytearray(1)) for _ in range(2)])
