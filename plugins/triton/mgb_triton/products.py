"""Groups with a matrix product as one kernel, for a user who asks for it.

`USE` says whether products are taken into groups, `PRECISION` how float32 is multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from mgb.ir import Graph, Kind
from mgb.runtime.config import Variable
from mgb_cuda import Device, Images
from mgb_cuda.launch import PLANS

from .matmul import PRECISIONS, Product, readable
from .parts import Parts

USES = ("never", "always")
USE = Variable(
    "MGB_TRITON_MATMUL", "never", "never: products are the library's; always: one kernel with what is around"
)
PRECISION = Variable(
    "MGB_TRITON_PRECISION",
    "ieee",
    "ieee: float32 is multiplied as it is; tf32: cut to 19 bits, on tensor cores",
)
_ALLOWED = {USE: USES, PRECISION: PRECISIONS}

_layout, _shape = attrgetter("shape", "strides"), attrgetter("shape")


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


class OnDevice:
    """The kernel of a group on one device.

    Parameters
    ----------
    parts : Parts
    device : Device
    images : Images
    precision : str
    """

    def __init__(self, parts: Parts, device: Device, images: Images, precision: str) -> None:
        self.device, cut = device, (parts.left, parts.right, parts.after)
        self.product = Product(*(p.graph for p in cut), device, precision, None, parts.transposed, images)
        self._reads = [i for part in cut for i in part.reads]
        self._constants = tuple(device.constant(node.params["value"]) for node in parts.constants)
        self._values: dict[Hashable, Mapping[str, int]] = {}

    def text(self, ready: bool) -> str:
        """Return the kernel for row-major arrays, which is compiled if it is to be `ready`."""
        form = self.product.expected()
        if ready:
            self.product.load(form)
        return self.product.source(form)

    def run(self, arrays: Sequence[Any], out: Sequence[Any]) -> None:
        """Compute the group."""
        given = (*readable(self.device, arrays, out), *self._constants)
        operands = [given[i] for i in self._reads]
        key = (*map(_layout, given), *map(_shape, out))
        values = self._values.get(key)
        if values is None:
            if len(self._values) >= PLANS:
                self._values.clear()
            values = self._values[key] = self.product.values([*operands, *out])
        self.product.launch(operands, out, values)


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
        self._devices, self._precision = devices, setting(PRECISION)
        self._made: dict[int, OnDevice] = {}

    def on_device(self, arrays: Sequence[Any] = ()) -> OnDevice:
        """Return the kernel on the device of `arrays`."""
        device = self._devices(arrays)
        found = self._made.get(id(device))
        if found is None:
            made = OnDevice(self.parts, device, self.images, self._precision)
            found = self._made.setdefault(id(device), made)
        return found

    def run(self, *arrays: Any, out: Sequence[Any]) -> None:
        """Run the kernel on these arrays."""
        self.on_device((*arrays, *out)).run(arrays, out)

    def text(self, ready: bool) -> str:
        """Return the kernel for row-major arrays of the shapes of the graph."""
        return self.on_device().text(ready)


def holds_product(graph: Graph) -> bool:
    """Return whether a group has a matrix product."""
    return any(n.op.kind is Kind.CONTRACT for n in graph.nodes)
