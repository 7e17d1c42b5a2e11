"""Copies of large arrays are computed: by all threads, as what is computed is, and in memory of the plan.

A reshape of a transposed array, a border around one, and each operand of a concatenation that nobody
computes are copied. Here each is a ``bitcast`` to its own dtype, which a kernel writes where it will stand.
"""

from __future__ import annotations

from ..backends import Scope, Traits
from ..ir import Graph, Kind, Node, Spec
from ..ir.sizes import about
from ..ops.declare import op_of
from ..ops.layout import RESHAPE, TRANSPOSE, concat, reshape
from ..ops.primitives import bitcast
from ..passes.rewrite import COMPUTING, beneath, full, node_of, rewrite
from ..tensor import Tensor
from .copies import copies
from .legality import DEFAULT, FusionConfig, accepts
from .pieces import CONCAT, UNSLICE

BITCAST = op_of(bitcast)

#: Fewer elements are copied by NumPy.
LARGE = 1 << 18


def copied(graph: Graph, traits: Traits, config: FusionConfig = DEFAULT) -> Graph:
    """Spell copies of many elements as element-wise ops, for backends that write into larger arrays.

    Parameters
    ----------
    graph : Graph
        As it will be cut into groups.
    traits : Traits
        Of the backend that is to compile the groups.
    config : FusionConfig
        What the user allows.

    Returns
    -------
    Graph
    """
    takes = traits.strided_outputs and traits.scope is Scope.DOMAIN
    if not takes or not graph.has(CONCAT, UNSLICE, RESHAPE):
        return graph

    def computed(value: Tensor) -> Tensor:
        return _computed(value, traits, config)

    def rule(node: Node, *values: Tensor) -> Tensor | None:
        if about(node.spec.size) < LARGE:
            return None
        if node.op is RESHAPE and copies(node):
            return reshape(computed(values[0]), shape=node.spec.shape)
        if node.op is CONCAT:
            return concat(*map(computed, values), axis=node.params["axis"])
        return _bordered(node, computed(values[0])) if node.op is UNSLICE else None

    return rewrite(graph, rule)


def _computed(value: Tensor, traits: Traits, config: FusionConfig) -> Tensor:
    """Return `value` as an op of a kernel computes it, if none writes it where it will stand already."""
    source = beneath(node_of(value), RESHAPE, TRANSPOSE)
    stands = source.op.kind in COMPUTING or source.op.kind is Kind.GATHER or source.op.parts is not None
    if stands or about(value.size) < LARGE:
        return value
    found = bitcast(value, dtype=value.dtype)
    return found if accepts(traits, node_of(found), config) is None else value


def _bordered(node: Node, value: Tensor) -> Tensor | None:
    """Return zeros around a value side by side with it, one axis after the other."""
    window = node.params["window"]
    if node_of(value).op is not BITCAST or any(step != 1 for *_, step in window):
        return None
    for axis in reversed(range(node.spec.ndim)):
        start, stop, _ = window[axis]
        parts = [value]
        for length, place in ((start, 0), (node.spec.shape[axis] - stop, 1)):
            if length:
                shape = (*value.shape[:axis], length, *value.shape[axis + 1 :])
                zeros = full(0, Spec(shape, value.dtype, node.spec.device))
                parts.insert(place * len(parts), zeros)
        value = concat(*parts, axis=axis) if len(parts) > 1 else value
    return value
