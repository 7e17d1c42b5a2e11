"""The backend object: what it accepts, and how a graph becomes a kernel."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.util import find_spec

from mgb_native import NativeBackend, loop_traits
from mgb_native.code import Code
from mgb_native.frame import Frame
from mgb_native.nest import VOCABULARY
from mgb_native.target import digest, processor, python, vector_bytes, version_of

from .builder import Kernel


class CpuNumba(NativeBackend):
    """Fused loops for the CPU, compiled by Numba."""

    name = "cpu_numba"
    distribution = "mgb-cpu-numba"
    traits = replace(loop_traits(VOCABULARY, priority=60), strided_outputs=True)

    def probe(self) -> str | None:
        if find_spec("numba") is None:
            return "Numba is not installed; python -m pip install numba"
        return self.machine_problem()

    def version(self) -> str:
        chosen = "".join(os.environ.get(f"NUMBA_CPU_{what}", "") for what in ("NAME", "FEATURES"))
        compilers = f"numba {version_of('numba')} llvmlite {version_of('llvmlite')}"
        return f"{self.package} {compilers} {python()} {processor()} {digest(chosen.encode())}"

    def print(self, frame: Frame) -> str:
        return Kernel(frame, vector_bytes()).text()

    def build(self, printed: str) -> Code:
        from .pipeline import build

        return build(printed)
