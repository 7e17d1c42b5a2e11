"""Building graphs, running kernels, and views of every kind."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mgb.backends import Kernel
from mgb.ir import Graph, Spec
from mgb.passes.lower import lower
from mgb.runtime import cache
from mgb.tensor.tracing import graph_of
from mgb_cpu_numba import CpuNumba
from mgb_native.code import Code, load

BACKEND = CpuNumba()
SENTINEL = 77


def _build(printed: str) -> Code:
    """Build with the backend; a text is compiled once in a run, and loaded into memory for each kernel."""
    what = "\n".join((BACKEND.version(), printed))
    key = hashlib.sha256(what.encode()).hexdigest()
    blob = cache.load("cpu_numba_texts", key)
    if blob is not None:
        return load(blob)
    code = CpuNumba.build(BACKEND, printed)
    cache.store("cpu_numba_texts", key, code.dump())
    return code


BACKEND.build = _build


def traced(function: Callable[..., Any], arrays: Sequence[Any]) -> Graph:
    """The graph of `function` on these arrays, as the backend receives it."""
    return lower(graph_of(function, *(Spec(a.shape, a.dtype) for a in arrays)), BACKEND.traits)


def outputs_of(graph: Graph) -> tuple[Any, ...]:
    """Fresh outputs, full of a value that a kernel must overwrite."""
    return tuple(np.full(o.spec.shape, SENTINEL, o.spec.dtype) for o in graph.outputs)


def call(kernel: Kernel, graph: Graph, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Run into fresh outputs."""
    out = outputs_of(graph)
    kernel.run(*arrays, out=out)
    return out


def run(function: Callable[..., Any], *arrays: Any) -> tuple[Any, ...]:
    """Trace, compile, run."""
    graph = traced(function, arrays)
    return call(BACKEND.compile(graph), graph, arrays)


def view(array: Any, kind: str) -> Any:
    """The same values in another memory layout."""
    if kind == "transposed":
        return np.asfortranarray(array)
    if kind == "reversed" and array.ndim:
        return np.ascontiguousarray(array[..., ::-1])[..., ::-1]
    if kind == "strided" and array.ndim:
        wide = np.repeat(array, 2, axis=-1)
        return wide[..., ::2]
    return array


VIEWS = ("plain", "transposed", "reversed", "strided")
