"""Arrays right before memory that cannot be read; a kernel that looks there ends the process."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

_kept: list[mmap.mmap] = []


def fenced(x: np.ndarray) -> np.ndarray:
    """A row-major copy that ends where a page of such memory begins."""
    size = -(-x.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, size + mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + size), mmap.PAGESIZE, 0) == 0
    first = (size - x.nbytes) // x.itemsize
    found = np.frombuffer(memory, x.dtype, x.size, first * x.itemsize).reshape(x.shape)
    found[...] = x
    _kept.append(memory)
    return found
