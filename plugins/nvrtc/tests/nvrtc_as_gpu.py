"""The backend for Tensors on a GPU that is none: arrays of the stand-in for CuPy, kernels run by the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgb_conformance import standin
from mgb_cuda import Device
from mgb_cuda.arrays import CupyArrays
from mgb_cuda.testing import host
from mgb_cuda.testing.bench import provider
from mgb_nvrtc.backend import text_version, traits
from nvrtc_helpers import OnHost


class HostGpu(host.HostDevice):
    """The host as a GPU that has the arrays of the stand-in."""

    def __init__(self, ordinal: int) -> None:
        super().__init__()
        arrays = CupyArrays(ordinal)
        for name in ("address", "stream", "scratch", "upload", "constant", "contiguous"):
            setattr(self, name, getattr(arrays, name))


class OnGpu(OnHost):
    """The text of NVRTC, for tensors on a GPU, run by the host."""

    name = "nvrtc_as_gpu"
    traits = traits("gpu")

    def __init__(self) -> None:
        self._gpus: dict[int, Device] = {}

    @property
    def several(self) -> bool:  # type: ignore[override]
        return standin.State.devices > 1

    def devices(self, arrays: Sequence[Any]) -> Device:
        ordinal = arrays[0].device.id if arrays else standin.state.device
        return self._gpus.setdefault(ordinal, HostGpu(ordinal))

    def version(self) -> str:
        return f"{text_version()} {standin.State.devices}"


BACKEND = OnGpu()
Plugin = provider(BACKEND)
