"""What backends have in common whose kernels the shared launcher calls; and those that share the plan too."""

from __future__ import annotations

import platform
import sys
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mgb.backend import ALL_DTYPES, Backend, Kernel, Scope, Specialize, Strided, Traits
from mgb.ir import Graph, Kind

from .code import Code, load
from .frame import Frame
from .launch import Launcher, Unit
from .native import MACHINES
from .target import mismatch, package, target


def loop_traits(vocabulary: frozenset[str], priority: int) -> Traits:
    """What a backend accepts that makes loops over one domain, for every size and any strides."""
    return Traits(
        vocabulary=vocabulary,
        kinds=frozenset({Kind.ELEMENTWISE, Kind.REDUCE}),
        dtypes=ALL_DTYPES,
        devices=frozenset({"cpu"}),
        scope=Scope.DOMAIN,
        specialize=Specialize.NDIM,
        strided=Strided.ANY,
        joins=True,
        short_folds=12,
        priority=priority,
        api_version=1,
    )


def launched(units: Sequence[Any], source: str, state: Any = None) -> Kernel:
    """The kernel that calls `units`.

    Parameters
    ----------
    units : sequence of Unit
        As for `Launcher`.
    source, state
        As for `Kernel`.
    """
    launcher = Launcher(units)
    return Kernel(launcher.run, source, state, hazards=launcher.hazards, atomic=True)


class LaunchedBackend(Backend):
    """A backend of which a kernel is machine code that `Launcher` calls.

    Attributes
    ----------
    distribution : str
        Whose version a saved kernel depends on.
    machines : tuple of str
        Where its code runs.
    """

    distribution: str
    machines = tuple(MACHINES)

    @property
    def package(self) -> str:
        """The version of the printer and of what calls its kernels."""
        return package(Path(str(sys.modules[type(self).__module__].__file__)).parent)

    def machine_problem(self) -> str | None:
        """Why no kernel can be called on this system, or None."""
        if sys.platform != "linux" or platform.machine() not in self.machines:
            here = f"{sys.platform} on {platform.machine()}"
            wanted = ", ".join(self.machines)
            return f"it runs on Linux ({wanted}), this is {here}; export MGB_JIT_BACKEND=EAGER"
        return None

    def join(self, kernels: Sequence[Kernel]) -> Kernel | None:
        """One native call for all; they share its threads when they are worth it together."""
        if not kernels:
            return None
        units = [kernel.state for kernel in kernels]
        return launched(units, "\n\n".join(k.source for k in dict.fromkeys(kernels)))

    def target(self) -> str:
        return target(self.package)

    def mismatch(self, target: str) -> str | None:
        try:
            return mismatch(target, self.package, self.distribution)
        except (ValueError, KeyError, TypeError) as error:
            return f"what they need is not said as this version says it: {error}"


class NativeBackend(LaunchedBackend):
    """A backend of which a kernel is a C function that is called by a plan."""

    @abstractmethod
    def print(self, frame: Frame) -> Any:
        """The kernel of `frame` in the language of the compiler."""

    @abstractmethod
    def build(self, printed: Any) -> Code:
        """What `print` gave, compiled to a C function ``kernel(arrays, plan, span)`` of words."""

    def readable(self, frame: Frame, printed: Any) -> str:
        """The text for `Kernel.source`."""
        return str(printed)

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
        return launched([unit], self.readable(frame, printed), unit)
