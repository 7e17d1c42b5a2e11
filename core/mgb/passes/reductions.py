"""Level 2: reductions fold as many axes at once as they can, and only axes that are longer than 1."""

from __future__ import annotations

from ..ir import Graph, Kind, Node
from ..ir.dtypes import HALVES
from ..ops.reduce import EXTENT
from ..tensor import Tensor
from ..tensor.apply import apply
from .rewrite import full, node_of, read_once, rewrite, value_of


def merge_reductions(graph: Graph) -> Graph:
    """Drop axes of length 1 from reductions, and make one of two that nobody else reads between."""
    if not any(node.op.kind is Kind.REDUCE for node in graph.nodes):
        return graph
    single = read_once(graph)

    def rule(node: Node, *values: Tensor) -> Tensor | None:
        if node.op.kind is not Kind.REDUCE or "axis" not in node.params:
            return None
        if not node.op.is_primitive:  # argmax is about places
            return None
        value, axis = values[0], node.params["axis"]
        inner = node_of(value)
        rounds = node.spec.dtype in HALVES and not node.op.exact  # eager code rounds the inner one
        if inner.op is node.op and node.inputs[0] in single and node.op is not EXTENT and not rounds:
            value, axis = value_of(inner.inputs[0]), axis + inner.params["axis"]
        long = tuple(sorted({a for a in axis if value.shape[a] != 1}))
        if not long:
            return full(1, node.spec) if node.op is EXTENT else value
        if long == node.params["axis"] and value is values[0]:
            return None
        return apply(node.op, value, axis=long)

    return rewrite(graph, rule)
