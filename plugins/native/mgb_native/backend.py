"""Bases of backends whose kernels the shared launcher calls, and of those that share the plan too."""

from __future__ import annotations

import platform
import sys
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mgb.backends import ALL_DTYPES, Backend, Kernel, Scope, Specialize, Strided, Traits, Turn
from mgb.codegen import OPS
from mgb.ir import Graph, Kind

from .code import Code, load
from .frame import REFUSED, Frame
from .launch import Launcher, Unit
from .native import MACHINES, note, problem
from .sequences import Layout, follower
from .target import mismatch, package, target
from .turns import repeated


def loop_traits(vocabulary: frozenset[str], priority: int) -> Traits:
    """Return the traits of a backend that compiles loops over one domain, for every size and any strides."""
    return Traits(
        vocabulary=vocabulary,
        kinds=frozenset({Kind.ELEMENTWISE, *(OPS[word].kind for word in vocabulary)}),
        dtypes=ALL_DTYPES,
        devices=frozenset({"cpu"}),
        scope=Scope.DOMAIN,
        specialize=Specialize.NDIM,
        strided=Strided.ANY,
        joins=True,
        repeats_products=True,
        sequences=True,
        short_rows=12,
        priority=priority,
        api_version=1,
    )


def launched(units: Sequence[Any], source: str | Callable[[], str], state: Any = None) -> Kernel:
    """Return the kernel that calls `units`.

    Parameters
    ----------
    units : sequence of Unit
        As for `Launcher`.
    source, state
        As for `Kernel`; without a state it has the launcher.
    """
    launcher = Launcher(units)
    state = state or launcher
    if any(unit.refuses for unit in units):
        return Kernel(checked(launcher.run), source, state, hazards=launcher.hazards)
    whole = note is None  # an exception may come between two lines of the launcher in Python
    return Kernel(launcher.run, source, state, hazards=launcher.hazards, atomic=whole)


def texts(kernels: Sequence[Kernel]) -> Callable[[], str]:
    """Return a function that joins the texts of several kernels that are called as one."""
    return lambda: "\n\n".join(k.text for k in dict.fromkeys(kernels))


def checked(run: Callable[..., None]) -> Callable[..., None]:
    """Wrap `run` of one kernel that looks up, to raise what NumPy raises."""

    def run_checked(*xs: Any, out: tuple[Any, ...]) -> None:
        refused = np.zeros(REFUSED.shape, REFUSED.dtype)
        run(*xs, out=(*out, refused))
        length, index, axis = refused.tolist()
        if length:
            raise IndexError(f"index {index} is out of bounds for axis {axis} with size {length}")

    return run_checked


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
        path = Path(str(sys.modules[type(self).__module__].__file__))
        return package(path.parent if "." in type(self).__module__ or path.stem == "__init__" else path)

    def machine_problem(self) -> str | None:
        """Return why no kernel can be called on this system, or None."""
        if sys.platform != "linux" or platform.machine() not in self.machines:
            here = f"{sys.platform} on {platform.machine()}"
            wanted = ", ".join(self.machines)
            return f"it runs on Linux ({wanted}), this is {here}; export MGB_JIT_BACKEND=EAGER"
        return problem

    def note(self) -> str | None:
        """Return why calls are slow here, and the remedy, or None."""
        return note

    def join(self, kernels: Sequence[Kernel]) -> Kernel | None:
        """Return one native call for all; they share its threads when they are worth it together."""
        units = [kernel.state for kernel in kernels]
        if not units or any(unit.refuses for unit in units):
            return None
        return launched(units, texts(kernels))

    def target(self) -> str:
        return target(self.package)

    def mismatch(self, target: str) -> str | None:
        try:
            return mismatch(target, self.package, self.distribution)
        except (ValueError, KeyError, TypeError) as error:
            return f"what they need is not said as this version says it: {error}"


class PlacedBackend(LaunchedBackend):
    """A backend of which a kernel is one `Unit`: `Kernel.state`."""

    def save(self, kernel: Kernel) -> bytes | None:
        unit: Unit = kernel.state
        return unit.code.dump()

    def repeat(self, turns: Sequence[Turn]) -> Callable[[int, int], None] | None:
        return None if any(t.kernel and t.kernel.state.refuses for t in turns) else repeated(turns)

    def sequence(
        self, kernels: Sequence[Kernel], layout: Layout, count: int, checked: int
    ) -> Callable[..., None] | None:
        refuses = any(kernel.state.refuses for kernel in kernels)
        return None if refuses else follower(layout, count, checked)


class NativeBackend(PlacedBackend):
    """A backend of which a kernel is a C function that is called by a plan."""

    @abstractmethod
    def print(self, frame: Frame) -> Any:
        """Return the kernel of `frame` in the language of the compiler."""

    @abstractmethod
    def build(self, printed: Any) -> Code:
        """Compile the result of `print` to a C function ``kernel(arrays, plan, span)`` of words."""

    def readable(self, frame: Frame, printed: Any) -> str:
        """Return the text for `Kernel.source`."""
        return str(printed)

    def compile(self, graph: Graph) -> Kernel:
        frame = Frame(graph)
        printed = self.print(frame)
        return self._kernel(frame, self.readable(frame, printed), self.build(printed))

    def load(self, graph: Graph, blob: bytes) -> Kernel:
        frame = Frame(graph)
        return self._kernel(frame, lambda: self.readable(frame, self.print(frame)), load(blob))

    def _kernel(self, frame: Frame, source: str | Callable[[], str], code: Code) -> Kernel:
        unit = Unit(frame, code)
        return launched([unit], source, unit)
