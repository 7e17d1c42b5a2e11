"""A group with a matrix product, taken apart: what stands before the product, and what after it."""

from __future__ import annotations

from dataclasses import dataclass

from mgb.codegen import CAST
from mgb.ir import CONST, Graph, Kind, Node, input_node

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
    left, right, after : Part
        The group is ``after(left @ right, ...)``. The product is in float32, of 16-bit operands where both
        were widened for it.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        (self.product,) = (n for n in graph.nodes if n.op.kind is Kind.CONTRACT)
        flags = [bool(self.product.params.get(f"transpose_{side}")) for side in "ab"]
        self.transposed = (flags[0], flags[1])
        self.constants = tuple(n for n in graph.nodes if n.op is CONST and n.spec.size != 1)
        self.left, self.right = (self._part((end,)) for end in self._narrow() or self.product.inputs)
        self.after = self._part(graph.outputs, (self.product,))

    def _narrow(self) -> tuple[Node, ...] | None:
        """Return the operands in 16 bits, where both have been widened from the same dtype."""
        ends = tuple(n.inputs[0] for n in self.product.inputs if n.op is CAST)
        kinds = {n.spec.dtype.name for n in ends}
        return ends if len(ends) == 2 and len(kinds) == 1 and kinds <= set(_HALVES) else None

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
