"""Constant folding: what depends on nothing but constants is computed now."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import CONST, Graph, Kind, Node, const_node
from ..ir.sizes import is_sized
from ..ops.declare import op_of
from ..ops.layout import broadcast_to
from ..tensor.apply import evaluate
from .rewrite import constant_of, with_inputs

#: Constants of this many elements or more are computed when the program runs: they would bloat the graph.
LARGE = 1024
_BROADCAST = op_of(broadcast_to)
_FOLDED = frozenset({Kind.ELEMENTWISE, Kind.REDUCE, Kind.LAYOUT})


def fold_constants(graph: Graph, below: int = LARGE) -> Graph:
    """Replace each node that reads only constants, and has fewer than `below` elements, by its value.

    A value that is the same number everywhere stays one number, broadcast: kernels then read nothing for it.
    """

    def visit(node: Node, *inputs: Node) -> Node:
        copy = with_inputs(node, inputs)
        if not inputs or node.op.kind not in _FOLDED or _value(copy) is not None:
            return copy
        if is_sized(node.spec.shape):
            return _number(copy)
        values = [_value(i) for i in inputs]
        if any(v is None for v in values) or node.spec.size >= below:
            return copy
        return _constant(evaluate(node.op, values, dict(node.params)), node)

    return graph.ending_in(graph.fold(visit, graph.inputs))


def _value(node: Node) -> Any | None:
    if node.op is CONST:
        return node.params["value"]
    if is_sized(node.spec.shape):
        return None
    if node.op is _BROADCAST and node.inputs[0].op is CONST and node.inputs[0].spec.size == 1:
        return np.broadcast_to(node.inputs[0].params["value"], node.spec.shape)
    return None


def _number(node: Node) -> Node:
    """Return `node`, whose lengths are symbolic, as one number that is broadcast, if each operand is one."""
    numbers = [constant_of(i) for i in node.inputs] if node.op.kind is Kind.ELEMENTWISE else [None]
    if any(number is None for number in numbers):
        return node
    value = evaluate(node.op, [np.asarray(number) for number in numbers], dict(node.params))
    one = const_node(value, node.spec.dtype, node.spec.device)
    return Node(_BROADCAST, (one,), {"shape": node.spec.shape}, node.spec, node.source)


def _constant(value: Any, node: Node) -> Node:
    dtype, shape, device = node.spec.dtype, node.spec.shape, node.spec.device
    if value.size > 1 and len({element.tobytes() for element in value.reshape(-1)}) == 1:
        one = const_node(value.reshape(-1)[0], dtype, device)
        return Node(_BROADCAST, (one,), {"shape": shape}, node.spec, node.source)
    return const_node(value, dtype, device)
