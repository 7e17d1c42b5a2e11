"""Spelling out: ops that a backend has no word for become the ops of their bodies."""

from __future__ import annotations

from collections.abc import Container

from ..errors import GraphError
from ..ir import Graph, Node
from ..tensor import Tensor
from ..tracing import copy_node, rebuild

#: Every backend prints these; they are no part of a vocabulary.
ALWAYS = frozenset({"const", "iota", "cast"})


def decompose(graph: Graph, vocabulary: Container[str]) -> Graph:
    """Replace every op outside `vocabulary` by its body, until none is left.

    Raises
    ------
    GraphError
        An op is neither in the vocabulary nor has a body.
    """

    def spell(node: Node, *values: Tensor) -> Tensor:
        if _spoken(node, vocabulary):
            return copy_node(node, *values)
        if node.op.body is None:
            raise GraphError(
                f"{node!r} is a primitive outside the vocabulary: print {node.op.name!r} in the backend, "
                "or leave the node to eager execution"
            )
        out: Tensor = node.op.body(*values, **node.params)
        if out.dtype != node.spec.dtype:
            raise GraphError(
                f"{node!r}: its body makes {out.dtype}: declare {node.op.name!r} with that result"
            )
        return out

    while not all(_spoken(n, vocabulary) for n in graph.nodes):
        level = graph
        graph = rebuild(lambda *xs, level=level: level.fold(spell, xs), level.inputs)
    return graph


def _spoken(node: Node, vocabulary: Container[str]) -> bool:
    return node.op.name in ALWAYS or node.op.name in vocabulary
