"""Building graphs and running kernels, also from levels that are not compiled as a rule."""

from __future__ import annotations

import ctypes
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


def run_linalg(graph: Graph, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Run the level ``linalg`` as the toolchain's own passes lower it: nothing of our loops is in it."""
    from torch_mlir.execution_engine import ExecutionEngine

    frame = Frame(graph)
    text = levels.lower(frame, "linalg")
    head, _, body = text.partition(") {\n")
    text = f"{head}) attributes {{llvm.emit_c_interface}} {{\n{body}"
    module = passes.run(passes.parse(text), passes.LINALG_TO_LOOPS + passes.TO_LLVM)
    with passes.context():
        engine = ExecutionEngine(module, opt_level=1)
    constants = [np.ascontiguousarray(c.params["value"]) for c in frame.constants]
    inputs = [np.ascontiguousarray(a) for a in (*arrays, *constants)]
    out = tuple(np.full(o.spec.shape, SENTINEL, o.spec.dtype) for o in graph.outputs)
    bits = [np.zeros(a.shape, a.dtype) for a in out]
    pointers = [ctypes.pointer(_descriptor(a)) for a in (*inputs, *bits)]
    engine.invoke("group", *(ctypes.pointer(p) for p in pointers))
    return tuple(bits)


def _descriptor(array: Any) -> ctypes.Structure:
    """MLIR's memref of a row-major array."""
    n, words = array.ndim, ctypes.c_int64
    fields = [("base", ctypes.c_void_p), ("data", ctypes.c_void_p), ("offset", words)]
    fields += [("shape", words * n), ("strides", words * n)] if n else []
    kind = type("Memref", (ctypes.Structure,), {"_fields_": fields})
    made = kind(array.ctypes.data, array.ctypes.data, 0)
    if n:
        made.shape = (words * n)(*array.shape)
        made.strides = (words * n)(*(s // array.itemsize for s in array.strides))
    return made
