"""Scans written out step by step, for who has no word for a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir import Body, Graph, Node
from ..ops.creation import zeros_like
from ..ops.layout import concat, reshape, slice_
from ..tensor import Tensor
from ..tensor.tracing import copy_node, rebuild
from .bundle import RESULT
from .ops import LOOPS, SCAN, stacked


def unrolled(graph: Graph) -> Graph:
    """Return `graph` with the steps of each scan in its place, in loops and branches too.

    Those of a ``while_loop`` nobody knows.
    """
    if not graph.has(*LOOPS):
        return graph
    return rebuild(lambda *xs: graph.fold(_written_out, xs), graph.inputs)


def _written_out(node: Node, *values: Any) -> Any:
    """Return the fold's rule; the value of a scan is the list of its results."""
    if node.op is SCAN:
        return _results(node, values)
    if node.op is RESULT and isinstance(values[0], list):
        return values[0][node.params["index"]]
    if node.op in LOOPS:
        params = {name: _of_bodies(value) for name, value in node.params.items()}
        node = Node(node.op, node.inputs, params, node.spec, node.source)
    return copy_node(node, *values)


def _of_bodies(value: Any) -> Any:
    """Return a parameter whose graphs have no scans."""
    if isinstance(value, tuple):
        return tuple(map(_of_bodies, value))
    return Body(unrolled(value.graph)) if isinstance(value, Body) else value


def _results(node: Node, values: Sequence[Tensor]) -> list[Tensor]:
    params = node.params
    graph, first, count, length = (
        params["body"].graph, params["consts"], params["carries"], params["length"]
    )  # fmt: skip
    outside, carry, xs = values[:first], list(values[first : first + count]), values[first + count :]
    rows: list[list[Tensor]] = [[] for _ in graph.outputs[count:]]
    for t in reversed(range(length)) if params["reverse"] else range(length):
        outs = graph.fold(_written_out, (*outside, *carry, *(_row(x, t) for x in xs)))
        carry = list(outs[:count])
        for column, out in zip(rows, outs[count:], strict=True):
            column.append(reshape(out, shape=(1, *out.shape)))
    nodes = graph.outputs[count:]
    columns = [column[::-1] if params["reverse"] else column for column in rows]
    return [*carry, *(concat(*c, axis=0) if c else zeros_like(stacked(n.spec, 0))
                      for c, n in zip(columns, nodes, strict=True))]  # fmt: skip


def _row(x: Tensor, t: int) -> Tensor:
    shape = x.shape[1:]
    return reshape(slice_(x, window=((t, t + 1, 1), *((0, d, 1) for d in shape))), shape=shape)
