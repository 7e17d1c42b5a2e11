"""How the suite drives a backend: what the core would hand it, between guard bands and under a clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

import numpy as np
from mgb import plugins
from mgb.backends import Backend, Kernel, Specialize
from mgb.codegen import structure_key
from mgb.ir import Graph
from mgb.passes import lower

from .places import Host, place_of
from .watch import Watch

#: Bytes on both sides of an output that a kernel must leave alone.
GUARD = 4096
FILL = 0xA5


class ConformanceError(AssertionError):
    """The backend broke the contract of `mgb.backends.Kernel`."""


@dataclass
class Driver:
    """A backend under test.

    Parameters
    ----------
    backend : Backend
    timeout : float
        Seconds that one compilation or one run may take.
    watch : Watch, optional
        Who is told what is being done, lest it hang.

    Attributes
    ----------
    hang : str
        What has taken longer, if anything has.
    place : Host
        Where the arrays lie that the backend is given.
    """

    backend: Backend
    timeout: float = 60.0
    watch: Watch | None = None
    hang: str = ""
    _kernels: dict[str, Kernel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.place = place_of(self.backend.traits)

    def compile(self, graph: Graph) -> Kernel:
        """Return the kernel of `graph`; one that serves it already is used again, as the traits promise."""
        lowered = lower(graph, self.backend.traits)
        by_shape = self.backend.traits.specialize in (Specialize.SHAPE, Specialize.SIZES)
        key = lowered.key if by_shape else structure_key(lowered)
        if key not in self._kernels:
            self._kernels[key] = self._limited("compile", lowered, lambda: self.backend.compile(lowered))
        return self._kernels[key]

    def run(
        self, graph: Graph, arrays: Sequence[Any], over: dict[int, int] | None = None
    ) -> list[np.ndarray]:
        """Return the outputs of `graph` on `arrays`.

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
        kernel, place = self.compile(graph), self.place
        over = over or {}
        before = [a.copy() for a in arrays]
        given = [
            guarded_copy(a, place) if i in over.values() else (None, place.put(a))
            for i, a in enumerate(arrays)
        ]
        fresh = [guarded(o.spec.shape, o.spec.dtype, place) for o in graph.outputs]
        out = [given[over[k]] if k in over else pair for k, pair in enumerate(fresh)]
        self._limited("run", graph, lambda: kernel.run(*(a for _, a in given), out=tuple(a for _, a in out)))
        for k, (base, array) in enumerate(out):
            start = place.address(array) - place.address(base)
            _check_guards(k, place.get(base), start, place.get(array))
        for i, (old, (_, new)) in enumerate(zip(before, given, strict=True)):
            if i not in over.values() and old.tobytes() != place.get(new).tobytes():
                raise ConformanceError(f"the kernel wrote into input {i}")
        return [place.get(array) for _, array in out]

    def fill(self, kernel: Kernel, graph: Graph, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the outputs of a kernel of `graph`, with nothing around them.

        For several threads at once.
        """
        out = tuple(guarded(o.spec.shape, o.spec.dtype, self.place)[1] for o in graph.outputs)
        self._tell("run", graph)
        kernel.run(*map(self.place.put, arrays), out=out)
        return [self.place.get(array) for array in out]

    def written(self, graph: Graph, arrays: Sequence[Any], window: Callable[[Any], Any]) -> list[np.ndarray]:
        """Return the outputs of `graph`, each in the `window` of an array that has one and twice its lengths.

        Raises
        ------
        ConformanceError
            The kernel wrote beside a window.
        """
        kernel, place = self.compile(graph), self.place
        shapes = [tuple(2 * d + 1 for d in o.spec.shape) for o in graph.outputs]
        bases = [
            guarded(shape, o.spec.dtype, place)[1] for shape, o in zip(shapes, graph.outputs, strict=True)
        ]
        out = tuple(window(base) for base in bases)
        self._limited("run", graph, lambda: kernel.run(*map(place.put, arrays), out=out))
        found = [place.get(array).copy() for array in out]
        for k, base in enumerate(map(place.get, bases)):
            rest = np.ones(base.shape, bool)
            window(rest)[...] = False
            if not (np.ascontiguousarray(base[rest]).view(np.uint8) == FILL).all():
                raise ConformanceError(f"the kernel wrote beside the window of output {k}")
        return found

    def at_once(self, kernel: Kernel, graph: Graph, arrays: Sequence[Any], step: int) -> list[np.ndarray]:
        """Return every `step`-th element of the outputs, as it is when the kernel returns.

        `FILL` if unwritten.
        """
        out = tuple(guarded(o.spec.shape, o.spec.dtype, self.place)[1].reshape(-1) for o in graph.outputs)
        shaped = tuple(a.reshape(o.spec.shape) for a, o in zip(out, graph.outputs, strict=True))
        self._tell("run", graph)
        kernel.run(*arrays, out=shaped)
        return [self.place.get(a[::step]).copy() for a in out]

    def _tell(self, what: str, graph: Graph) -> None:
        if self.watch is not None:
            self.watch.tell(doing=f"{what} of\n{graph}")

    def _limited(self, what: str, graph: Graph, action: Callable[[], Any]) -> Any:
        """Return the result of `action`, in a thread of its own so that a hang is a failure of this test."""
        if self.hang:
            raise ConformanceError(f"not tried, for the backend hung before: {self.hang}")
        self._tell(what, graph)
        result: list[Any] = []

        def work() -> None:
            try:
                result.append((action(), None))
            except BaseException as error:
                result.append((None, error))

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(self.timeout)
        if not result:
            self.hang = f"{what} took more than {self.timeout} s"
            raise ConformanceError(f"the backend hangs: {self.hang}, of\n{graph}")
        value, error = result[0]
        if error is not None:
            raise error
        return value


def is_announced(name: str) -> bool:
    """Return whether another process finds the backend, by an entry point or as part of the core."""
    if any(point.name.lower() == name for point in entry_points(group=plugins.GROUP)):
        return True
    return type(plugins.manager.get_plugin(name)).__module__ == plugins.__name__


def guarded(shape: tuple[int, ...], dtype: np.dtype[Any], place: Host) -> tuple[Any, Any]:
    """Return a buffer full of `FILL`, and the array of `shape` in the middle of it."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    base = place.filled(nbytes + 2 * GUARD + 64, FILL)
    start = GUARD + -(place.address(base) + GUARD) % 64
    return base, base[start : start + nbytes].view(dtype).reshape(shape)


def guarded_copy(array: np.ndarray, place: Host) -> tuple[Any, Any]:
    """Guard a copy with the values of `array`, like `guarded`."""
    base, copy = guarded(array.shape, array.dtype, place)
    place.assign(copy, array)
    return base, copy


def _check_guards(number: int, base: np.ndarray, start: int, array: np.ndarray) -> None:
    if array.size and not (base[:start] == FILL).all():
        raise ConformanceError(f"the kernel wrote before the start of output {number}")
    if array.size and not (base[start + array.nbytes :] == FILL).all():
        raise ConformanceError(f"the kernel wrote past the end of output {number}")
    if not array.size and not (base == FILL).all():
        raise ConformanceError(f"the kernel wrote into output {number}, which is empty")
    if array.dtype == bool and array.size and array.view(np.uint8).max() > 1:
        raise ConformanceError(f"output {number} has bytes that are no booleans, or were never written")
