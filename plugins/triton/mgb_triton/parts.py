"""A group with a matrix product, taken apart: what stands before the product, and what after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mgb.codegen import CAST
from mgb.ir import CONST, Graph, Kind, Node, input_node
from mgb.runtime.forking import cached_property

_HALVES = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class Part:
    """A graph of its own.

    Attributes
    ----------
    graph : Graph
    reads : tuple of int
        Which arrays of a call it is given; the rest of a product has the product in front of them.
    """

    graph: Graph
    reads: tuple[int, ...]

    @property
    def is_empty(self) -> bool:
        """Is it what it is given?"""
        return not self.graph.nodes


@dataclass(frozen=True, slots=True)
class Cut:
    """One way to compute a group: ``after(left @ right, ...)``.

    Attributes
    ----------
    left, right, after : Part
    dtype : dtype
        Of the product.
    """

    left: Part
    right: Part
    after: Part
    dtype: np.dtype[Any]


class Parts:
    """The parts of a lowered group that holds one product.

    A call is given the inputs of the group and then the constants of several elements.

    Parameters
    ----------
    graph : Graph

    Attributes
    ----------
    transposed : tuple of bool
        Which operands are multiplied as their transposes.
    constants : tuple of Node
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        (self.product,) = (n for n in graph.nodes if n.op.kind is Kind.CONTRACT)
        flags = [bool(self.product.params.get(f"transpose_{side}")) for side in "ab"]
        self.transposed = (flags[0], flags[1])
        self.constants = tuple(n for n in graph.nodes if n.op is CONST and n.spec.size != 1)

    @cached_property
    def fused(self) -> Cut:
        """For one kernel, which sums in float32: of 16-bit floats where the operands are nothing else."""
        ends = self._narrow or self.product.inputs
        return self._cut(ends, self.product, np.dtype(np.float32))

    @cached_property
    def library(self) -> Cut:
        """For a library, whose product has the dtype of its operands."""
        readers = self.graph.readers[self.product]
        ends, narrow = self.product.inputs, self._narrow
        if narrow is not None and self.product not in self.graph.outputs:
            if len(readers) == 1 and _is_cast(readers[0], narrow[0].spec.dtype):
                return self._cut(narrow, readers[0], narrow[0].spec.dtype)
        return self._cut(ends, self.product, ends[0].spec.dtype)

    @cached_property
    def _narrow(self) -> tuple[Node, ...] | None:
        """The operands in 16 bits, where both have been widened from the same dtype."""
        ends = tuple(n.inputs[0] for n in self.product.inputs if n.op is CAST)
        kinds = {n.spec.dtype.name for n in ends}
        return ends if len(ends) == 2 and len(kinds) == 1 and kinds <= set(_HALVES) else None

    def _cut(self, ends: Sequence[Node], product: Node, dtype: np.dtype[Any]) -> Cut:
        left, right = (self._part((end,)) for end in ends)
        return Cut(left, right, self._part(self.graph.outputs, (product,)), dtype)

    def _part(self, outputs: tuple[Node, ...], given: tuple[Node, ...] = ()) -> Part:
        """Cut out the part that computes `outputs` from `given` and from the arrays of a call."""
        arrays = (*self.graph.inputs, *self.constants)
        whole = Graph((*given, *arrays), outputs)
        used = {i for n in whole.nodes for i in n.inputs}.union(outputs)
        reads = tuple(k for k, n in enumerate(arrays) if n in used)
        read = Graph((*given, *(arrays[k] for k in reads)), outputs)
        fresh = [input_node(n.spec, n.source) for n in read.inputs]
        return Part(Graph(tuple(fresh), read.fold(_copy, fresh)), reads)


def _copy(node: Node, *inputs: Node) -> Node:
    return Node(node.op, inputs, node.params, node.spec, node.source)


def _is_cast(node: Node, dtype: np.dtype[Any]) -> bool:
    return node.op is CAST and node.spec.dtype == dtype
