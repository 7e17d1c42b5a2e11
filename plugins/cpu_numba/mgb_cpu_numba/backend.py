"""The backend object: what it accepts, and how a graph becomes a kernel."""

from __future__ import annotations

from importlib.util import find_spec

from mgb.backend import ALL_DTYPES, Backend, Kernel, Scope, Specialize, Strided, Traits
from mgb.ir import Graph, Kind

from .frame import Frame
from .launch import Launcher
from .machine import Code, build, load, toolchain
from .source import source
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
        priority=100,
    )

    def probe(self) -> str | None:
        if find_spec("numba") is None:
            return "Numba is not installed; python -m pip install numba"
        return None

    def version(self) -> str:
        return toolchain()

    def compile(self, graph: Graph) -> Kernel:
        frame = Frame(graph)
        text = source(frame)
        return _kernel(frame, text, build(text, len(frame.arrays) + 2))

    def save(self, kernel: Kernel) -> bytes | None:
        code: Code = kernel.state
        return code.dump()

    def load(self, graph: Graph, blob: bytes) -> Kernel:
        frame = Frame(graph)
        return _kernel(frame, source(frame), load(blob))


def _kernel(frame: Frame, text: Source, code: Code) -> Kernel:
    return Kernel(Launcher(frame, code.address).run, text.text, code)
