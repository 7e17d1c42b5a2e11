"""What backends that share the plan and the launcher have in common: all but the printer and its compiler."""

from __future__ import annotations

import platform
import sys
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mgb.backend import Backend, Kernel
from mgb.ir import Graph

from .code import Code, load
from .frame import Frame
from .launch import Launcher, Unit
from .native import MACHINES
from .target import mismatch, package, target


class NativeBackend(Backend):
    """A backend of which a kernel is machine code that is called by a plan.

    Attributes
    ----------
    distribution : str
        Whose version a saved kernel depends on.
    """

    distribution: str

    @abstractmethod
    def print(self, frame: Frame) -> Any:
        """The kernel of `frame` in the language of the compiler."""

    @abstractmethod
    def build(self, printed: Any) -> Code:
        """What `print` gave, compiled to a C function ``kernel(arrays, plan, span)`` of words."""

    def readable(self, frame: Frame, printed: Any) -> str:
        """The text for `Kernel.source`."""
        return str(printed)

    @property
    def package(self) -> str:
        """The version of the printer and of what calls its kernels."""
        return package(Path(str(sys.modules[type(self).__module__].__file__)).parent)

    def machine_problem(self) -> str | None:
        """Why no kernel can be called on this system, or None."""
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

    def target(self) -> str:
        return target(self.package)

    def mismatch(self, target: str) -> str | None:
        try:
            return mismatch(target, self.package, self.distribution)
        except (ValueError, KeyError, TypeError) as error:
            return f"what they need is not said as this version says it: {error}"

    def compile(self, graph: Graph) -> Kernel:
        frame = Frame(graph)
        printed = self.print(frame)
        return self._kernel(frame, printed, self.build(printed))

    def save(self, kernel: Kernel) -> bytes | None:
        unit: Unit = kernel.state
        return unit.code.dump()

    def load(self, graph: Graph, blob: bytes) -> Kernel:
        frame = Frame(graph)
        return self._kernel(frame, self.print(frame), load(blob))

    def _kernel(self, frame: Frame, printed: Any, code: Code) -> Kernel:
        unit = Unit(frame, code)
        return Kernel(Launcher([unit]).run, self.readable(frame, printed), unit)
