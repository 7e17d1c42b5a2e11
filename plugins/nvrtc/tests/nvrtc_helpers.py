"""NVRTC as the shared tests see it: a backend whose kernels run on the host, and one for any device."""

from __future__ import annotations

from mgb_cuda import Properties
from mgb_cuda.driver import CudaDevice
from mgb_cuda.testing.bench import Bench, OnDevice, call, provider, unasked
from mgb_cuda.testing.host import PROPERTIES, HostDevice, missing
from mgb_nvrtc.backend import Generated, Nvrtc, Toolchain, text_version, traits

__all__ = ["BACKEND", "BENCH", "OnHost", "Plugin", "call", "traced"]


class OnHost(OnDevice, Generated):
    """The text that NVRTC would be given, run by the host."""

    name = "nvrtc_on_host"
    traits = unasked(traits("cpu"))

    def __init__(self, device: HostDevice | None = None) -> None:
        super().__init__(device or HostDevice())

    def probe(self) -> str | None:
        return missing()

    def version(self) -> str:
        return text_version()


class Given(OnDevice, Generated):
    """The text for a device that a test has made."""

    name = "nvrtc_given"
    traits = traits("gpu")


BENCH = Bench(
    Nvrtc,
    OnHost,
    Given,
    device=lambda n: HostDevice(properties=Properties(PROPERTIES.name, PROPERTIES.capability, n)),
    driver=lambda arrays: CudaDevice(0, Toolchain(), arrays),
)
BACKEND = OnHost()
Plugin = provider(BACKEND)
traced = BENCH.traced
