"""Helpers of passes: the nodes behind tensors, constants, and passes written as a fold over the graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from ..ir import CONST, Graph, Kind, Node, Op, Spec
from ..ir.sizes import same_shape
from ..ops.layout import BROADCAST_TO, RESHAPE, broadcast_to, reshape
from ..tensor import ACTIVE, Tensor, wrap
from ..tensor.tracing import Builder, copy_node, rebuild

#: Kinds of ops that compute; the others move elements, or are walls to every pass.
COMPUTING = frozenset({Kind.ELEMENTWISE, Kind.REDUCE})

#: From a node and the new values of its inputs to its new value; None: not my business.
Rule = Callable[..., Tensor | None]


def rewrite(graph: Graph, rule: Rule) -> Graph:
    """Give each node to `rule`, which says what takes its place; a node for which it says None stays."""

    def visit(node: Node, *values: Tensor) -> Tensor:
        found = rule(node, *values)
        return copy_node(node, *values) if found is None else found

    return graph.ending_in(rebuild(lambda *xs: graph.fold(visit, xs), graph.inputs).outputs)


def by_name(table: Mapping[str, tuple[Rule, ...]]) -> Rule:
    """Return the rule that asks those listed under the name of the node's op.

    The first that answers counts.
    """

    def rule(node: Node, *values: Tensor) -> Tensor | None:
        for candidate in table.get(node.op.name, ()):
            found = candidate(node, *values)
            if found is not None:
                return found
        return None

    return rule


def read_once(graph: Graph) -> frozenset[Node]:
    """Return the nodes that one node reads once and nobody else: no outputs."""
    single = (n for n, readers in graph.readers.items() if len(readers) == 1)
    return frozenset(single).difference(graph.outputs)


def needed_by(graph: Graph, reads: Callable[[Node], bool], through: Collection[Op]) -> frozenset[Node]:
    """Return the values that no other nodes need than those that `reads` is true of; no outputs.

    Others may stand between them if they are of ops of `through`.
    """
    found: set[Node] = set()
    outputs = frozenset(graph.outputs)
    for node in reversed(graph.nodes):
        readers = graph.readers[node]
        if node not in outputs and all(reads(r) or (r.op in through and r in found) for r in readers):
            found.add(node)
    return frozenset(found)


# between nodes and tensors


def _builder() -> Builder:
    builder = ACTIVE.get()
    assert isinstance(builder, Builder)
    return builder


def node_of(value: Tensor) -> Node:
    """Return the node that `value` stands for while a graph is rebuilt."""
    return _builder().node(value)


def value_of(node: Node) -> Tensor:
    """Return a tensor that stands for `node` while a graph is rebuilt."""
    return _builder().tensor(node)


def inputs_of(value: Tensor, op: Op) -> tuple[Tensor, ...] | None:
    """Return the values that `value` was computed from if `op` computed it."""
    node = node_of(value)
    return tuple(map(value_of, node.inputs)) if node.op is op else None


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """Return the same application of the same op to `inputs`, which have the specs of those it had."""
    return node if inputs == node.inputs else Node(node.op, inputs, node.params, node.spec, node.source)


def beneath(node: Node, *views: Op) -> Node:
    """Return what `node` is a view of, seen through the ops `views`."""
    while node.op in views:
        (node,) = node.inputs
    return node


# values


def constant_of(node: Node) -> Any | None:
    """Return the one number that every element of `node` is known to be, as a NumPy scalar; else None.

    It is seen through reshapes and broadcasts.
    """
    node = beneath(node, RESHAPE, BROADCAST_TO)
    return node.params["value"].reshape(())[()] if node.op is CONST and node.spec.size == 1 else None


def full(value: Any, spec: Spec) -> Tensor:
    """Return the constant `value` in every place of `spec`."""
    return shaped(wrap(np.asarray(value, spec.dtype), spec.device), spec.shape)


def shaped(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return `value` in `shape`: axes of length 1 may come and go, then it is stretched."""
    if value.ndim > len(shape):
        value = reshape(value, shape=value.shape[value.ndim - len(shape) :])
    return value if same_shape(value.shape, shape) else broadcast_to(value, shape=shape)


def reshaped(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return `value` with its elements in `shape`."""
    return value if same_shape(value.shape, shape) else reshape(value, shape=shape)


def stretches(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    """Return whether `small` broadcasts to `large`."""
    tail = large[max(0, len(large) - len(small)) :]
    return len(small) == len(tail) and all(s in (1, d) for s, d in zip(small, tail, strict=True))
