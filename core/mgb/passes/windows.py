"""Level 2: arrays that are filled window by window, and read by these windows alone, are not made.

An unrolled loop fills ``c[:, k]`` from ``c[:, k - 1]``. Where nobody reads `c` otherwise, each step may take
the value that the step before has computed: it can join its kernel then, and `c` needs no memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..ir import Graph, Node
from ..ir.sizes import same_shape
from ..ops.declare import op_of
from ..ops.index import slice_set
from ..ops.layout import SLICE, are_apart, broadcast_to, slice_
from ..tensor import Tensor
from ..tensor.tracing import copy_node, rebuild

#: So many assignments are looked through for the one that is read.
FAR = 512

_SLICE_SET = op_of(slice_set)


def skip_windows(graph: Graph) -> Graph:
    """Read what was assigned to windows where it comes from, if nobody needs the array then."""
    if graph.sizes is not None or not any(node.op is _SLICE_SET for node in graph.nodes):
        return graph
    origins = {n: o for n in graph.nodes if n.op is SLICE and (o := _origin(n)) is not None}
    unread = _unread(graph, origins)
    skipped = {n: o for n, o in origins.items() if n.inputs[0] in unread}
    if not skipped:
        return graph
    operands: dict[Node, tuple[Tensor, ...]] = {}

    def visit(node: Node, *values: Tensor) -> Tensor:
        if node.op is _SLICE_SET:
            operands[node] = values
        if node not in skipped:
            return copy_node(node, *values)
        assignment, is_there = skipped[node]
        base, value = operands[assignment]
        if not is_there:
            return slice_(base, window=node.params["window"])
        return (
            value if same_shape(value.shape, node.spec.shape) else broadcast_to(value, shape=node.spec.shape)
        )

    return graph.ending_in(rebuild(lambda *xs: graph.fold(visit, xs), graph.inputs).outputs)


def _origin(node: Node) -> tuple[Node, bool] | None:
    """Return the assignment whose value `node` reads; or the first one, if it reads what was before all.

    None: that is not known, or it is of several.
    """
    window, (array,) = node.params["window"], node.inputs
    first = None
    for _ in range(FAR):
        if array.op is not _SLICE_SET:
            return None if first is None else (first, False)
        if array.params["window"] == window:
            return array, True
        if not are_apart(array.params["window"], window):
            return None
        first, array = array, array.inputs[0]
    return None


def _unread(graph: Graph, origins: Mapping[Node, tuple[Node, bool]]) -> frozenset[Node]:
    """Return the arrays with assignments that nobody reads but by windows whose origin is known."""
    found: set[Node] = set()
    outputs = frozenset(graph.outputs)
    for node in reversed(graph.nodes):
        if node.op is not _SLICE_SET or node in outputs:
            continue
        others = (r for r in graph.readers[node] if r not in origins)
        if all(r in found and r.inputs[1] is not node for r in others):
            found.add(node)
    return frozenset(found)
