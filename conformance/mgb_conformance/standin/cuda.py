"""Devices, streams and memory of the stand-in, with the names of ``cupy.cuda``."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np


class OutOfMemoryError(MemoryError):
    """The device has no more memory."""


class CUDARuntimeError(RuntimeError):
    """The CUDA runtime refused."""


class State(threading.local):
    """The state that a test may set, and the current device and streams of a thread.

    Attributes
    ----------
    devices : int
        How many there are.
    largest : int or None
        More bytes than this in one allocation are refused.
    per_thread : bool
        Is the default stream of each thread its own, as ``CUPY_CUDA_PER_THREAD_DEFAULT_STREAM=1`` says?
    device : int
        The current one.
    streams : dict
        For each device its current stream.
    """

    devices = 1
    largest: int | None = None
    per_thread = False

    def __init__(self) -> None:
        self.device = 0
        self.streams: dict[int, Stream] = {}


state = State()


def allow(nbytes: int) -> None:
    """Raise as CuPy's pool does where the device has not `nbytes`."""
    if State.largest is not None and nbytes > State.largest:
        raise OutOfMemoryError(f"Out of memory allocating {nbytes:,} bytes (allocated so far: 0 bytes).")


class Device:
    """A device by its number, or the current one."""

    def __init__(self, device: int | Device | None = None) -> None:
        self.id = state.device if device is None else getattr(device, "id", device)
        self._before: list[int] = []

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def use(self) -> None:
        """Make it the current one of this thread."""
        if not 0 <= self.id < State.devices:
            raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
        state.device = self.id

    def __enter__(self) -> Device:
        self._before.append(state.device)
        self.use()
        return self

    def __exit__(self, *_error: object) -> None:
        state.device = self._before.pop()

    def synchronize(self) -> None:
        """Do nothing: no work is ever in flight here."""

    @property
    def compute_capability(self) -> str:
        return "90"


_handles = itertools.count(0x5000, 0x100)


class Stream:
    """A stream, which has a handle and can be the current one of its device."""

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> None:
        self.ptr = 0 if null else 2 if ptds else next(_handles)
        self.device_id = state.device
        self._before: list[Stream] = []

    def use(self) -> Stream:
        """Make it the current one."""
        state.streams[state.device] = self
        return self

    def __enter__(self) -> Stream:
        self._before.append(get_current_stream())
        return self.use()

    def __exit__(self, *_error: object) -> None:
        self._before.pop().use()

    def synchronize(self) -> None:
        """Do nothing: no work is ever in flight here."""

    def wait_event(self, event: Event) -> None:
        """Make later work wait for `event`."""


class Event:
    """A mark in a stream, which is passed when `under_way` there is done: a library may add to that."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self._before: list[Callable[[], bool]] = []

    def record(self, stream: Stream | None = None) -> None:
        """Mark what the stream has been given until now."""
        self._before = list(under_way.get((stream or get_current_stream()).ptr, ()))

    @property
    def done(self) -> bool:
        """Return whether the mark is passed."""
        return all(is_done() for is_done in self._before)


#: By the handle of a stream: of all that a library does there, whether it is done.
under_way: dict[int, list[Callable[[], bool]]] = {}


Stream.null = Stream(null=True)  # type: ignore[attr-defined]
Stream.ptds = Stream(ptds=True)  # type: ignore[attr-defined]


def get_current_stream(device_id: int | None = None) -> Stream:
    """Return the stream that work goes to."""
    default: Stream = Stream.ptds if State.per_thread else Stream.null  # type: ignore[attr-defined]
    return state.streams.get(state.device if device_id is None else device_id, default)


class MemoryPointer:
    """Fresh memory of the current device."""

    def __init__(self, nbytes: int) -> None:
        allow(nbytes)
        self.mem = np.empty(nbytes, np.uint8)
        self.ptr = int(self.mem.ctypes.data)
        self.device_id = state.device


class MemoryPool:
    """The methods of CuPy's pool that mgb calls."""

    def free_all_blocks(self) -> None:
        """Do nothing: nothing is cached."""

    def used_bytes(self) -> int:
        return 0

    def total_bytes(self) -> int:
        return 0


_pool = MemoryPool()

#: What ``cupy.cuda`` has.
NAMES: dict[str, Any] = {
    "Device": Device,
    "Stream": Stream,
    "Event": Event,
    "ExternalStream": Stream,
    "MemoryPool": MemoryPool,
    "alloc": MemoryPointer,
    "get_current_stream": get_current_stream,
    "get_device_id": lambda: state.device,
    "is_available": lambda: State.devices > 0,
    "memory": SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    "runtime": SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        getDevice=lambda: state.device,
        setDevice=lambda number: Device(number).use(),
        getDeviceCount=lambda: State.devices,
    ),
}


def default_pool() -> MemoryPool:
    """Return ``cupy.get_default_memory_pool``'s stand-in."""
    return _pool
