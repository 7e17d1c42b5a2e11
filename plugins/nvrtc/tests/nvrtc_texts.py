"""The texts of kernels: what they take by NVRTC's report, and one place of them changed."""

from __future__ import annotations

from collections.abc import Sequence

from mgb_cuda.testing.compiled import OnPaper
from mgb_cuda.testing.host import HostDevice
from mgb_cuda.testing.mutations import mutate
from mgb_nvrtc import compiler
from nvrtc_helpers import BENCH

#: What is generated for a kernel begins here.
GENERATED = "typedef int I;"


def usage(text: str, architecture: int) -> Sequence[compiler.Usage]:
    """Return the resources that the kernels of a text take."""
    return compiler.usage(text, f"sm_{architecture}")


def on_paper(architecture: int = 90) -> OnPaper:
    """A GPU that nothing is launched on."""
    return OnPaper(usage, architecture)


def mutant(pattern: str, into: str, which: int, multiprocessors: int = 32) -> HostDevice:
    """A device that changes one place of each kernel before it is compiled."""
    device: HostDevice = BENCH.device(multiprocessors)
    mutate(device, pattern, into, which, GENERATED)
    return device
