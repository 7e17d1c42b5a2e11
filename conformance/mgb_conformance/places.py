"""Where the arrays that a backend is given lie: in the host's memory, or in that of a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mgb
import numpy as np
from mgb.backends import Traits


class Host:
    """The host's memory, which the suite itself works on.

    Attributes
    ----------
    device : str
        Of the Tensors and graphs of a program that a backend takes part in.
    """

    device = "xpux:0"

    def filled(self, nbytes: int, value: int) -> Any:
        """Return this many bytes of this value."""
        return np.full(nbytes, value, np.uint8)

    def address(self, array: Any) -> int:
        """Return where an array begins."""
        return int(array.ctypes.data)

    def put(self, array: np.ndarray) -> Any:
        """Return the array itself, or one of the same layout."""
        return array

    def get(self, array: Any) -> np.ndarray:
        """Return the array itself, or a copy."""
        found: np.ndarray = array
        return found

    def assign(self, target: Any, array: np.ndarray) -> None:
        """Copy values."""
        target[...] = array

    @contextmanager
    def as_default(self) -> Iterator[None]:
        """Make Tensors without a device here."""
        before = mgb.get_default_device()
        mgb.set_default_device(self.device.partition(":")[0])
        try:
            yield
        finally:
            mgb.set_default_device(before)


class Gpu(Host):
    """The memory of a GPU; arrays are CuPy's."""

    device = "gpu0:0"

    def filled(self, nbytes: int, value: int) -> Any:
        import cupy

        return cupy.full(nbytes, value, np.uint8)

    def address(self, array: Any) -> int:
        return int(array.data.ptr)

    def put(self, array: np.ndarray) -> Any:
        """Copy all memory from the first element to the last one, so that the strides stay."""
        import cupy

        if not array.size:
            return cupy.empty(array.shape, array.dtype)
        reach = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
        first, end = -sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + array.itemsize
        memory = (ctypes.c_char * (first + end)).from_address(array.ctypes.data - first)
        there = cupy.asarray(np.frombuffer(memory, np.uint8))
        one = there[first : first + array.itemsize].view(array.dtype)
        return cupy.lib.stride_tricks.as_strided(one, array.shape, array.strides)

    def get(self, array: Any) -> np.ndarray:
        found: np.ndarray = array.get()
        return found

    def assign(self, target: Any, array: np.ndarray) -> None:
        target.set(np.ascontiguousarray(array).reshape(target.shape))


def place_of(traits: Traits) -> Host:
    """Return where a backend with these traits is given arrays: on the host if it takes such."""
    return Host() if "cpu" in traits.devices else Gpu()
