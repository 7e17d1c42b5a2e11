"""About how many operations on numbers a graph is, by what the rows of its ops say."""

from __future__ import annotations

from ..ir import Graph, Kind, Node, Op
from .decompose import spell_out


def flops(graph: Graph) -> int:
    """Estimate how many operations on numbers a graph has.

    An element-wise op is one operation an element, ``exp`` like ``add``; a reduction one for each element
    that it folds; an op whose row has a `cost`, that; what only moves elements none; anything else one for
    each element it reads.
    """
    return sum(map(_own, spell_out(graph, lambda n: _counts(n.op)).nodes))


def operations(node: Node) -> int:
    """Estimate `flops` of one node."""
    return _own(node) if _counts(node.op) else flops(Graph(node.inputs, (node,)))


def _counts(op: Op) -> bool:
    """Return whether `op` has a price itself, as ``exp``, which has eager code, and not by its body."""
    return op.cost is not None or op.body is None or (op.eager is not None and op.kind is not Kind.CONTRACT)


def _own(node: Node) -> int:
    if node.op.cost is not None:
        return node.op.cost(node)
    if node.op.kind is Kind.ELEMENTWISE:
        return node.spec.size
    if node.op.kind in (Kind.REDUCE, Kind.SCAN, Kind.OPAQUE):
        return max((i.spec.size for i in node.inputs), default=0)
    return 0
