"""Spelling out: ops that a backend has no word for become the ops of their bodies."""

from __future__ import annotations

from collections.abc import Callable, Container

from ..errors import GraphError
from ..ir import CONST, Graph, Node
from ..ops.bodies.rounding import cast_once, rounds_twice
from ..ops.primitives import CAST, IOTA
from ..tensor import Tensor
from ..tensor.tracing import copy_node, rebuild

#: Every backend prints these, they need not be in its vocabulary; of casts, those that round once anyway.
ALWAYS = frozenset({CONST, IOTA, CAST})


def decompose(graph: Graph, vocabulary: Container[str]) -> Graph:
    """Replace every op outside `vocabulary` by its body, until none is left; those over a mesh stay.

    Raises
    ------
    GraphError
        An op is neither in the vocabulary nor has a body.
    """

    def stays(node: Node) -> bool:
        if node.op.name in vocabulary or node.op.over_mesh:
            return True
        return node.op in ALWAYS and not rounds_twice(node)

    return spell_out(graph, stays)


def spell_out(graph: Graph, stays: Callable[[Node], bool]) -> Graph:
    """Replace every node that does not stay by the body of its op, until none is left.

    Raises
    ------
    GraphError
        An op that does not stay has no body.

    Examples
    --------
    >>> from mgb.codegen import spell_out
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> graph = graph_of(F.tanh, Spec((4,), np.dtype("float64")))
    >>> "tanh" in {node.op.name for node in spell_out(graph, lambda node: node.op.body is None).nodes}
    False
    """

    def spell(node: Node, *values: Tensor) -> Tensor:
        if stays(node):
            return copy_node(node, *values)
        body: Callable[..., Tensor] | None = cast_once if rounds_twice(node) else node.op.body
        if body is None:
            raise GraphError(
                f"{node!r} is a primitive outside the vocabulary: print {node.op.name!r} in the backend, "
                "or leave the node to eager execution"
            )
        out: Tensor = body(*values, **node.params)
        if out.dtype != node.spec.dtype:
            raise GraphError(
                f"{node!r}: its body makes {out.dtype}: declare {node.op.name!r} with that result"
            )
        return out

    while not all(stays(n) for n in graph.nodes):
        level = graph
        graph = rebuild(lambda *xs, level=level: level.fold(spell, xs), level.inputs)
    return graph
