"""The memory of a program's temporaries, and how arrays on a device are allocated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from ..ir import Node, Spec
from ..ir.sizes import At
from ..runtime import memory, ownership
from ..runtime.device import array_module, is_gpu, memory_explained, on, ordinal
from .plan import MemoryPlan
from .resized import spec_at

_BYTE = np.dtype(np.uint8)


class Workspaces:
    """The arenas of a program: one for each call that runs at the same time, kept between calls.

    Programs that were not called for long give theirs up: see `memory.trim`.

    Parameters
    ----------
    nbytes : int
        The size of an arena.
    layout : sequence of (int, Spec)
        Offset and type of each temporary.
    device : str
    """

    def __init__(self, nbytes: int, layout: Sequence[tuple[int, Spec]], device: str) -> None:
        self._nbytes, self._layout, self._device = nbytes, tuple(layout), device
        self._idle: list[tuple[Any, ...]] = []
        self.used = memory.next_use()
        memory.release_idle(self)

    def take(self) -> tuple[Any, ...]:
        """Return the temporaries of an arena that no other call uses."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._new()

    def give(self, workspace: tuple[Any, ...]) -> None:
        """Let the next call have it."""
        self._idle.append(workspace)
        self.used = memory.next_use()

    def idle_bytes(self) -> int:
        """Return the bytes of the workspaces that no call uses."""
        return self._nbytes * len(self._idle)

    def release(self) -> None:
        """Drop the arenas that no call uses."""
        self._idle.clear()

    def _new(self) -> tuple[Any, ...]:
        memory.trim()
        with on(self._device) if is_gpu(self._device) else nullcontext():
            arena = allocator(self._device)((self._nbytes,), _BYTE)
        parts = ((arena[offset : offset + spec.nbytes], spec) for offset, spec in self._layout)
        return tuple(part.view(spec.dtype).reshape(spec.shape) for part, spec in parts)


#: CUDA's handle of the default stream of whichever thread asks: one number for several streams.
PER_THREAD = 2


class StreamWorkspaces(Workspaces):
    """Those on a GPU: an arena serves one stream, whose work may go on when a call has returned.

    The default streams of threads are not told apart by their handle. Arenas for them are not kept: CuPy's
    pool has them, which knows the threads.
    """

    def __init__(self, nbytes: int, layout: Sequence[tuple[int, Spec]], device: str) -> None:
        self._current = partial(array_module(device).cuda.get_current_stream, ordinal(device))
        self._of_streams: dict[int, list[tuple[Any, ...]]] = {}
        super().__init__(nbytes, layout, device)

    def take(self) -> tuple[Any, ...]:
        try:
            return self._of_streams[self._current().ptr].pop()
        except (KeyError, IndexError):
            return self._new()

    def give(self, workspace: tuple[Any, ...]) -> None:
        stream = self._current().ptr
        if stream != PER_THREAD:
            self._of_streams.setdefault(stream, []).append(workspace)
        self.used = memory.next_use()

    def idle_bytes(self) -> int:
        return self._nbytes * sum(map(len, list(self._of_streams.values())))

    def release(self) -> None:
        self._of_streams.clear()


def workspaces(nbytes: int, layout: Sequence[tuple[int, Spec]], device: str) -> Workspaces:
    """Return the arenas of a program on `device`."""
    return (StreamWorkspaces if is_gpu(device) else Workspaces)(nbytes, layout, device)


def allocator(device: str) -> Callable[..., Any]:
    """Return ``empty(shape, dtype)`` for arrays on `device`."""
    if not is_gpu(device):
        return memory.empty
    empty = array_module(device).empty

    def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Allocate like CuPy on its current GPU, which is `device`."""
        try:
            return empty(shape, dtype)
        except MemoryError:
            memory.empty_cache()
        with memory_explained(device, f"an array of shape {shape}"):
            return empty(shape, dtype)

    return allocate


def fresh_on(device: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[[], Any]:
    """Return an allocator of arrays on `device`, whichever GPU is the current one."""
    make = allocator(device)

    def fresh() -> Any:
        with on(device):
            return make(shape, dtype)

    return fresh if is_gpu(device) else partial(make, shape, dtype)


# what a program asks for the memory of a call, for the lengths of `at`


def arenas_at(plan: MemoryPlan, device: str, at: At) -> dict[str, Any]:
    """Return the functions that give the temporaries of `plan`, and take them back."""
    offsets, nbytes = plan.packed(at)
    layout = [(offset, spec_at(n.spec, at)) for offset, n in zip(offsets, plan.temporaries, strict=True)]
    arenas = workspaces(nbytes, layout, device)
    return {"take": arenas.take, "give": arenas.give}


def targets_at(updated: Mapping[Node, int], at: At) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """See `ownership.Updates.targets`; each result is written over the input at that place."""
    fresh = [fresh_on(n.spec.device, at(n.spec.shape), n.spec.dtype) for n in updated]
    return ownership.Updates(tuple(updated.values()), fresh).targets


def spare_at(positions: Sequence[int], _: At) -> Callable[[Sequence[Any]], tuple[bool, ...]]:
    """See `ownership.Updates.spare`."""
    return ownership.Updates(positions).spare
