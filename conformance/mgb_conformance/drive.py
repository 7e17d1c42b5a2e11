"""How the suite drives a backend: what the core would hand it, between guard bands and under a clock."""

from __future__ import annotations

import faulthandler
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mgb.backend import Backend, Kernel, Specialize
from mgb.codegen import structure_key
from mgb.ir import Graph
from mgb.passes import lower

#: Bytes on both sides of an output that a kernel must leave alone.
GUARD = 4096
FILL = 0xA5


class ConformanceError(AssertionError):
    """The backend broke the contract of `mgb.backend.Kernel`."""


@dataclass
class Driver:
    """A backend under test.

    Parameters
    ----------
    backend : Backend
    timeout : float
        Seconds that one compilation or one run may take.
    """

    backend: Backend
    timeout: float = 60.0
    _kernels: dict[str, Kernel] = field(default_factory=dict)
    _hang: str = ""

    def compile(self, graph: Graph) -> Kernel:
        """The kernel of `graph`; one that serves it already is used again, as the traits promise."""
        lowered = lower(graph, self.backend.traits)
        by_shape = self.backend.traits.specialize is Specialize.SHAPE
        key = lowered.key if by_shape else structure_key(lowered)
        if key not in self._kernels:
            self._kernels[key] = self._limited("compile", lambda: self.backend.compile(lowered))
        return self._kernels[key]

    def run(
        self, graph: Graph, arrays: Sequence[Any], over: dict[int, int] | None = None
    ) -> list[np.ndarray]:
        """The outputs of `graph` on `arrays`.

        Parameters
        ----------
        graph : Graph
        arrays : sequence of ndarray
            In a layout that the traits accept.
        over : dict, optional
            ``{output: input}``: outputs that are to be written over the memory of an input.

        Raises
        ------
        ConformanceError
            The kernel wrote outside its outputs or into an input, left an output unwritten, or took too long.
        """
        kernel = self.compile(graph)
        over = over or {}
        before = [a.copy() for a in arrays]
        given = [guarded_copy(a) if i in over.values() else (None, a) for i, a in enumerate(arrays)]
        fresh = [guarded(o.spec.shape, o.spec.dtype) for o in graph.outputs]
        out = [given[over[k]] if k in over else pair for k, pair in enumerate(fresh)]
        self._limited("run", lambda: kernel.run(*(a for _, a in given), out=tuple(a for _, a in out)))
        for k, (base, array) in enumerate(out):
            _check_guards(k, base, array)
        for i, (old, new) in enumerate(zip(before, arrays, strict=True)):
            if old.tobytes() != new.tobytes():
                raise ConformanceError(f"the kernel wrote into input {i}")
        return [array for _, array in out]

    def _limited(self, what: str, action: Callable[[], Any]) -> Any:
        """The result of `action`, in a thread of its own so that a hang is a failure and not the end."""
        if self._hang:
            raise ConformanceError(f"not tried, for the backend hung before: {self._hang}")
        result: list[Any] = []

        def work() -> None:
            try:
                result.append((action(), None))
            except BaseException as error:
                result.append((None, error))

        thread = threading.Thread(target=work, daemon=True)
        # A hang that holds Python's lock ends here only.
        faulthandler.dump_traceback_later(4 * self.timeout, exit=True, file=sys.__stderr__)
        try:
            thread.start()
            thread.join(self.timeout)
        finally:
            faulthandler.cancel_dump_traceback_later()
        if not result:
            self._hang = f"{what} took more than {self.timeout} s"
            raise ConformanceError(f"the backend hangs: {self._hang}")
        value, error = result[0]
        if error is not None:
            raise error
        return value


def guarded(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[np.ndarray, np.ndarray]:
    """A buffer full of `FILL`, and the array of `shape` in the middle of it."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    base = np.full(nbytes + 2 * GUARD + 64, FILL, np.uint8)
    start = GUARD + -(base.ctypes.data + GUARD) % 64
    return base, base[start : start + nbytes].view(dtype).reshape(shape)


def guarded_copy(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As `guarded`, with the values of `array`."""
    base, copy = guarded(array.shape, array.dtype)
    copy[...] = array
    return base, copy


def _check_guards(number: int, base: np.ndarray, array: np.ndarray) -> None:
    start = array.ctypes.data - base.ctypes.data
    if array.size and not (base[:start] == FILL).all():
        raise ConformanceError(f"the kernel wrote before the start of output {number}")
    if array.size and not (base[start + array.nbytes :] == FILL).all():
        raise ConformanceError(f"the kernel wrote past the end of output {number}")
    if not array.size and not (base == FILL).all():
        raise ConformanceError(f"the kernel wrote into output {number}, which is empty")
    if array.dtype == bool and array.size and array.view(np.uint8).max() > 1:
        raise ConformanceError(f"output {number} has bytes that are no booleans, or were never written")
