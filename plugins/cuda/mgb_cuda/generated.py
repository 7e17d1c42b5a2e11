"""A backend whose generated kernels run on some device: what GPU backends have in common."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mgb.backends import ALL_DTYPES, Backend, Kernel, Scope, Specialize, Strided, Traits
from mgb.codegen import row_major
from mgb.ir import Graph, Kind

from . import driver
from .chain import Chain, Wiring
from .device import Device
from .forecast import Forecast, forecast
from .frame import Frame
from .images import Images
from .joined import Joined
from .launch import Unit
from .ledger import ledger
from .pattern import Choice
from .steps import Steps


def traits(vocabulary: frozenset[str], device: str, priority: int) -> Traits:
    """Return the traits of kernels that are printed from these ops, wherever they run."""
    return Traits(
        vocabulary=vocabulary,
        kinds=frozenset({Kind.ELEMENTWISE, Kind.REDUCE}),
        dtypes=ALL_DTYPES,
        devices=frozenset({device}),
        scope=Scope.DOMAIN,
        specialize=Specialize.NDIM,
        strided=Strided.ANY,
        joins=True,
        launch_graphs=device == "gpu",
        max_inputs=128,
        priority=priority,
        api_version=1,
    )


class Kernels:
    """A graph's kernels on every device that it is called on.

    Parameters
    ----------
    graph : Graph
    devices : callable
        ``(arrays) -> Device``: where a call is to run.
    images : Images
    """

    unit_class: type[Unit]

    def __init__(self, graph: Graph, devices: Callable[[Sequence[Any]], Device], images: Images) -> None:
        self.frame, self.images = self.framed(graph), images
        self._devices = devices
        self._units: dict[int, Unit] = {}

    def framed(self, graph: Graph) -> Any:
        """Return the common part of the graph's kernels."""
        return Frame(graph)

    def unit(self, arrays: Sequence[Any] = ()) -> Unit:
        """Return the kernels on the device of `arrays`."""
        device = self._devices(arrays)
        found = self._units.get(id(device))
        if found is None:
            found = self._units.setdefault(id(device), self.unit_class(self.frame, device, self.images))
        return found

    def run(self, *arrays: Any, out: Sequence[Any]) -> None:
        """Run the kernel on the device of its arrays, where there are several."""
        self.unit((*arrays, *out)).run(*arrays, out=out)


class Generated(Backend):
    """A backend that runs the generated text on some device.

    Attributes
    ----------
    kernels : callable
        Its `Kernels`, or what makes them.
    several : bool
        Are there several devices to choose from, call by call?
    """

    kernels: Callable[[Graph, Callable[[Sequence[Any]], Device], Images], Kernels]
    several = False

    def devices(self, arrays: Sequence[Any]) -> Device:
        """Return the device that has `arrays`; with none, the one that the caller works on."""
        raise NotImplementedError

    def compile(self, graph: Graph) -> Kernel:
        return self._kernel(graph, b"", ready=True)

    def save(self, kernel: Kernel) -> bytes | None:
        images: Images = kernel.state.images
        return images.dump()

    def load(self, graph: Graph, blob: bytes) -> Kernel:
        return self._kernel(graph, blob, ready=False)

    def join(self, kernels: Sequence[Kernel]) -> Kernel | None:
        """Join kernels into few launches of equal ones; arrays of several devices take a call each."""
        if not kernels or self.several:
            return None
        text = "\n\n".join(dict.fromkeys(k.text for k in kernels))
        units = [kernel.state.unit() for kernel in kernels]
        return Kernel(Joined(units).run, text, hazards=_hazards(units), atomic=True)

    def chain(
        self,
        kernels: Sequence[Kernel],
        wiring: Wiring,
        varying: Sequence[int],
        launch_graph: bool | None = None,
    ) -> Callable[[Sequence[Any]], None] | None:
        """Return all that a call looks up is looked up once; a call fills in addresses and launches."""
        states = [kernel.state for kernel in kernels]
        if any(state is None for state in states):  # joined kernels have tables of their own
            return None
        found = [state.unit for state in states]
        return Chain(lambda arrays: [unit(arrays) for unit in found], wiring, varying, launch_graph).run

    def expectation(self, kernel: Kernel) -> str:
        """Predict by its machine code, for row-major arrays of the shapes of its graph."""
        if not (isinstance(kernel.state, Kernels) and isinstance(kernel.state.frame, Frame)):
            return ""
        found, choice = usual(kernel.state.unit())
        if choice.blocks == 0:
            return ""
        try:
            return str(expected_of(kernel.state.unit(), found, choice))
        except ValueError:  # no machine code: what makes it is the driver, or there is no GPU
            return ""
        except RuntimeError as error:
            return f"no prediction: {error}"

    def _kernel(self, graph: Graph, saved: bytes, ready: bool) -> Kernel:
        kernels = self.kernels(graph, self.devices, Images(self.name, saved))
        unit = kernels.unit()
        run = kernels.run if self.several else unit.run
        return Kernel(run, expected(unit, ready), kernels, hazards=_hazards([unit]), atomic=True)


def _hazards(units: Sequence[Unit]) -> frozenset[tuple[int, int]]:
    """Return those of units whose inputs and outputs follow each other."""
    found, x, y = [], 0, 0
    for unit in units:
        found += [(x + i, y + j) for i, j in unit.hazards]
        x, y = x + unit.inputs, y + unit.outputs
    return frozenset(found)


def expected(unit: Unit, ready: bool) -> str:
    """Return the text for row-major arrays of the shapes of the graph.

    It is compiled when it is to be `ready`.
    """
    found, choice = usual(unit)
    if ready and choice.blocks:
        choice, _ = unit.fitting(choice, found, keep=False)
    return unit.source(choice.variant)


def expected_of(unit: Unit, found: Steps, choice: Choice) -> Forecast:
    """Return how fast the launches of a choice should be."""
    return forecast(ledger(unit, choice), found.rows * found.length, unit.device.properties)


def usual(unit: Unit) -> tuple[Any, Choice]:
    """Return the steps of row-major arrays of the graph's shapes, and the choice of the rule for them."""
    specs = [o.node.spec for o in unit.frame.arrays]
    read = specs[: len(specs) - unit.outputs]
    strides = [row_major(spec.shape, spec.dtype.itemsize) for spec in read]
    found = unit.steps([spec.shape for spec in specs], strides)
    return found, unit.choose(found)


class OnGpus(Generated):
    """Kernels on the GPUs of this machine, with CuPy's arrays."""

    def __init__(self) -> None:
        self._gpus: dict[int, Device] = {}

    def gpu(self, ordinal: int) -> Device:
        """Return the GPU with this number, with what compiles for it."""
        raise NotImplementedError

    @property
    def several(self) -> bool:  # type: ignore[override]
        return driver.device_count() > 1

    def devices(self, arrays: Sequence[Any]) -> Device:
        ordinal = arrays[0].device.id if arrays and self.several else driver.current()
        if self.several and any(a.device.id != ordinal for a in arrays):
            places = ", ".join(sorted({f"gpu{a.device.id}" for a in arrays}))
            raise ValueError(
                f"the arrays of one call are on several GPUs ({places}); move them to one with `.to`"
            )
        if ordinal not in self._gpus:
            self._gpus[ordinal] = self.gpu(ordinal)
        return self._gpus[ordinal]

    def target(self) -> str:
        """Return the architecture: all that machine code needs, beside a driver."""
        if driver.missing() is not None:
            return "no GPU"
        return driver.properties(driver.current()).architecture


def text_version(*folders: Path) -> str:
    """Return the version of the generator: kernels of another one are not loaded from the disk.

    Parameters
    ----------
    folders : Path
        The backend's own; this package counts as well.
    """
    parts = [p for folder in (*folders, Path(__file__).parent) for p in sorted(folder.glob("*.*"))]
    return hashlib.sha256(b"".join(p.read_bytes() for p in parts if p.is_file())).hexdigest()[:16]


def private_folder(name: str) -> Path:
    """Return a folder of this user among temporary files, for texts that are to be looked at."""
    import tempfile

    folder = Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
