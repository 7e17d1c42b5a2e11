"""The backend whose kernels Triton's interpreter runs, and building graphs for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mgb.ir import Graph, Spec
from mgb.passes.lower import lower
from mgb.plugins import hookimpl
from mgb.tracing import graph_of
from mgb_cuda.device import Device
from mgb_triton.backend import Generated, text_version, traits
from mgb_triton.testing.interpreter import Interpreter, missing


class OnInterpreter(Generated):
    """The text that Triton would compile, run by its interpreter."""

    name = "triton_interpreted"
    traits = traits("cpu")

    def __init__(self, device: Interpreter | None = None) -> None:
        self.device = device or Interpreter()

    def devices(self, arrays: Sequence[Any]) -> Device:
        return self.device

    def probe(self) -> str | None:
        return missing()

    def version(self) -> str:
        return text_version()


BACKEND = OnInterpreter()


class Plugin:
    """Answers to the name of the backend."""

    @staticmethod
    @hookimpl
    def mgb_backend(name: str) -> OnInterpreter | None:
        return BACKEND if name == BACKEND.name else None


def traced(function: Callable[..., Any], *arrays: Any) -> Graph:
    """The graph of `function` on these arrays, as the backend receives it."""
    return lower(graph_of(function, *(Spec(a.shape, a.dtype) for a in arrays)), BACKEND.traits)


def call(run: Callable[..., None], graph: Graph, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Run into fresh outputs, full of a value that a kernel must overwrite."""
    out = tuple(np.full(o.spec.shape, 77, o.spec.dtype) for o in graph.outputs)
    run(*arrays, out=out)
    return out
