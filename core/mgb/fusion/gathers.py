"""Indexing by arrays becomes part of kernels, for backends that read elements where other values say.

``weight[words] * scale + places`` reads rows of a table, and computes with them at once: the rows are never
put together. Indices are computed in the kernel too. What is looked up must lie in memory: it ends a group.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..backends import Scope, Traits
from ..ir import CONST, Graph, Kind, Node
from ..ir.sizes import same_shape
from ..ops.declare import op_of
from ..ops.index import gather_, index_get
from ..ops.layout import BROADCAST_TO, RESHAPE, TRANSPOSE, slice_
from ..ops.look_up import Along, look_up
from ..ops.primitives import IOTA
from ..passes.merge import merge
from ..passes.reshapes import delay_reshapes
from ..passes.rewrite import COMPUTING, inputs_of, needed_by, node_of, read_once, reshaped, rewrite, value_of
from ..tensor import Tensor
from .affine import view
from .legality import DEFAULT, FusionConfig, accepts
from .views import viewed

INDEX_GET, GATHER, LOOK_UP = op_of(index_get), op_of(gather_), op_of(look_up)


def looked_up(graph: Graph, traits: Traits, config: FusionConfig = DEFAULT) -> Graph:
    """Spell indexing by arrays as `look_up`, where a backend takes that.

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
    if not takes or not graph.has(INDEX_GET, GATHER):
        return graph

    computed = needed_by(graph, lambda r: r.op.kind in COMPUTING, (RESHAPE, TRANSPOSE))
    single = read_once(graph)

    def rule(node: Node, *values: Tensor) -> Tensor | None:
        if node in computed and values and node.inputs[0] in single and node_of(values[0]).op is LOOK_UP:
            return viewed(node, values[0])
        if node.op not in (INDEX_GET, GATHER) or not _lies_in_memory(node_of(values[0])):
            return None
        found = (_of_get if node.op is INDEX_GET else _of_gather)(node, values)
        if node in computed and (counted := _counted(node_of(found))) is not None:
            return counted
        return found if accepts(traits, node_of(found), config) is None else None

    graph = rewrite(graph, rule)
    return merge(delay_reshapes(graph)) if graph.has(RESHAPE) else graph


def _counted(found: Node) -> Tensor | None:
    """Return what is looked up at places that count as a view, or None."""
    if found.op is not LOOK_UP:
        return None
    x, *indices = found.inputs
    return view(value_of(x), indices, found.params["along"], found.spec.shape)


def _lies_in_memory(node: Node) -> bool:
    """Return whether it is a value that kernels read. Small constants and places are part of them."""
    return node.op not in (CONST, IOTA) and node.spec.size > 1


def _of_get(node: Node, values: Sequence[Tensor]) -> Tensor:
    x, *indices = values
    spread, along = reached_by(x.ndim, indices, node.params["axes"], node.params["place"])
    return look_up(x, *spread, along=along)


def reached_by(
    ndim: int, indices: Sequence[Tensor], axes: Sequence[int], place: int
) -> tuple[list[Tensor], Along]:
    """Return indices over the axes of what they select of `ndim` axes, and how the axes lie along these.

    Parameters
    ----------
    ndim : int
    indices : sequence of Tensor
    axes, place
        As ``index_get`` has them.
    """
    rest = [a for a in range(ndim) if a not in axes]
    behind, inside = len(rest) - place, max(i.ndim for i in indices)
    spread = [reshaped(i, (*i.shape, *(1,) * behind)) for i in indices]
    at = {a: k - len(rest) - (inside if k < place else 0) for k, a in enumerate(rest)}
    return _in_order(spread, axes), tuple(at.get(a) for a in range(ndim))


def _in_order(indices: Sequence[Tensor], axes: Sequence[int]) -> list[Tensor]:
    return [index for _, index in sorted(zip(axes, indices, strict=True), key=lambda pair: pair[0])]


def _of_gather(node: Node, values: Sequence[Tensor]) -> Tensor:
    x, index = values
    axis = node.params["axis"]
    shape = tuple(x.shape[a] if a == axis else d for a, d in enumerate(index.shape))
    if not same_shape(shape, x.shape):
        x = slice_(x, window=tuple((0, d, 1) for d in shape))
    along = tuple(None if a == axis else a - x.ndim for a in range(x.ndim))
    found = look_up(x, unstretched(index), along=along)
    return found if same_shape(found.shape, node.spec.shape) else look_up(x, index, along=along)


def unstretched(index: Tensor) -> Tensor:
    """Return an index before it was broadcast: a row of a table is reached by one."""
    stretched = inputs_of(index, BROADCAST_TO)
    return index if stretched is None else unstretched(*stretched)
