"""The backend object: what it accepts, and how a graph becomes a kernel."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from mgb.backend import ALL_DTYPES, Backend, Kernel, Scope, Specialize, Strided, Traits
from mgb.ir import Graph, Kind

from .frame import Frame
from .launch import Launcher, Unit
from .machine import Code, build, load
from .native import MACHINES
from .source import source
from .target import mismatch, target, toolchain
from .words import VOCABULARY
from .writer import Source


class CpuNumba(Backend):
    """Fused loops for the CPU, compiled by Numba."""

    name = "cpu_numba"
    traits = Traits(
        vocabulary=VOCABULARY,
        kinds=frozenset({Kind.ELEMENTWISE, Kind.REDUCE}),
        dtypes=ALL_DTYPES,
        devices=frozenset({"cpu"}),
        scope=Scope.DOMAIN,
        specialize=Specialize.NDIM,
        strided=Strided.ANY,
        joins=True,
        priority=100,
    )

    def probe(self) -> str | None:
        if find_spec("numba") is None:
            return "Numba is not installed; python -m pip install numba"
        if sys.platform != "linux" or platform.machine() not in MACHINES:
            here = f"{sys.platform} on {platform.machine()}"
            return f"it runs on Linux ({', '.join(MACHINES)}), this is {here}; export MGB_JIT_BACKEND=EAGER"
        return None

    def join(self, kernels: Sequence[Kernel]) -> Kernel | None:
        """One native call for all; they share its threads when they are worth it together."""
        if not kernels:
            return None
        units = [kernel.state for kernel in kernels]
        return Kernel(Launcher(units).run, "\n\n".join(k.source for k in dict.fromkeys(kernels)))

    def version(self) -> str:
        return toolchain()

    def target(self) -> str:
        return target()

    def mismatch(self, target: str) -> str | None:
        try:
            return mismatch(target)
        except (ValueError, KeyError, TypeError) as error:
            return f"what they need is not said as this version says it: {error}"

    def compile(self, graph: Graph) -> Kernel:
        frame = Frame(graph)
        text = source(frame)
        return _kernel(frame, text, build(text, 3))

    def save(self, kernel: Kernel) -> bytes | None:
        unit: Unit = kernel.state
        return unit.code.dump()

    def load(self, graph: Graph, blob: bytes) -> Kernel:
        frame = Frame(graph)
        return _kernel(frame, source(frame), load(blob))


def _kernel(frame: Frame, text: Source, code: Code) -> Kernel:
    unit = Unit(frame, code)
    return Kernel(Launcher([unit]).run, text.text, unit)
