"""Arrays in memory that is warm and aligned, so that nobody pays for where an array happens to lie."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = tuple[Array, ...]


def aligned_like(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array whose memory is warm and begins at a multiple of 64 bytes."""
    nbytes = math.prod(shape) * dtype.itemsize
    raw = np.ones(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes].view(dtype).reshape(shape)


def aligned_copy(array: Array) -> Array:
    """Return the same values in memory of their own, so aligned."""
    copy = aligned_like(array.shape, array.dtype)
    copy[...] = array
    return copy


def aligned(floats: int) -> Array:
    """Return ones in float32, so aligned."""
    array = aligned_like((floats,), np.dtype(np.float32))
    array[...] = 1.0
    return array
