"""The backend object: what it accepts, and how a graph becomes a kernel."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mgb_cuda.driver as driver
from mgb.backend import ALL_DTYPES, Backend, Kernel, Scope, Specialize, Strided, Traits
from mgb.codegen import row_major
from mgb.ir import Graph
from mgb.ir import Kind as OpKind
from mgb_cuda import Device, Images, Properties

from . import compiler
from .frame import Frame
from .geometry import choose
from .joined import Joined
from .launch import Unit
from .source import source
from .steps import steps
from .words import VOCABULARY


def traits(device: str) -> Traits:
    """What the generated text can do, wherever it runs."""
    return Traits(
        vocabulary=VOCABULARY,
        kinds=frozenset({OpKind.ELEMENTWISE, OpKind.REDUCE}),
        dtypes=ALL_DTYPES,
        devices=frozenset({device}),
        scope=Scope.DOMAIN,
        specialize=Specialize.NDIM,
        strided=Strided.ANY,
        joins=True,
        max_inputs=128,
        priority=100,
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

    def __init__(self, graph: Graph, devices: Callable[[Sequence[Any]], Device], images: Images) -> None:
        self.frame, self.images = Frame(graph), images
        self._devices = devices
        self._units: dict[int, Unit] = {}

    def unit(self, arrays: Sequence[Any] = ()) -> Unit:
        """The kernels on the device of `arrays`."""
        device = self._devices(arrays)
        found = self._units.get(id(device))
        if found is None:
            found = self._units.setdefault(id(device), Unit(self.frame, device, self.images))
        return found

    def run(self, *arrays: Any, out: Sequence[Any]) -> None:
        """What a `Kernel` runs where there are several devices."""
        self.unit((*arrays, *out)).run(*arrays, out=out)


class Generated(Backend):
    """A backend that runs the generated text on some device.

    Attributes
    ----------
    several : bool
        Are there several devices to choose from, call by call?
    """

    several = False

    def devices(self, arrays: Sequence[Any]) -> Device:
        """The device that has `arrays`; with none, the one that the caller works on."""
        raise NotImplementedError

    def compile(self, graph: Graph) -> Kernel:
        return self._kernel(graph, b"", ready=True)

    def save(self, kernel: Kernel) -> bytes | None:
        images: Images = kernel.state.images
        return images.dump()

    def load(self, graph: Graph, blob: bytes) -> Kernel:
        return self._kernel(graph, blob, ready=False)

    def join(self, kernels: Sequence[Kernel]) -> Kernel | None:
        """Few launches for all that are alike; arrays of several devices take a call each."""
        if not kernels or self.several:
            return None
        text = "\n\n".join(dict.fromkeys(k.source for k in kernels))
        return Kernel(Joined([kernel.state.unit() for kernel in kernels]).run, text)

    def _kernel(self, graph: Graph, saved: bytes, ready: bool) -> Kernel:
        kernels = Kernels(graph, self.devices, Images(self.name, saved))
        unit = kernels.unit()
        return Kernel(kernels.run if self.several else unit.run, expected(unit, ready), kernels)


def expected(unit: Unit, ready: bool) -> str:
    """The text for row-major arrays of the shapes of the graph; it is compiled when it is to be `ready`."""
    specs = [o.node.spec for o in unit.frame.arrays]
    read = specs[: len(specs) - unit.outputs]
    strides = [row_major(spec.shape, spec.dtype.itemsize) for spec in read]
    found = steps(unit.frame, [spec.shape for spec in specs], strides)
    choice = choose(unit.frame, found, unit.device.properties)
    if ready and choice.blocks:
        unit.load(choice.variant, keep=False)
    return source(unit.frame, choice.variant)


class Nvrtc(Generated):
    """Kernels of CUDA C++, compiled by NVRTC to machine code for the GPU that is there."""

    name = "nvrtc"
    traits = traits("gpu")

    def __init__(self) -> None:
        self._gpus: dict[int, Device] = {}

    @property
    def several(self) -> bool:  # type: ignore[override]
        return driver.device_count() > 1

    def devices(self, arrays: Sequence[Any]) -> Device:
        ordinal = arrays[0].device.id if arrays and self.several else driver.current()
        if self.several and any(a.device.id != ordinal for a in arrays):
            places = ", ".join(sorted({f"gpu{a.device.id}" for a in arrays}))
            raise ValueError(f"the arrays of one call lie on several GPUs ({places}); move them with `.to`")
        if ordinal not in self._gpus:
            self._gpus[ordinal] = driver.CudaDevice(ordinal, Toolchain())
        return self._gpus[ordinal]

    def probe(self) -> str | None:
        problem = driver.missing()
        if problem is not None:
            return problem
        if toolchain() == "none" and not (os.environ.get("CUDA_PATH") or os.environ.get("CUDA_HOME")):
            return f"NVRTC is not installed; {compiler.INSTALL}"
        return None

    def version(self) -> str:
        return f"{text_version()} {toolchain()} {self.target()}"

    def target(self) -> str:
        """The architecture: all that machine code needs, beside a driver."""
        if driver.missing() is not None:
            return "no GPU"
        return driver.properties(driver.current()).architecture


class Toolchain:
    """NVRTC, as a device asks for it."""

    def version(self) -> str:
        """Without loading it."""
        return toolchain()

    def compile(self, source: str, properties: Properties) -> bytes:
        """Machine code for the GPU, or for the nearest that is known."""
        if find_spec("cuda") is None:
            raise compiler.NvrtcError(f"NVRTC is not installed; {compiler.INSTALL}")
        return compiler.compile_source(source, compiler.nearest(properties.capability))[0]


@cache
def toolchain() -> str:
    """The version of the NVRTC that is installed as a package; ``"none"`` where none is."""
    for name in ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"):
        try:
            return installed_version(name)
        except PackageNotFoundError:
            continue
    return "none"


@cache
def text_version() -> str:
    """Of the generator: kernels of another one are not taken from the disk."""
    files = sorted(Path(__file__).parent.glob("*.*"))
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:16]
