"""Aliasing: the outputs that may share memory with an input, and those that must not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir import Graph, Kind, Node
from ..ops.look_up import tables_of
from .domain import spans
from .schedule import Schedule


def hazards(graph: Graph, schedule: Schedule) -> tuple[tuple[int, int], ...]:
    """Return (input, output) pairs that must not be the same memory.

    An element of an input may be overwritten by the output that was computed from it. It may not be when the
    output is computed from other elements or without it, is written by several threads, or is written before
    a pass that reads the input again. What is looked up may never be.

    Parameters
    ----------
    graph : Graph
    schedule : Schedule
        Of its passes, where each reads its operands again.

    Examples
    --------
    >>> from mgb.codegen import schedule
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> spec = Spec((4, 8), np.dtype("float32"))
    >>> one = graph_of(lambda x: F.softmax(x, axis=1), spec)
    >>> two = graph_of(lambda x: (x + 1, F.softmax(x, axis=1)), spec)
    >>> hazards(one, schedule(one)), hazards(two, schedule(two))
    ((), ((0, 0),))
    """
    span, pairs = spans(graph), []
    looked_up = {x for n in graph.nodes if n.op.kind is Kind.GATHER for x in tables_of(n)}
    for j, y in enumerate(graph.outputs):
        everywhere = all(s or d == 1 for s, d in zip(span[y], schedule.shape, strict=True))
        like = [i for i, x in enumerate(graph.inputs) if x.spec == y.spec]
        may_share = _sharing(schedule, y) if like and everywhere else lambda x: False
        pairs += [(i, j) for i in like if graph.inputs[i] in looked_up or not may_share(graph.inputs[i])]
    return tuple(sorted(pairs))


def replaced(graph: Graph, y: Node) -> tuple[int, ...]:
    """Return the inputs whose memory `y`, computed from their elements, may be given: updates in place.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> graph = graph_of(lambda x, y: x + 1, *[Spec((4, 8), np.dtype("float32"))] * 2)
    >>> replaced(graph, graph.outputs[0])
    (0,)
    """
    found = _cone(graph.nodes, y)
    return tuple(i for i, x in enumerate(graph.inputs) if x.spec == y.spec and x in found)


def _sharing(schedule: Schedule, y: Node) -> Callable[[Node], bool]:
    """Return a predicate: may an input share memory with the output `y`, which is written everywhere?"""
    written = next(k for k, p in enumerate(schedule.passes) if y in p.stores)
    here, later = schedule.passes[written], {x for p in schedule.passes[written + 1 :] for x in p.reads}
    read, found = set(here.reads), _cone(here.computes, y)
    return lambda x: x not in later and (x not in read or x in found)


def _cone(nodes: Sequence[Node], node: Node) -> set[Node]:
    found = {node}
    for v in reversed(nodes):
        if v in found:
            found.update(v.inputs)
    return found
