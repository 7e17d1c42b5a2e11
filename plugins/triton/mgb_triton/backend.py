"""The backend object: what it accepts, and how a graph becomes a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import mgb_cuda.driver as driver
from mgb.backends import Traits
from mgb.ir import Graph, Kind
from mgb_cuda import Device, Images, Properties, generated
from mgb_cuda.generated import Generated as AnyGenerated
from mgb_cuda.generated import Kernels as AnyKernels
from mgb_cuda.generated import OnGpus

from . import compiler, matmul, products, tuning
from .launch import Unit
from .products import Products, holds_product
from .words import VOCABULARY


@cache
def traits(device: str, multiplies: bool = False) -> Traits:
    """Return the traits on `device`, with or without matrix products; saved kernels may have those anyway."""
    plain = generated.traits(VOCABULARY | {"matmul"}, device, 90)
    if not multiplies:
        return plain
    return replace(plain, kinds=plain.kinds | {Kind.CONTRACT}, products=frozenset(matmul.DTYPES))


class Claims:
    """The traits of a backend on some device: matrix products are among them when the user says so."""

    def __init__(self, device: str) -> None:
        self._device = device

    def __get__(self, _backend: object, _type: type) -> Traits:
        return traits(self._device, products.setting(products.USE) != "never")


class Kernels(AnyKernels):
    """Of Triton."""

    unit_class = Unit


def kernels(graph: Graph, devices: Callable[[Sequence[Any]], Device], images: Images) -> AnyKernels:
    """Return the kernels of a group: those of a product, or of rows."""
    return (Products if holds_product(graph) else Kernels)(graph, devices, images)


class Generated(AnyGenerated):
    """Kernels of Triton on some device."""

    kernels = staticmethod(kernels)

    def chosen(self) -> str:
        """Return the settings of products: part of the version, because kernels depend on them."""
        use = products.setting(products.USE)
        return "" if use == "never" else f" {use} {products.setting(products.PRECISION)}"


class Triton(Generated, OnGpus):
    """Kernels of Triton, compiled ahead of their launch to machine code for the GPU that is there."""

    name = "triton"
    traits = Claims("gpu")
    variables = (products.USE, products.PRECISION, tuning.SETTING)

    def gpu(self, ordinal: int) -> Device:
        return Gpu(ordinal)

    def probe(self) -> str | None:
        return compiler.missing() or driver.missing() or self._older() or products.problem()

    def _older(self) -> str | None:
        """Return why the driver may refuse machine code.

        For some GPUs Triton has an assembler that is newer.
        """
        return driver.older_than(compiler.assembler(driver.properties(driver.current()).capability))

    def version(self) -> str:
        return f"{text_version()} {compiler.version()} {self.target()}{self.chosen()}"


class Toolchain:
    """Triton, as a device asks for it."""

    def version(self) -> str:
        """Return the version without loading it."""
        return compiler.version()

    def compile(self, source: str, properties: Properties) -> bytes:
        """Return one kernel for the GPU, and what its launch must know."""
        problem = compiler.missing()
        if problem is not None:
            raise compiler.TritonError(problem)
        return compiler.compile_source(source, compiler.nearest(properties.capability)).pack()


class Gpu(driver.CudaDevice):
    """A GPU whose kernels say how much shared memory they are to be given."""

    def __init__(self, ordinal: int, arrays: Any = None) -> None:
        super().__init__(ordinal, Toolchain(), arrays)

    def load(self, image: bytes, names: Sequence[str]) -> tuple[Any, ...]:
        kernel = compiler.Compiled.unpack(image)
        (function,) = super().load(kernel.image, [kernel.name])
        driver.check_shared(kernel.shared, self.properties)
        if kernel.shared > self.properties.shared_bytes:
            driver.allow_shared(function, kernel.shared, self.ordinal)
        return ((function, kernel.shared),)

    def parts(self, function: Any) -> tuple[Any, int]:
        handle, needed = function
        return handle, needed

    def elapsed(self, run: Callable[[int], None]) -> float:
        """Measure seconds of device time of ``run(stream)``: the least of a few, after one that warms up."""
        return driver.elapsed(self.context, run, self.stream())


@cache
def text_version() -> str:
    """Return the version of the generator: kernels of another one are not loaded from the disk."""
    return generated.text_version(Path(__file__).parent)
