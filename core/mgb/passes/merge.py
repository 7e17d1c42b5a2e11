"""Common subexpressions: what is computed twice is computed once."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from ..ir import Graph, Node
from .rewrite import with_inputs


def merge(graph: Graph) -> Graph:
    """Let equal computations be one node. Constants are compared by their bytes, so 0.0 and -0.0 differ."""
    seen: dict[tuple[Any, ...], Node] = {}

    def visit(node: Node, *inputs: Node) -> Node:
        params = tuple((name, _token(value)) for name, value in sorted(node.params.items()))
        key = (node.op, node.spec.dtype, node.spec.device, params, *map(id, inputs))
        if key not in seen:
            seen[key] = with_inputs(node, inputs)
        return seen[key]

    return graph.ending_in(graph.fold(visit, graph.inputs))


def _token(value: Any) -> Any:
    """Return a token that is equal for equal parameters; it distinguishes 1, 1.0 and True, unlike Python."""
    if isinstance(value, np.ndarray):
        return value.shape, hashlib.sha256(value.tobytes()).digest()
    return repr(value)
