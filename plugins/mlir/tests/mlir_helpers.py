"""Building graphs and running kernels, also from levels that are not compiled as a rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mgb.backends import Kernel
from mgb.ir import Graph, Spec
from mgb.passes.lower import lower
from mgb.tensor.tracing import graph_of
from mgb_mlir import Mlir, levels, passes
from mgb_mlir.backend import EFFORT
from mgb_native.code import place
from mgb_native.frame import Frame
from mgb_native.launch import Launcher, Unit
from mgb_native.nest import SYMBOL

BACKEND = Mlir()
SENTINEL = 77


def traced(function: Callable[..., Any], arrays: Sequence[Any]) -> Graph:
    """The graph of `function` on these arrays, as the backend receives it."""
    return lower(graph_of(function, *(Spec(a.shape, a.dtype) for a in arrays)), BACKEND.traits)


def call(kernel: Kernel, graph: Graph, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Run into fresh outputs, full of a value that the kernel must overwrite."""
    out = tuple(np.full(o.spec.shape, SENTINEL, o.spec.dtype) for o in graph.outputs)
    kernel.run(*arrays, out=out)
    return out


def run(function: Callable[..., Any], *arrays: Any) -> tuple[Any, ...]:
    """Trace, compile, run."""
    graph = traced(function, arrays)
    return call(BACKEND.compile(graph), graph, arrays)


def run_loops(graph: Graph, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Run the level ``loops``, whose innermost loops are scalar."""
    frame = Frame(graph)
    module = passes.run(passes.parse(levels.lower(frame, "loops")), passes.TO_LLVM)
    unit = Unit(frame, place(SYMBOL, passes.machine_code(module, EFFORT)))
    return call(Kernel(Launcher([unit]).run), graph, arrays)
