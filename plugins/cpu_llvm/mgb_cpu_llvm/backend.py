"""The backend object: what it accepts, and how a graph becomes a kernel."""

from __future__ import annotations

from dataclasses import replace

from mgb_native import NativeBackend, loop_traits
from mgb_native.code import Code, place
from mgb_native.frame import Frame
from mgb_native.native import emit
from mgb_native.nest import SYMBOL, VOCABULARY
from mgb_native.target import processor, python, vector_bytes, version_of

from .builder import Kernel

#: How hard LLVM tries to choose instructions. The vectors are there already.
EFFORT = 2


class CpuLlvm(NativeBackend):
    """Fused loops for the CPU, written in the language of LLVM."""

    name = "cpu_llvm"
    distribution = "mgb-cpu-llvm"
    traits = replace(loop_traits(VOCABULARY, priority=100), strided_outputs=True)

    def probe(self) -> str | None:
        return self.machine_problem()

    def version(self) -> str:
        return f"{self.package} llvmlite {version_of('llvmlite')} {python()} {processor()}"

    def print(self, frame: Frame) -> str:
        return Kernel(frame, vector_bytes()).text()

    def build(self, printed: str) -> Code:
        return place(SYMBOL, emit(printed, EFFORT))
