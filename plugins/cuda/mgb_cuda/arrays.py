"""The properties of arrays that a launcher reads."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Protocol

import numpy as np

#: CUDA's handle of the default stream of whichever thread asks: one number for several streams.
PER_THREAD = 2


class Arrays(Protocol):
    """Arrays of one library on one device."""

    def address(self, array: Any) -> int:
        """Return where the elements of `array` begin."""

    def stream(self) -> int:
        """Return the stream that the caller works on."""

    def scratch(self, nbytes: int) -> tuple[int, object]:
        """Return the address of fresh memory, and what keeps it."""

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """Return a row-major copy of a NumPy array on the device, for work on the current stream."""

    def constant(self, array: np.ndarray[Any, Any]) -> Any:
        """Return the same, for work on any stream: it is there when this returns."""

    def contiguous(self, array: Any) -> Any:
        """Return a row-major copy of an array of the device."""


class CupyArrays:
    """Arrays of CuPy, on the stream that is CuPy's current one.

    Memory comes from CuPy's pool, which gives freed memory to later work on the same stream alone; so scratch
    memory may be dropped as soon as the kernels that use it are launched.
    """

    address = staticmethod(attrgetter("data.ptr"))

    def __init__(self, ordinal: int) -> None:
        import cupy

        self._cupy, self._ordinal = cupy, ordinal
        self._current = cupy.cuda.get_current_stream

    def stream(self) -> int:
        pointer: int = self._current().ptr
        return pointer

    def scratch(self, nbytes: int) -> tuple[int, object]:
        memory = self._cupy.cuda.alloc(nbytes)
        return memory.ptr, memory

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        with self._cupy.cuda.Device(self._ordinal):
            return self._cupy.asarray(np.ascontiguousarray(array))

    def constant(self, array: np.ndarray[Any, Any]) -> Any:
        copy = self.upload(array)
        self._cupy.cuda.get_current_stream(self._ordinal).synchronize()
        return copy

    def contiguous(self, array: Any) -> Any:
        return self._cupy.array(array, order="C", copy=True)
