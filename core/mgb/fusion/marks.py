"""A scatter of one element into each row becomes a comparison of places, which kernels compute with the rest.

The gradient of ``take_along_axis(z, labels[:, None], 1)`` puts one number into each row of zeros. Where no
row gets two, no order matters: each element of a row is the one that the index says, or not. The index is
looked up among the places that there are: so negative ones count from the end, and one out of range is an
error.
"""

from __future__ import annotations

import numpy as np

from ..backends import Scope, Traits
from ..ir import Graph, Kind, Node
from ..ir.sizes import same_shape
from ..ops.declare import op_of
from ..ops.index import scatter_
from ..ops.layout import concat
from ..ops.look_up import look_up
from ..ops.primitives import eq, iota, where
from ..passes.rewrite import node_of, rewrite, shaped
from ..tensor import Tensor
from .gathers import unstretched
from .legality import DEFAULT, FusionConfig, accepts
from .scatters import FOLDS, SCATTER_ADD, SCATTER_FOLD

SCATTER = op_of(scatter_)


def marked(graph: Graph, traits: Traits, config: FusionConfig = DEFAULT) -> Graph:
    """Spell scatters of one element into each row as a choice, where a backend looks up.

    Parameters
    ----------
    graph : Graph
        Simplified.
    traits : Traits
        Of the backend that is to compile the groups.
    config : FusionConfig
        What the user allows.

    Returns
    -------
    Graph
    """
    takes = Kind.GATHER in traits.kinds and traits.scope is Scope.DOMAIN
    if not takes or not graph.has(SCATTER, SCATTER_ADD, SCATTER_FOLD):
        return graph

    def rule(node: Node, *values: Tensor) -> Tensor | None:
        if node.op not in (SCATTER, SCATTER_ADD, SCATTER_FOLD) or not _is_one_of_each_row(node):
            return None
        base, value, index = map(unstretched, values)
        places, axis = node.spec.ndim, node.params["axis"]
        shape = tuple(d if a == axis else 1 for a, d in enumerate(node.spec.shape))
        length = node.spec.shape[axis]
        few = type(length) is int and length <= np.iinfo(np.int32).max
        dtype = np.dtype(np.int32 if few else np.int64)
        row = iota(shape=shape, dtype=dtype, device=node.spec.device)
        along = tuple(None if a == axis else a - places for a in range(places))
        found = look_up(concat(row, axis=0), index, along=along)
        if accepts(traits, node_of(found), config) is not None:
            return None
        put = value if node.op is SCATTER else FOLDS[node.params.get("fold", "sum")][1](base, value)
        return shaped(where(eq(found, row), put, base), node.spec.shape)

    return rewrite(graph, rule)


def _is_one_of_each_row(node: Node) -> bool:
    axis, index = node.params["axis"], node.inputs[2].spec.shape
    shape = tuple(1 if a == axis else d for a, d in enumerate(node.spec.shape))
    return same_shape(index, shape) and node.spec.size > node.inputs[2].spec.size > 0
