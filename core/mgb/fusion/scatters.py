"""Elements that indices put at one place are folded in kernels, for backends that write where values say.

``segment_sum(x * x, keys, 1000)`` computes the squares and adds each where its key says, in one loop. What is
folded is complete when the kernel ends: what reads it belongs to other kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..backends import Scope, Traits
from ..ir import Graph, Kind, Node, Op, dtypes
from ..ir.sizes import broadcast, same_shape
from ..ops.declare import op_of
from ..ops.index import index_add, scatter_add_, selected
from ..ops.layout import broadcast_to
from ..ops.look_up import Along
from ..ops.primitives import add, cast, maximum, minimum, mul
from ..ops.scatter import scatter_fold
from ..ops.scatter_folds import scatter_max, scatter_min, scatter_prod, scatter_sum
from ..passes.merge import merge
from ..passes.reshapes import delay_reshapes
from ..passes.rewrite import constant_of, node_of, rewrite
from ..tensor import Tensor
from .gathers import reached_by, unstretched
from .legality import DEFAULT, FusionConfig, Shape, accepts

INDEX_ADD, SCATTER_ADD, SCATTER_FOLD = map(op_of, (index_add, scatter_add_, scatter_fold))

#: How elements are folded, and the result with what was there before.
FOLDS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "sum": (scatter_sum, add), "prod": (scatter_prod, mul),
    "max": (scatter_max, maximum), "min": (scatter_min, minimum),
}  # fmt: skip


def folded_into(graph: Graph, traits: Traits, config: FusionConfig = DEFAULT) -> Graph:
    """Spell sums and extremes of what indices put at one place as scatters, where a backend takes these.

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
    takes = Kind.SCATTER in traits.kinds and traits.scope is Scope.DOMAIN
    if not takes or not graph.has(INDEX_ADD, SCATTER_ADD, SCATTER_FOLD):
        return graph

    def rule(node: Node, *values: Tensor) -> Tensor | None:
        if node.op not in (INDEX_ADD, SCATTER_ADD, SCATTER_FOLD) or not node.inputs[1].spec.size > 1:
            return None
        found = _folded(node, *values)
        return found if found is not None and _is_taken(found, traits, config) else None

    return merge(delay_reshapes(rewrite(graph, rule)))


def _folded(node: Node, base: Tensor, value: Tensor, *indices: Tensor) -> Tensor | None:
    found = _places(node, base, indices)
    if found is None:
        return None
    given_places, along, shape = found
    places, value = [unstretched(i) for i in given_places], unstretched(value)
    if not same_shape(broadcast([value.shape, *(i.shape for i in places)]) or (), shape):
        value = broadcast_to(value, shape=shape)
    fold, join = FOLDS[node.params.get("fold", "sum")]
    narrow = base.dtype in dtypes.HALVES
    given = [cast(x, dtype=dtypes.float32) if narrow else x for x in (base, value)]
    made = fold(given[1], *places, along=along, shape=base.shape)
    if not _is_nothing(node.inputs[0], op_of(fold)):
        made = join(given[0], made)
    return cast(made, dtype=base.dtype) if narrow else made


def _places(
    node: Node, base: Tensor, indices: Sequence[Tensor]
) -> tuple[Sequence[Tensor], Along, Shape] | None:
    """Return the indices over the axes of the elements, how the axes of the result lie there, and these."""
    if node.op is INDEX_ADD:
        axes, place = node.params["axes"], node.params["place"]
        shape = selected("index_add", base, indices, axes, place)
        return *reached_by(base.ndim, indices, axes, place), shape
    (index,), axis = indices, node.params["axis"]
    whole = tuple(index.shape[a] if a == axis else d for a, d in enumerate(base.shape))
    if not same_shape(index.shape, whole):
        return None
    return indices, tuple(None if a == axis else a - base.ndim for a in range(base.ndim)), index.shape


def _is_nothing(base: Node, fold: Op) -> bool:
    """Return whether `base` is what a fold of no elements is: it changes none."""
    number, row = constant_of(base), fold.reduction
    assert row is not None
    nothing = row.identity(base.spec.dtype)
    return number is not None and bool(number == nothing) and bool(np.signbit(number) == np.signbit(nothing))


def _is_taken(found: Tensor, traits: Traits, config: FusionConfig) -> bool:
    """Return whether the backend takes the scatter that `found` is computed of."""
    todo = [node_of(found)]
    while todo[-1].op.kind is not Kind.SCATTER:
        todo.append(todo[-1].inputs[-1])
    return accepts(traits, todo[-1], config) is None
