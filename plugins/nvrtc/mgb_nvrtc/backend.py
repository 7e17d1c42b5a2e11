"""The backend object: what it accepts, and how a graph becomes a kernel."""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from pathlib import Path

import mgb_cuda.driver as driver
from mgb.backends import Traits
from mgb_cuda import Device, Properties, ResourceError, generated
from mgb_cuda.generated import Generated as AnyGenerated
from mgb_cuda.generated import Kernels as AnyKernels
from mgb_cuda.generated import OnGpus

from . import compiler
from .launch import Unit
from .words import VOCABULARY

#: What its assembler says of a kernel whose arrays in shared memory are larger than any block may have.
TOO_MUCH_SHARED = "uses too much shared data"


def traits(device: str) -> Traits:
    """Return the traits of the backend on `device`."""
    return generated.traits(VOCABULARY, device, 100)


class Kernels(AnyKernels):
    """Of CUDA C++."""

    unit_class = Unit


class Generated(AnyGenerated):
    """Kernels of CUDA C++ on some device."""

    kernels = Kernels


class Nvrtc(Generated, OnGpus):
    """Kernels of CUDA C++, compiled by NVRTC to machine code for the GPU that is there."""

    name = "nvrtc"
    traits = traits("gpu")

    def gpu(self, ordinal: int) -> Device:
        return driver.CudaDevice(ordinal, Toolchain())

    def probe(self) -> str | None:
        problem = driver.missing()
        if problem is not None:
            return problem
        if toolchain() == "none" and not (os.environ.get("CUDA_PATH") or os.environ.get("CUDA_HOME")):
            return f"NVRTC is not installed; {compiler.INSTALL}"
        return driver.older_than(toolchain())

    def version(self) -> str:
        return f"{text_version()} {toolchain()} {self.target()}"


class Toolchain:
    """NVRTC, as a device asks for it."""

    def version(self) -> str:
        """Return the version without loading it."""
        return toolchain()

    def compile(self, source: str, properties: Properties) -> bytes:
        """Compile machine code for the GPU, or for the nearest that is known."""
        if find_spec("cuda") is None:
            raise compiler.NvrtcError(f"NVRTC is not installed; {compiler.INSTALL}")
        try:
            return compiler.compile_source(source, compiler.nearest(properties.capability))[0]
        except compiler.NvrtcError as error:
            if TOO_MUCH_SHARED in str(error):
                raise ResourceError(str(error)) from error
            raise


@cache
def toolchain() -> str:
    """Return the version of the NVRTC that is installed as a package; ``"none"`` where none is."""
    for name in ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"):
        try:
            return installed_version(name)
        except PackageNotFoundError:
            continue
    return "none"


@cache
def text_version() -> str:
    """Return the version of the generator: kernels of another one are not loaded from the disk."""
    return generated.text_version(Path(__file__).parent)
