"""The backend object: what it accepts, and how a graph becomes a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import mgb_cuda.driver as driver
from mgb.backend import Traits
from mgb_cuda import Device, Properties, generated
from mgb_cuda.generated import Generated as AnyGenerated
from mgb_cuda.generated import Kernels as AnyKernels
from mgb_cuda.generated import OnGpus

from . import compiler
from .launch import Unit
from .words import VOCABULARY


def traits(device: str) -> Traits:
    """What its text can do there."""
    return generated.traits(VOCABULARY, device, 90)


class Kernels(AnyKernels):
    """Of Triton."""

    unit_class = Unit


class Generated(AnyGenerated):
    """Kernels of Triton on some device."""

    kernels = Kernels


class Triton(Generated, OnGpus):
    """Kernels of Triton, compiled ahead of their launch to machine code for the GPU that is there."""

    name = "triton"
    traits = traits("gpu")

    def gpu(self, ordinal: int) -> Device:
        return Gpu(ordinal)

    def probe(self) -> str | None:
        return compiler.missing() or driver.missing() or self._older()

    def _older(self) -> str | None:
        """Why the driver may refuse machine code; for some GPUs Triton has an assembler that is newer."""
        newer = driver.properties(driver.current()).capability >= (9, 0)
        return driver.older_than(compiler.ASSEMBLER if newer else compiler.OLD_ASSEMBLER)

    def version(self) -> str:
        return f"{text_version()} {compiler.version()} {self.target()}"


class Toolchain:
    """Triton, as a device asks for it."""

    def version(self) -> str:
        """Without loading it."""
        return compiler.version()

    def compile(self, source: str, properties: Properties) -> bytes:
        """One kernel for the GPU, and what its launch must know."""
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
        """Seconds of device time of ``run(stream)``: the least of a few, after one that warms up."""
        return driver.elapsed(run, self.stream())


@cache
def text_version() -> str:
    """Of the generator: kernels of another one are not taken from the disk."""
    return generated.text_version(Path(__file__).parent)
