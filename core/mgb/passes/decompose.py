"""Spelling out: ops that a backend has no word for become the ops of their bodies."""

from __future__ import annotations

from collections.abc import Callable, Container

from ..errors import GraphError
from ..ir import CONST, Graph, Node, Op
from ..ops.primitives import CAST, IOTA
from ..tensor import Tensor
from ..tracing import copy_node, rebuild

#: Every backend prints these; they are no part of a vocabulary.
ALWAYS = frozenset({CONST, IOTA, CAST})


def decompose(graph: Graph, vocabulary: Container[str]) -> Graph:
    """Replace every op outside `vocabulary` by its body, until none is left.

    Raises
    ------
    GraphError
        An op is neither in the vocabulary nor has a body.
    """
    return spell_out(graph, lambda op: op in ALWAYS or op.name in vocabulary)


def spell_out(graph: Graph, stays: Callable[[Op], bool]) -> Graph:
    """Replace every op that does not stay by its body, until none is left.

    Raises
    ------
    GraphError
        An op that does not stay has no body.
    """

    def spell(node: Node, *values: Tensor) -> Tensor:
        if stays(node.op):
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

    while not all(stays(n.op) for n in graph.nodes):
        level = graph
        graph = rebuild(lambda *xs, level=level: level.fold(spell, xs), level.inputs)
    return graph
