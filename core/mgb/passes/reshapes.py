"""Level 2: reshapes that only move axes of length 1 get out of the way of fusion.

``sum(x, axis=1)`` is a reduction that keeps its axis, and a reshape that drops it. What is computed next
would stand in another domain than the reduction. So such a reshape moves behind the element-wise ops and
reductions that follow it, and their other operands take the shape before it: at the inputs, where a reshape
is a view.
"""

from __future__ import annotations

from ..ir import Graph, Kind, Node
from ..ir.sizes import same_shape
from ..ops.layout import BROADCAST_TO, RESHAPE, TRANSPOSE, broadcast_to
from ..ops.primitives import IOTA, iota
from ..tensor import Tensor
from ..tensor.apply import apply
from ..tensor.tracing import copy_node
from .rewrite import COMPUTING, inputs_of, node_of, read_once, reshaped, rewrite, value_of

Shape = tuple[int, ...]

#: Kinds of ops behind which, and of readers before which, a reshape is in the way.
_JOINED = COMPUTING | {Kind.GATHER, Kind.SCATTER}

#: Chains of this many element-wise ops are recomputed in another shape; longer ones stay as they are.
DEEP = 64


def merged_reshape(value: Tensor, shape: Shape) -> Tensor:
    """Return `value` in `shape` by one reshape at most; broadcasts come after it, and an iota needs none."""
    if inner := inputs_of(value, RESHAPE):
        return merged_reshape(inner[0], shape)
    if node_of(value).op is IOTA:
        return iota(**{**node_of(value).params, "shape": shape})
    if inner := inputs_of(value, BROADCAST_TO):
        if inner[0].size == 1:
            return broadcast_to(merged_reshape(inner[0], ()), shape=shape)
        if same_shape(long(value.shape), long(shape)):
            small = _moved(inner[0].shape, value.shape, shape)
            return broadcast_to(merged_reshape(inner[0], small), shape=shape)
    return reshaped(value, shape)


def delay_reshapes(graph: Graph) -> Graph:
    """Move reshapes that add, drop or move axes of length 1 behind what is computed from them."""
    if not graph.has(RESHAPE):
        return graph
    single = read_once(graph)
    movable: set[Node] = set()

    def rule(node: Node, *values: Tensor) -> Tensor:
        found = None
        if node.op.kind is Kind.ELEMENTWISE:
            found = _elementwise(node, values, movable)
        elif node.op.kind is Kind.REDUCE:
            found = _reduction(node, values[0])
        elif node.op is RESHAPE and any(map(_joins, graph.readers[node])):
            found = _into(values[0], node.spec.shape, movable) if moves_ones(node) else None
        out = copy_node(node, *values) if found is None else found
        if node in single and node.op.kind is node_of(out).op.kind is Kind.ELEMENTWISE:
            movable.add(node_of(out))
        return out

    return rewrite(graph, rule)


def _joins(reader: Node) -> bool:
    return reader.op.kind in _JOINED or reader.op is TRANSPOSE  # which moves on, in front of what computes


def _elementwise(node: Node, values: tuple[Tensor, ...], movable: set[Node]) -> Tensor | None:
    """Return the op in the shape from before the reshape of one of its operands, then that reshape."""
    shape = node.spec.shape
    for value in values:
        before = _before(value)
        if before is None or not same_shape(long(value.shape), long(shape)):
            continue
        operands = [_operand(v, shape, before.shape, movable) for v in values]
        found = [o for o in operands if o is not None]
        if len(found) == len(operands):
            return reshaped(apply(node.op, *found, **node.params), shape)
    return None


def _operand(value: Tensor, here: Shape, there: Shape, movable: set[Node]) -> Tensor | None:
    """Return `value`, which broadcasts to `here`, so that it broadcasts to `there`."""
    found = _into(value, _moved(value.shape, here, there), movable)
    fits = not long(value.shape) and value.ndim <= len(there)
    return value if found is None and fits else found


def _reduction(node: Node, value: Tensor) -> Tensor | None:
    before = _before(value)
    if before is None:
        return None
    place = places(value.shape, before.shape)
    axis = tuple(sorted(place[a] for a in node.params["axis"] if a in place))
    return reshaped(apply(node.op, before, axis=axis), node.spec.shape) if axis else None


def _before(value: Tensor) -> Tensor | None:
    """Return the value before its axes of length 1 were moved, or None."""
    inner = inputs_of(value, RESHAPE)
    if inner is None or node_of(inner[0]).op.kind not in _JOINED:
        return None
    return inner[0] if moves_ones(node_of(value)) else None


def _into(value: Tensor, shape: Shape, movable: set[Node], depth: int = 0) -> Tensor | None:
    """Return `value` in `shape`, its axes of length 1 moved; None if a reshape would come after an op."""
    node = node_of(value)
    if same_shape(value.shape, shape):
        return value
    if inner := inputs_of(value, RESHAPE):
        return reshaped(inner[0], shape)
    if node.op.kind not in COMPUTING:
        return reshaped(value, shape)
    if node not in movable or depth == DEEP:
        return None
    operands = []
    for operand in map(value_of, node.inputs):
        found = _into(operand, _moved(operand.shape, value.shape, shape), movable, depth + 1)
        if found is None:
            return None
        operands.append(found)
    found = apply(node.op, *operands, **node.params)
    return found if same_shape(found.shape, shape) else None  # of operands without axes nothing gets one


# shapes whose axes longer than 1 agree


def is_one(length: object) -> bool:
    """Return whether a length is known to be 1; those that are followed count as longer."""
    return type(length) is int and length == 1


def long(shape: Shape) -> Shape:
    """Return the lengths but 1."""
    return tuple(d for d in shape if not is_one(d))


def moves_ones(node: Node) -> bool:
    """Return whether it is a reshape by which axes of length 1 come, go or move, and the others stay."""
    return node.op is RESHAPE and same_shape(long(node.inputs[0].spec.shape), long(node.spec.shape))


def places(here: Shape, there: Shape) -> dict[int, int]:
    """Return where each axis of `here` that is longer than 1 is in `there`."""
    axes = [[i for i, d in enumerate(shape) if not is_one(d)] for shape in (here, there)]
    return dict(zip(*axes, strict=True))


def _moved(small: Shape, here: Shape, there: Shape) -> Shape:
    """Return the shape that broadcasts to `there` as `small` broadcasts to `here`."""
    if not small:
        return small
    lead = len(here) - len(small)
    shape = [1] * len(there)
    for i, place in places(here, there).items():
        shape[place] = small[i - lead] if i >= lead else 1
    return tuple(shape)
