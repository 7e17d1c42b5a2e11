"""The backend object: what it accepts, and how a graph becomes a kernel."""

from __future__ import annotations

from mgb_native import NativeBackend, loop_traits
from mgb_native.code import Code, place
from mgb_native.frame import Frame
from mgb_native.nest import SYMBOL, VOCABULARY
from mgb_native.target import processor, python, version_of

from . import levels, passes, toolchain

#: How hard LLVM tries. The vectors are there already, and no kernel was seen to be faster with more.
EFFORT = 1


class Mlir(NativeBackend):
    """Fused loops for the CPU, lowered by MLIR."""

    name = "mlir"
    distribution = "mgb-mlir"
    traits = loop_traits(VOCABULARY, priority=50)
    variables = (levels.STOP,)

    def probe(self) -> str | None:
        return toolchain.problem() or self.machine_problem()

    def version(self) -> str:
        return f"{self.package} {toolchain.WHEEL} {version_of(toolchain.WHEEL)} {python()} {processor()}"

    def print(self, frame: Frame) -> str:
        return levels.lower(frame, "vector")

    def build(self, printed: str) -> Code:
        with passes.compiling:
            toolchain.check()
            module = passes.run(passes.parse(printed), passes.TO_LLVM)
            return place(SYMBOL, passes.machine_code(module, EFFORT))

    def readable(self, frame: Frame, printed: str) -> str:
        return levels.shown(frame, printed)
