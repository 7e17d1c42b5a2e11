"""The backend MLIR_PTX: the same groups on NVIDIA's GPUs, as PTX that the driver makes machine code of."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from mgb.backends import Backend
from mgb.backends.plugins import hookimpl
from mgb.codegen import LOOK_UP
from mgb.ir import Graph

try:
    from mgb_cuda import Device, Properties, driver
except ImportError as error:
    raise ImportError("mgb-cuda launches its kernels: python -m pip install 'mgb-mlir[ptx]'") from error
from mgb_cuda.generated import Generated, Kernels, OnGpus, text_version
from mgb_cuda.geometry import choose, smaller
from mgb_cuda.images import Images
from mgb_cuda.launch import Unit
from mgb_cuda.packing import Packing
from mgb_cuda.pattern import Choice
from mgb_cuda.steps import Steps
from mgb_cuda.variant import Variant
from mgb_native import loop_traits
from mgb_native.nest import SCANS
from mgb_native.target import package, version_of

from . import ptx, toolchain
from .backend import Mlir
from .grid import SYMBOL, Grid, packing
from .words import NARROW, decompose_narrow

#: What a kernel can do, wherever it runs: what those of the CPU can, but for tables and scans.
TRAITS = replace(
    loop_traits(Mlir.traits.vocabulary - {LOOK_UP, *SCANS} | NARROW.keys(), priority=40), joins=False
)

_log = logging.getLogger("mgb.mlir")


class GridUnit(Unit):
    """The kernels of one graph on one device."""

    def choose(self, steps: Steps, askew: Set[int] = frozenset()) -> Choice:
        return choose(self.frame, steps, self.device.properties, askew, turns=False, clusters=False)

    def smaller(self, first: Choice, found: Steps) -> Iterator[Choice]:
        return smaller(self.frame, found, self.device.properties, first)

    def source(self, variant: Variant) -> str:
        return "\n".join(text for text, _ in self.texts(variant))

    def texts(self, variant: Variant) -> Sequence[tuple[str, tuple[str, ...]]]:
        stages = variant.stages(self.frame) or (None,)
        return [(Grid(self.frame, variant, stage).text(), (SYMBOL,)) for stage in stages]

    def packing(self, variant: Variant) -> Packing:
        return packing(self.frame, variant)

    def threads(self, variant: Variant) -> int:
        return variant.threads

    def own(self, variant: Variant) -> int:
        return variant.own


class GridKernels(Kernels):
    """A graph's kernels."""

    unit_class = GridUnit

    def __init__(self, graph: Graph, devices: Callable[[Sequence[Any]], Device], images: Images) -> None:
        super().__init__(decompose_narrow(graph), devices, images)


class GridBackend(Generated):
    """Kernels of the level ``gpu`` on some device."""

    kernels = GridKernels
    traits = TRAITS

    def version(self) -> str:
        own = f"{package(Path(__file__).parent)} {text_version()}"
        return f"{own} {Toolchain().version()}"


class MlirPtx(GridBackend, OnGpus):
    """Kernels for NVIDIA's GPUs."""

    name = "mlir_ptx"
    traits = replace(TRAITS, devices=frozenset({"gpu"}), launch_graphs=True)

    def version(self) -> str:
        return f"{super().version()} {self.target()}"

    def gpu(self, ordinal: int) -> Device:
        return driver.CudaDevice(ordinal, Toolchain())

    def probe(self) -> str | None:
        return toolchain.problem() or ptx.problem() or driver.missing()


class Toolchain:
    """MLIR and LLVM, as a device asks for them."""

    def version(self) -> str:
        """Neither is imported for it."""
        return " ".join(f"{name} {version_of(name)}" for name in (toolchain.WHEEL, "llvmlite"))

    def compile(self, source: str, properties: Properties) -> bytes:
        """PTX that such a GPU runs; the driver compiles it when it is loaded."""
        return ptx.translated(source, nearest(properties.capability)).encode() + b"\0"


@cache
def nearest(capability: tuple[int, int]) -> str:
    """The newest architecture whose code a GPU of this compute capability runs.

    Raises
    ------
    TargetError
        It is older than all.
    """
    number = 10 * capability[0] + capability[1]
    known = {int(name.removeprefix("sm_")): name for name in ptx.ARCHITECTURES}
    older = [n for n in known if n <= number]
    if not older:
        first = min(known)
        raise ptx.TargetError(
            f"PTX for sm_{number} is not made here, {known[first]} is the oldest; "
            "export MGB_JIT_BACKEND=NVRTC"
        )
    if max(older) != number:
        _log.warning("sm_%d is not known by name; its kernels are compiled for sm_%d", number, max(older))
    return known[max(older)]


@hookimpl
def mgb_backend(name: str) -> Backend | None:
    """The backend, when it is the one that is asked for."""
    return MlirPtx() if name == MlirPtx.name else None
