"""A graph with arrays for its inputs: what a backend is tried on."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mgb.backends.plugins import known_ops
from mgb.ir import CONST, Graph, Node, Spec
from mgb.runtime.forking import cached_property
from mgb.storage.graph_file import Reader, Writer
from mgb.tensor import Tensor, wrap
from mgb.tensor.apply import apply, evaluate
from mgb.tensor.tracing import graph_of

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Case:
    """A graph, and arrays for its inputs, which lie in memory as they do here.

    Parameters
    ----------
    graph : Graph
        As it was recorded, before any pass.
    arrays : tuple of ndarray

    Examples
    --------
    >>> from mgb_conformance.reducer import op
    >>> case = Case.of(lambda x: [op("neg", op("abs", x))], [np.ones((2, 3), "float32")])
    >>> case.size
    (2, 6, 24)
    """

    graph: Graph
    arrays: tuple[Array, ...]

    @classmethod
    def of(cls, function: Callable[..., Any], arrays: Sequence[Array]) -> Case:
        """Return the graph of a function that is written with `op` and `constant`, on `arrays`."""
        return cls(graph_of(function, *(Spec(a.shape, a.dtype) for a in arrays)), tuple(arrays))

    @cached_property
    def values(self) -> dict[Node, Array]:
        """Compute each node with EAGER; the inputs are included."""
        found: dict[Node, Array] = dict(zip(self.graph.inputs, self.arrays, strict=True))
        with np.errstate(all="ignore"):
            for node in self.graph.nodes:
                given = [found[i] for i in node.inputs]
                made = (
                    node.params["value"] if node.op is CONST else evaluate(node.op, given, dict(node.params))
                )
                found[node] = np.asarray(made)
        return found

    @property
    def size(self) -> tuple[int, int, int]:
        """Return the size to minimize: nodes first, then elements of inputs, then bytes of them."""
        elements = sum(a.size for a in self.arrays)
        return len(self.graph.nodes), elements, sum(a.nbytes for a in self.arrays)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file for `load`."""
        writer = Writer()
        arrays = [
            [writer.blob(np.ascontiguousarray(a).reshape(-1).view(np.uint8)), steps_of(a)]
            for a in self.arrays
        ]
        writer.write(path, {"graph": writer.graph(self.graph), "arrays": arrays})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Case:
        """Return the case that `save` wrote."""
        reader = Reader(path)
        graph = reader.graph(reader.content["graph"], "the graph")
        arrays = []
        for node, (number, steps) in zip(graph.inputs, reader.content["arrays"], strict=True):
            flat = np.frombuffer(reader.blob(number), node.spec.dtype)
            arrays.append(laid_out(flat.reshape(node.spec.shape), steps))
        return cls(graph, tuple(arrays))


def steps_of(array: Array) -> list[int] | None:
    """Return the strides in elements; None: row-major."""
    steps = [s // array.itemsize for s in array.strides]
    return None if array.flags.c_contiguous or min(steps, default=0) < 0 else steps


def laid_out(array: Array, steps: Sequence[int] | None) -> Array:
    """Return a copy of `array` with these strides, in elements; None: row-major.

    Examples
    --------
    >>> import numpy as np
    >>> laid_out(np.ones((2, 3), "float32"), (1, 2)).strides
    (4, 8)
    """
    if steps is None:
        return array.copy()
    room = 1 + sum((d - 1) * s for d, s in zip(array.shape, steps, strict=True))
    out = np.lib.stride_tricks.as_strided(
        np.zeros(max(room, 1), array.dtype), array.shape, [s * array.itemsize for s in steps]
    )
    out[...] = array
    return out


def op(name: str, *values: Any, **params: Any) -> Tensor:
    """Return the op called `name` of these Tensors.

    Examples
    --------
    >>> op("reduce_sum", mgb.tensor([[1.0, 2.0]]), axis=(1,))
    Tensor([[3.]], device=xpux:0)
    """
    return apply(known_ops()[name], *values, **params)


def constant(value: Any, dtype: str | np.dtype[Any]) -> Tensor:
    """Return a constant of a graph.

    Examples
    --------
    >>> constant(0.5, "float64")
    Tensor(0.5, dtype=float64, device=xpux:0)
    """
    return wrap(np.asarray(value, np.dtype(dtype)), "xpux:0")
