"""The eager rules of sorting: stable orders by sorting numbers that hold an element and its place.

NumPy sorts values with vector instructions, but neither stably nor with their places. An element of up to 32
bits and its place fit into one integer of 64, and such integers are all different: their only order is the
stable one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import dtypes

#: Fewer elements are put in order by NumPy's stable sort: to pack them takes longer.
FEW = 512

#: The first elements are looked for by their bound, where they are at most one of so many.
ONE_OF = 4

_PLACE_BITS, _PLACES = np.uint64(32), np.uint64(0xFFFFFFFF)


def order(x: Any, axis: int, descending: bool) -> Any:
    """Return the stable order of `x` along `axis`; equal elements keep their order, also when descending."""
    if type(x) is not np.ndarray or x.size < FEW or not 2 <= x.shape[axis] <= dtypes.PLACES:
        return _plain_order(x, axis, descending)
    return _back(_row_order(np.moveaxis(x, axis, -1), descending), axis)


def sort(x: Any, axis: int, descending: bool) -> Any:
    """Return the elements of `x` in order along `axis`."""
    return np.flip(np.sort(x, axis=axis), axis).copy() if descending else np.sort(x, axis=axis)


def first(x: Any, k: int, axis: int, descending: bool) -> Any:
    """Return the first `k` of `order`."""
    if type(x) is np.ndarray and x.size >= FEW and 0 < k * ONE_OF <= x.shape[axis] <= dtypes.PLACES:
        rows = np.moveaxis(x, axis, -1)
        found = _within_bound(rows, k, descending)
        if found is None and rows.dtype.itemsize <= 4:
            packed = np.partition(_packed(_keys(rows, descending)), k - 1, axis=-1)[..., :k]
            found = _places(np.sort(packed, axis=-1))
        if found is not None:
            return _back(found, axis)
    return order(x, axis, descending)[(*(slice(None),) * axis, slice(k))].copy()


def _plain_order(x: Any, axis: int, descending: bool) -> Any:
    dtype = dtypes.of_places(x.shape[axis])
    if not descending:
        return np.argsort(x, axis=axis, kind="stable").astype(dtype)
    backwards = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return (x.shape[axis] - 1 - np.flip(backwards, axis)).astype(dtype)


def _back(rows: Any, axis: int) -> Any:
    return np.ascontiguousarray(np.moveaxis(rows, -1, axis))


# along the last axis


def _row_order(rows: Any, descending: bool) -> Any:
    if rows.dtype.itemsize <= 4:
        packed = _packed(_keys(rows, descending))
        packed.sort(axis=-1)
        return _places(packed)
    if rows.dtype == np.uint64 and (found := _order_by_high_bits(rows, descending)) is not None:
        return found
    return _order_by_rank(rows, descending)


def _keys(rows: Any, descending: bool) -> Any:
    """Return unsigned 32-bit numbers in the order of `rows`: the two zeros are equal, so are NaNs."""
    if rows.dtype.kind in "ub":
        keys = rows.astype(np.uint32)
    elif rows.dtype.kind == "i":
        keys = rows.astype(np.int32).view(np.uint32)
        keys ^= np.uint32(1 << 31)
    else:
        values = rows.astype(np.float32)
        values += np.float32(0)  # -0 becomes 0
        keys = values.view(np.uint32)
        unordered = values != values
        signs = (values.view(np.int32) >> 31).view(np.uint32)  # all bits of a negative number are turned
        signs |= np.uint32(1 << 31)
        keys ^= signs
        if unordered.any():
            keys[unordered] = ~np.uint32(0)
    return np.invert(keys, out=keys) if descending else keys


def _packed(keys: Any) -> Any:
    """Pack keys in the upper half, indices in the lower."""
    packed = keys.astype(np.uint64)
    packed <<= _PLACE_BITS
    packed |= np.arange(keys.shape[-1], dtype=np.uint64)
    return packed


def _places(packed: Any) -> Any:
    return packed.astype(np.uint32).view(np.int32)  # what is cut off is the key


def _order_by_high_bits(rows: Any, descending: bool) -> Any:
    """Return the order of numbers of 64 bits by those that a place leaves room for.

    None where these do not tell.
    """
    count = rows.shape[-1]
    low = np.uint64((1 << (count - 1).bit_length()) - 1)
    packed = np.invert(rows) if descending else rows.copy()
    packed &= ~low
    packed |= np.arange(count, dtype=np.uint64)
    packed.sort(axis=-1)
    if ((packed[..., 1:] ^ packed[..., :-1]) <= low).any():
        return None
    packed &= low
    return packed.astype(np.int32)


def _order_by_rank(rows: Any, descending: bool) -> Any:
    """Return NumPy's fastest order, then among equal elements that of their indices."""
    places = np.argsort(rows, axis=-1)
    ordered = np.take_along_axis(rows, places, -1)
    above, below = ordered[..., 1:], ordered[..., :-1]
    differs = above != below
    if rows.dtype.kind == "f":
        differs &= below == below  # what follows a NaN is one
    if differs.all():
        return (places[..., ::-1] if descending else places).astype(np.int32)
    packed = np.zeros(rows.shape, np.uint64)
    np.cumsum(differs, axis=-1, out=packed[..., 1:])
    if descending:
        np.subtract(np.uint64(rows.shape[-1]), packed, out=packed)
    packed <<= _PLACE_BITS
    packed |= places.view(np.uint64)
    packed.sort(axis=-1)
    return _places(packed)


def _within_bound(rows: Any, k: int, descending: bool) -> Any:
    """Return the first `k` of each row, if no more than these are within the `k`-th; None otherwise.

    None, too, where NaN comes first: no bound has it within.
    """
    place = rows.shape[-1] - k if descending else k - 1
    parted = np.partition(rows, place, axis=-1)
    bound, last = parted[..., place : place + 1], parted[..., place:]
    if descending and (last != last).any():
        return None
    within = rows >= bound if descending else rows <= bound
    if not (np.count_nonzero(within, axis=-1) == k).all():
        return None
    places = (np.flatnonzero(within) % rows.shape[-1]).astype(np.int32).reshape(*rows.shape[:-1], k)
    ahead = _plain_order(np.take_along_axis(rows, places, -1), rows.ndim - 1, descending)
    return np.take_along_axis(places, ahead, -1)
