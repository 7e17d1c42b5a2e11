"""Which outputs may be the memory of an input, and which must not."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import Graph, Node
from .domain import spans
from .schedule import Schedule


def hazards(graph: Graph, schedule: Schedule) -> tuple[tuple[int, int], ...]:
    """(input, output) pairs that must not be the same memory.

    An element of an input may be overwritten by the output that was computed from it. It may not be when the
    output is computed from other elements or without it, is written by several threads, or is written before
    a pass that reads the input again.

    Parameters
    ----------
    graph : Graph
    schedule : Schedule
        Of its passes, where each reads its operands again.
    """
    span, pairs = spans(graph), []
    for i, x in enumerate(graph.inputs):
        for j, y in enumerate(graph.outputs):
            everywhere = all(s or d == 1 for s, d in zip(span[y], schedule.shape, strict=True))
            if x.spec == y.spec and not (everywhere and _may_share(schedule, x, y)):
                pairs.append((i, j))
    return tuple(pairs)


def replaced(graph: Graph, y: Node) -> tuple[int, ...]:
    """The inputs whose memory `y`, computed from their elements, may be given: updates in place."""
    found = _cone(graph.nodes, y)
    return tuple(i for i, x in enumerate(graph.inputs) if x.spec == y.spec and x in found)


def _may_share(schedule: Schedule, x: Node, y: Node) -> bool:
    written = [k for k, p in enumerate(schedule.passes) if y in p.stores]
    read = [k for k, p in enumerate(schedule.passes) if x in p.reads]
    if not written or (read and read[-1] > written[0]):
        return False
    return written[0] not in read or x in _cone(schedule.passes[written[0]].computes, y)


def _cone(nodes: Sequence[Node], node: Node) -> set[Node]:
    found = {node}
    for v in reversed(nodes):
        if v in found:
            found.update(v.inputs)
    return found
