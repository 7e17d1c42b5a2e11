"""TRITON as the shared tests see it: a backend that Triton's interpreter runs, and one for any device."""

from __future__ import annotations

from mgb_cuda import Properties
from mgb_cuda.testing.bench import Bench, OnDevice, call, provider
from mgb_triton.backend import Generated, Gpu, Triton, text_version, traits
from mgb_triton.testing.interpreter import PROPERTIES, Interpreter, missing

__all__ = ["BACKEND", "BENCH", "OnInterpreter", "Plugin", "call", "traced"]


class OnInterpreter(OnDevice, Generated):
    """The text that Triton would compile, run by its interpreter."""

    name = "triton_interpreted"
    traits = traits("cpu")

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
