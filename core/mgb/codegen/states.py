"""The states of scans that carry several numbers, as graphs in the words of a backend."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from ..ir import Graph, Kind, Node, Op, Spec
from ..loops import RECURRENCE
from ..ops.declare import OPS
from ..passes.lower import lower
from ..tensor.tracing import graph_of


@dataclass(frozen=True, slots=True)
class Stated:
    """The state of a scan of one dtype: what `State` says, lowered.

    Attributes
    ----------
    begin : tuple of float
    lift, join, result : Graph
        `join` takes the state before, then the own one.

    Examples
    --------
    >>> from mgb.codegen import stated
    >>> from mgb.ir import Spec
    >>> from mgb.ops.scans import decayed_sum
    >>> from mgb.tensor.tracing import graph_of
    >>> graph = graph_of(lambda x, d: decayed_sum(x, d, axis=0), *[Spec((8,), np.dtype("float32"))] * 2)
    >>> stated(graph.nodes[0], frozenset({"fma", "mul"})).begin
    (0.0, 1.0)
    """

    begin: tuple[float, ...]
    lift: Graph
    join: Graph
    result: Graph


@dataclass(frozen=True, slots=True)
class _Words:
    vocabulary: frozenset[str]


def stateful() -> tuple[str, ...]:
    """Return the scans that carry several numbers, or are sequential.

    Examples
    --------
    >>> stateful()
    ('decayed_sum', 'logcumsumexp', 'recurrence')
    """
    scans = ((name, op) for name, op in OPS.items() if op.kind is Kind.SCAN)
    return tuple(sorted(name for name, op in scans if op.state is not None or op is RECURRENCE))


def stated(scan: Node, vocabulary: frozenset[str]) -> Stated:
    """Return the state of a scan that carries several numbers, in the words of `vocabulary`.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> from mgb.ops.scans import decayed_sum
    >>> from mgb.tensor.tracing import graph_of
    >>> graph = graph_of(lambda x, d: decayed_sum(x, d, axis=0), *[Spec((8,), np.dtype("float32"))] * 2)
    >>> print(stated(graph.nodes[0], frozenset({"fma", "mul"})).join)
    graph(%0: float32[], %1: float32[], %2: float32[], %3: float32[])
      %4: float32[] = fma(%3, %0, %2)
      %5: float32[] = mul(%3, %1)
      return %4, %5
    """
    return _stated(scan.op, scan.inputs[0].spec.dtype, len(scan.inputs), vocabulary)


@cache
def _stated(op: Op, dtype: np.dtype[np.generic], operands: int, vocabulary: frozenset[str]) -> Stated:
    assert op.state is not None
    state, one, words = op.state, Spec((), dtype), _Words(vocabulary)
    count = len(state.begin)
    lift = graph_of(lambda *xs: list(state.lift(*xs)), *[one] * operands)
    join = graph_of(lambda *xs: list(state.join(xs[:count], xs[count:])), *[one] * (2 * count))
    result = graph_of(lambda *xs: state.result(*xs), *[one] * count)
    return Stated(state.begin, *(lower(graph, words) for graph in (lift, join, result)))


def bodied(scan: Node, vocabulary: frozenset[str]) -> Graph:
    """Return the body of a recurrence in the words of `vocabulary`.

    Examples
    --------
    >>> from mgb.ir import Body, Spec
    >>> from mgb.loops import RECURRENCE
    >>> from mgb.tensor.apply import apply
    >>> from mgb.tensor.tracing import graph_of
    >>> one, step = Spec((), np.dtype("float32")), {"axis": 0, "carries": 1, "reverse": False}
    >>> body = Body(graph_of(lambda s, x: [s * x] * 2, one, one))
    >>> scan = graph_of(lambda s, x: apply(RECURRENCE, s, x, body=body, **step), one, one).nodes[-1]
    >>> print(bodied(scan, frozenset({"mul"})))
    graph(%0: float32[], %1: float32[])
      %2: float32[] = mul(%0, %1)
      return %2, %2
    """
    return lower(scan.params["body"].graph, _Words(vocabulary))


def is_sequential(node: Node) -> bool:
    """Return whether `node` is a recurrence, whose elements are found one after the other.

    Examples
    --------
    >>> from mgb.ir import Spec, input_node
    >>> is_sequential(input_node(Spec((4,), np.dtype("float32"))))
    False
    """
    return node.op is RECURRENCE
