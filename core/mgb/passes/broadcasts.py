"""Level 2: element-wise ops compute on small operands, and broadcasting stays implicit."""

from __future__ import annotations

from ..ir import Graph, Kind, Node
from ..ir.sizes import same_shape
from ..ops.layout import BROADCAST_TO, RESHAPE
from ..tensor import Tensor
from ..tensor.apply import apply
from .reshapes import merged_reshape
from .rewrite import inputs_of, rewrite, shaped, stretches


def delay_broadcasts(graph: Graph) -> Graph:
    """Take broadcasts off the operands of element-wise ops; where its shape needs one, put it behind the op.

    Reshapes that only add or drop leading axes of length 1 count as broadcasts; other reshapes are merged on
    the way, since they may stand between two broadcasts.
    """
    return rewrite(graph, _delay) if graph.has(BROADCAST_TO, RESHAPE) else graph


def _delay(node: Node, *values: Tensor) -> Tensor | None:
    if node.op is RESHAPE:
        return merged_reshape(values[0], node.spec.shape)
    if node.op is BROADCAST_TO:
        source = _source(values[0])
        if source is not values[0] or same_shape(source.shape, node.spec.shape):
            return shaped(source, node.spec.shape)
        return None
    if node.op.kind is not Kind.ELEMENTWISE:
        return None
    sources = [_source(v) for v in values]
    if all(s is v for s, v in zip(sources, values, strict=True)):
        return None
    return shaped(apply(node.op, *sources, **node.params), node.spec.shape)


def _source(value: Tensor) -> Tensor:
    """Return `value` before broadcasts and reshapes that implicit broadcasting replaces."""
    while True:
        inner = inputs_of(value, BROADCAST_TO) or inputs_of(value, RESHAPE)
        if inner is None or not _implicit(inner[0].shape, value.shape):
            return value
        value = inner[0]


def _implicit(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    """Return whether NumPy stretches `small` to `large`, but for leading axes of length 1."""
    lead = max(0, len(small) - len(large))
    return all(d == 1 for d in small[:lead]) and stretches(small[lead:], large)
