"""Groups with a matrix product: one kernel, or the product of the vendor's library between kernels.

`USE` says whether products are taken into groups, `PRECISION` how float32 is multiplied.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from typing import Any, Protocol, runtime_checkable

import numpy as np
from mgb.ir import Graph, Kind
from mgb.runtime import cache, forking
from mgb.runtime.config import Variable
from mgb_cuda import Device, Images, LaunchError
from mgb_cuda.frame import Frame
from mgb_cuda.generated import expected
from mgb_cuda.launch import PLANS

from . import tuning
from .compiler import TritonError
from .launch import Unit
from .matmul import PRECISIONS, Product, readable
from .parts import Parts
from .tiles import Tiles, candidates

_log = logging.getLogger("mgb.triton")

USES = ("never", "measured", "always")
USE = Variable(
    "MGB_TRITON_MATMUL",
    "never",
    "never: products are the library's; measured: the library's, unless one kernel is faster than it and the "
    "kernels around it; always: one kernel",
)
PRECISION = Variable(
    "MGB_TRITON_PRECISION",
    "ieee",
    "ieee: float32 is multiplied as it is; tf32: cut to 19 bits, on tensor cores",
)
_ALLOWED = {USE: USES, PRECISION: PRECISIONS}

#: The library's way, where tiles stand for the kernel with these tiles.
LIBRARY = None

Arrays = Sequence[Any]

_layout, _shape = attrgetter("shape", "strides"), attrgetter("shape")

_FOLDER = "triton"
_known: dict[str, int] = {}
_lock = forking.lock()


def setting(variable: Variable) -> str:
    """Return the user's setting; the default where it is unset or invalid: see `problem`."""
    said = variable.get()
    return said if said in _ALLOWED[variable] else variable.default


def problem() -> str | None:
    """Return the problem of the settings and how to fix it, or None."""
    for variable, words in _ALLOWED.items():
        name, said = variable.name, variable.get()
        if said not in words:
            return f"{name}={said!r} is not one of {', '.join(words)}; unset {name}"
    return None


@runtime_checkable
class Multiplier(Protocol):
    """A device with a library that multiplies matrices."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A new row-major array."""

    def multiply(self, a: Any, b: Any, out: Any) -> None:
        """The product of two matrices with any strides, into a row-major one."""


class Library:
    """The product of a device's library, with kernels for what stands before and after it.

    Parameters
    ----------
    parts : Parts
    device : Device
    images : Images
    """

    def __init__(self, parts: Parts, device: Device, images: Images) -> None:
        self.cut, self.transposed = parts.library, parts.transposed
        self.device = device
        found = (self.cut.left, self.cut.right, self.cut.after)
        self._units = [None if p.is_empty else Unit(Frame(p.graph), device, images) for p in found]

    def texts(self, ready: bool) -> list[str]:
        """Of its kernels, which are compiled when they are to be `ready`."""
        return [expected(unit, ready) for unit in self._units if unit is not None]

    def run(self, arrays: Arrays, out: Arrays, shapes: Sequence[tuple[int, int]]) -> None:
        """Compute the group, whose operands have these shapes."""
        device, after = self.device, self._units[2]
        assert isinstance(device, Multiplier)
        a, b = (self._operand(side, arrays, shape) for side, shape in enumerate(shapes))
        left, right = (x.T if flip else x for x, flip in zip((a, b), self.transposed, strict=True))
        whole = (left.shape[0], right.shape[1])
        if after is None:  # all outputs are the product
            for target in out:
                device.multiply(left, right, target.reshape(whole))
            return
        product = device.empty(whole, self.cut.dtype)
        device.multiply(left, right, product)
        after.run(product, *(arrays[i] for i in self.cut.after.reads), out=out)

    def _operand(self, side: int, arrays: Arrays, shape: tuple[int, int]) -> Any:
        part, unit = (self.cut.left, self.cut.right)[side], self._units[side]
        given = [arrays[i] for i in part.reads]
        if unit is None:
            return given[0]
        assert isinstance(self.device, Multiplier)
        made = self.device.empty(shape, part.graph.outputs[0].spec.dtype)
        unit.run(*given, out=[made])
        return made


class Ways:
    """The ways to compute a group on one device.

    Parameters
    ----------
    parts : Parts
    device : Device
    images : Images
    use, precision : str
        The settings.
    """

    def __init__(self, parts: Parts, device: Device, images: Images, use: str, precision: str) -> None:
        self.device, self.measures = device, use == "measured"
        cut = parts.fused
        graphs = (cut.left.graph, cut.right.graph, cut.after.graph)
        self.product = Product(*graphs, device, precision, None, parts.transposed, images)
        self.library = Library(parts, device, images)
        self.reads = [*cut.left.reads, *cut.right.reads, *cut.after.reads]
        self.constants = tuple(device.constant(node.params["value"]) for node in parts.constants)
        self._chosen: dict[Hashable, tuple[Tiles | None, Mapping[str, int]]] = {}

    def texts(self, ready: bool) -> list[str]:
        """Of all kernels that may be used, which are compiled when they are to be `ready`."""
        form = self.product.expected()
        if ready:
            self.product.load(form)
        return [self.product.source(form), *(self.library.texts(ready) if self.measures else ())]

    def run(self, arrays: Arrays, out: Arrays) -> None:
        """Compute the group."""
        given = (*readable(self.device, arrays, out), *self.constants)
        key = (*map(_layout, given), *map(_shape, out))
        try:
            way, values = self._chosen[key]
        except KeyError:
            values = self.product.values([*(given[i] for i in self.reads), *out])
            way = self._choose(values, given, out)
            if len(self._chosen) >= PLANS:
                self._chosen.clear()
            self._chosen[key] = way, values
        self.compute(way, values, given, out)

    def compute(self, way: Tiles | None, values: Mapping[str, int], given: Arrays, out: Arrays) -> None:
        """Compute the group in this way, on arrays and constants."""
        if way is LIBRARY:
            self.library.run(given, out, self.product.shapes(values))
        else:
            self.product.launch([given[i] for i in self.reads], out, values, way)

    # the choice

    def _choose(self, values: Mapping[str, int], given: Arrays, out: Arrays) -> Tiles | None:
        """The way for calls of these sizes."""
        rule = self.product.rule(values)
        clocked = isinstance(self.device, tuning.Clock) and tuning.is_on()
        if not (self.measures and clocked):
            return LIBRARY if self.measures else rule
        ways = [LIBRARY, *candidates(rule)]
        key = self._key(values, rule)
        with _lock:
            which = _known.get(key, -1)
            if which < 0:
                kept = cache.load(_FOLDER, key)
                which = int.from_bytes(kept, "little") if kept else -1
                if not 0 <= which < len(ways):
                    if self.device.is_capturing():
                        return LIBRARY
                    which = self._fastest(ways, values, given, out)
                    cache.store(_FOLDER, key, which.to_bytes(2, "little"))
                _known[key] = which
        return ways[which]

    def _key(self, values: Mapping[str, int], rule: Tiles) -> str:
        """Equal for calls that one measurement serves: of the same text, and of like sizes."""
        sizes = [values[size].bit_length() for size in "mnk"]
        form = replace(self.product.expected(), tiles=rule)
        parts = (self.device.key(), self.device.properties.name, self.device.toolchain(), str(sizes))
        text = "\n".join(("product", *parts, self.product.source(form), *self.library.texts(ready=False)))
        return hashlib.sha256(text.encode()).hexdigest()

    def _fastest(
        self, ways: Sequence[Tiles | None], values: Mapping[str, int], given: Arrays, out: Arrays
    ) -> int:
        """Which of these ways is the fastest on these arrays; what they write is thrown away."""
        device = self.device
        assert isinstance(device, Multiplier)
        best, least = 0, float("inf")
        with suppress(MemoryError):
            room = [device.empty(a.shape, a.dtype) for a in out]
            for which, way in enumerate(ways):
                with suppress(LaunchError, TritonError):  # too much for this GPU
                    seconds = self._seconds(way, values, given, room)
                    _log.debug("product %d: %.1f us with %s", which, 1e6 * seconds, way or "the library")
                    if seconds < (tuning.GAIN if best == 0 and which else 1.0) * least:
                        best, least = which, seconds
        return best

    def _seconds(self, way: Tiles | None, values: Mapping[str, int], given: Arrays, out: Arrays) -> float:
        device = self.device
        assert isinstance(device, tuning.Clock)

        def run(_stream: int) -> None:  # the library works on the caller's stream, so all of it does
            self.compute(way, values, given, out)

        return device.elapsed(run)


class Products:
    """A group with a product, on every device that it is called on: what its `Kernel` keeps.

    Parameters
    ----------
    graph : Graph
        Lowered.
    devices : callable
        ``(arrays) -> Device``: where a call is to run.
    images : Images
    """

    def __init__(self, graph: Graph, devices: Callable[[Sequence[Any]], Device], images: Images) -> None:
        self.parts, self.images = Parts(graph), images
        self._devices, self._use, self._precision = devices, setting(USE), setting(PRECISION)
        self._ways: dict[int, Ways] = {}

    def ways(self, arrays: Sequence[Any] = ()) -> Ways:
        """Those of the device of `arrays`."""
        device = self._devices(arrays)
        found = self._ways.get(id(device))
        if found is None:
            made = Ways(self.parts, device, self.images, self._use, self._precision)
            found = self._ways.setdefault(id(device), made)
        return found

    def run(self, *arrays: Any, out: Sequence[Any]) -> None:
        """Run the kernel on these arrays."""
        self.ways((*arrays, *out)).run(arrays, out)

    def text(self, ready: bool) -> str:
        """The kernels, for row-major arrays of the shapes of the graph."""
        return "\n\n".join(self.ways().texts(ready))


def holds_product(graph: Graph) -> bool:
    """Is there a matrix product in a group?"""
    return any(n.op.kind is Kind.CONTRACT for n in graph.nodes)
