"""TRITON as the shared tests see it: a backend that Triton's interpreter runs, and one for any device."""

from __future__ import annotations

from collections.abc import Callable

from mgb_cuda import LaunchError, Properties
from mgb_cuda.testing.bench import Bench, OnDevice, call, provider, unasked
from mgb_triton.backend import Generated, Gpu, Triton, text_version, traits
from mgb_triton.testing.interpreter import PROPERTIES, Interpreter, missing

__all__ = ["BACKEND", "BENCH", "OnInterpreter", "Plugin", "Timed", "call", "traced"]


class OnInterpreter(OnDevice, Generated):
    """The text that Triton would compile, run by its interpreter."""

    name = "triton_interpreted"
    traits = unasked(traits("cpu"))

    def __init__(self, device: Interpreter | None = None) -> None:
        super().__init__(device or Interpreter())

    def probe(self) -> str | None:
        return missing()

    def version(self) -> str:
        return text_version()


class Given(OnDevice, Generated):
    """The text for a device that a test has made."""

    name = "triton_given"
    traits = traits("gpu")


class Timed(Interpreter):
    """Its clock says these seconds, one after another; None: the launch fails."""

    def __init__(self, *seconds: float | None) -> None:
        super().__init__()
        self.seconds, self.asked = list(seconds), 0

    def elapsed(self, run: Callable[[int], None]) -> float:
        run(0)
        self.asked += 1
        found = self.seconds.pop(0) if self.seconds else 1.0
        if found is None:
            raise LaunchError("too many resources requested for launch")
        return found


BENCH = Bench(
    Triton,
    OnInterpreter,
    Given,
    device=lambda n: Interpreter(Properties(PROPERTIES.name, PROPERTIES.capability, n)),
    driver=lambda arrays: Gpu(0, arrays),
)
BACKEND = OnInterpreter()
Plugin = provider(BACKEND)
traced = BENCH.traced
