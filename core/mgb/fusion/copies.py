"""Reshapes that copy come after what is computed of them, so that a kernel writes what they would copy.

A reshape of a transposed or a broadcast array is not a view. ``x.transpose(...).reshape(...) * 2`` would copy
and then compute; computed over the axes of the transposed view, which a kernel reads as it lies, the result
is row-major and its reshape costs nothing. What is repeated a few times is put side by side with itself, for
kernels that write windows: see `Op.parts`.
"""

from __future__ import annotations

from ..ir import Graph, Kind, Node
from ..ir.sizes import same_shape
from ..ir.strides import row_major
from ..ops.layout import BROADCAST_TO, RESHAPE, concat
from ..passes.broadcasts import delay_broadcasts
from ..passes.reshapes import delay_reshapes
from ..passes.rewrite import inputs_of, node_of, reshaped, rewrite
from ..tensor import Tensor
from ..tensor.apply import apply

Shape = tuple[int, ...]

#: What is repeated more often is copied.
FEW = 8


def delay_copies(graph: Graph) -> Graph:
    """Move reshapes that copy behind element-wise ops that read nothing else but single numbers."""
    if not any(map(_may_copy, graph.nodes)):
        return graph
    delayed: set[Node] = set()

    def rule(node: Node, *values: Tensor) -> Tensor | None:
        found = _computed_before(node, values, delayed) if node.op.kind is Kind.ELEMENTWISE else None
        if found is not None:
            delayed.add(node_of(found))
        return found

    return rewrite(delay_reshapes(delay_broadcasts(rewrite(graph, rule))), _repeated)


def _computed_before(node: Node, values: tuple[Tensor, ...], delayed: set[Node]) -> Tensor | None:
    sources = [inputs_of(v, RESHAPE) for v in values]
    copied = [s[0].shape for s, v in zip(sources, values, strict=True) if s and _is_dear(node_of(v), delayed)]
    if not copied:
        return None
    operands = []
    for value, source in zip(values, sources, strict=True):
        if source and same_shape(value.shape, node.spec.shape) and same_shape(source[0].shape, copied[0]):
            operands.append(source[0])
        elif value.ndim == 0:
            operands.append(value)
        else:
            return None
    return reshaped(apply(node.op, *operands, **node.params), node.spec.shape)


def _is_dear(reshape: Node, delayed: set[Node]) -> bool:
    return reshape in delayed or (_may_copy(reshape) and _lying(reshape) is None)


def _may_copy(node: Node) -> bool:
    """Return whether it is a reshape of a view other than a reshape."""
    seen = node.op is RESHAPE
    while node.op is RESHAPE:
        (node,) = node.inputs
    return seen and node.op.moves is not None


def _lying(node: Node) -> Shape | None:
    """Return the strides of what is a view of a row-major value; None where the last op copies."""
    if node.op.moves is None:
        return row_major(node.spec.shape)
    (source,) = node.inputs
    strides = _lying(source)
    shape = source.spec.shape
    return node.op.moves(shape, row_major(shape) if strides is None else strides, **node.params)


def _repeated(node: Node, *values: Tensor) -> Tensor | None:
    """Return a computed value repeated along one axis as a ``concat`` of itself, or None."""
    inner = inputs_of(values[0], BROADCAST_TO) if node.op is RESHAPE else None
    if inner is None or inner[0].ndim != values[0].ndim or not _is_computed(node_of(inner[0])):
        return None
    lengths = zip(inner[0].shape, values[0].shape, strict=True)
    axes = [a for a, (own, full) in enumerate(lengths) if own != full]
    if len(axes) != 1 or values[0].shape[axes[0]] > FEW:
        return None
    return reshaped(concat(*inner * int(values[0].shape[axes[0]]), axis=axes[0]), node.spec.shape)


def _is_computed(node: Node) -> bool:
    while node.op is RESHAPE:
        (node,) = node.inputs
    return node.op.kind is Kind.ELEMENTWISE
