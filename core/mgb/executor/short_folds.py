"""Groups that fold short rows are turned, so that what they fold stands in front.

A kernel goes through the last axis of its domain vector by vector. Where that axis is folded and has three
elements, as in the distances of points in space, or ten, as the classes of a softmax, most of a vector is
empty and the walk around a row takes longer than the row. With the folded axes in front, its neighbours are
the lanes of a vector. Operands become transposed views; results of the whole domain are transposed views of
what is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from math import prod

import numpy as np

from ..backend import Scope, Traits
from ..codegen import aligned, domain, reduced_axes
from ..fusion import Step
from ..fusion.step import make_step
from ..ir import Graph, Kind, Node, Op, input_node
from ..ops.layout import RESHAPE, TRANSPOSE
from ..sizes import about, same_shape

Shape = tuple[int, ...]

#: Rows from which turning them is worth the views.
ROWS = 1 << 8


def turn_short_folds(steps: Sequence[Step], traits: Traits) -> tuple[Step, ...]:
    """Put the axes that a group folds in front where its rows have `Traits.short_folds` elements or fewer.

    Parameters
    ----------
    steps : sequence of Step
        In the order in which they run.
    traits : Traits
        Of the backend that is to compile the groups.

    Returns
    -------
    tuple of Step
        With further ones, which make views.
    """
    if not traits.short_folds or traits.scope is Scope.GRAPH:
        return tuple(steps)
    return tuple(s for step in steps for s in _turned(step, traits.short_folds))


def _turned(step: Step, longest: int) -> Iterator[Step]:
    order = _order(step.graph, longest) if step.fused else None
    if order is None:
        yield step
        return
    graph, reads = _graph(step.graph, order), list[Node]()
    for read, inner in zip(step.reads, graph.inputs, strict=True):
        views = _views(read, aligned(read.spec.shape, len(order)), order, inner.spec.shape)
        yield from (_viewed(view) for view in views)
        reads.append(views[-1] if views else read)
    stored = tuple(input_node(out.spec, out.source) for out in graph.outputs)
    yield replace(step, graph=graph, reads=tuple(reads), writes=stored)
    back = tuple(int(a) for a in np.argsort(order))
    for result, wanted in zip(stored, step.writes, strict=True):
        turned = aligned(result.spec.shape, len(order))
        views = _views(result, turned, back, wanted.spec.shape)
        yield from (_viewed(view) for view in views[:-1])
        yield replace(_viewed(views[-1]), writes=(wanted,))


def _order(graph: Graph, longest: int) -> tuple[int, ...] | None:
    """The axes of the domain, those that are folded first; None: they stay where they are."""
    if any(n.op.kind not in (Kind.ELEMENTWISE, Kind.REDUCE) and not _is_flat(n) for n in graph.nodes):
        return None
    folded, shape = reduced_axes(graph), domain(graph)
    long = [a for a, d in enumerate(shape) if d != 1]
    row = [shape[a] for a in takewhile(lambda a: a in folded, reversed(long))]
    kept = [a for a in range(len(shape)) if a not in folded]
    if not row or prod(row) > longest:
        return None
    return (*folded, *kept) if about(prod(shape[a] for a in kept)) >= ROWS else None


def _is_flat(leaf: Node) -> bool:
    """Does it vary along no axis?"""
    return leaf.op.kind is Kind.LEAF and all(d == 1 for d in leaf.spec.shape)


def _permuted(value: Node, order: Sequence[int]) -> Shape:
    shape = aligned(value.spec.shape, len(order))
    return value.spec.shape if all(d == 1 for d in shape) else tuple(shape[a] for a in order)


def _views(value: Node, full: Shape, order: tuple[int, ...], wanted: Shape) -> list[Node]:
    """What makes `value`, seen as `full`, have its axes in `order`, and the shape `wanted`."""
    long = [a for a in order if full[a] != 1]
    if long == sorted(long):
        return _reshaped(value, wanted)
    views = _reshaped(value, full)
    turned = _node(TRANSPOSE, views[-1] if views else value, axes=order)
    return [*views, turned, *_reshaped(turned, wanted)]


def _reshaped(value: Node, shape: Shape) -> list[Node]:
    return [] if same_shape(value.spec.shape, shape) else [_node(RESHAPE, value, shape=shape)]


def _node(op: Op, value: Node, **params: object) -> Node:
    return Node(op, (value,), params, op.infer(value.spec, **params), value.source)


def _viewed(view: Node) -> Step:
    return make_step([view], [view], False, "a view for a kernel that folds short rows")


def _graph(graph: Graph, order: tuple[int, ...]) -> Graph:
    """The group over the turned domain."""
    copy = {i: input_node(replace(i.spec, shape=_permuted(i, order)), i.source) for i in graph.inputs}
    copy |= {n: n for n in graph.nodes if n.op.kind is Kind.LEAF}
    for node in (n for n in graph.nodes if n not in copy):
        params, inputs = dict(node.params), tuple(copy[i] for i in node.inputs)
        if node.op.kind is Kind.REDUCE:
            lead = len(order) - node.inputs[0].spec.ndim
            params["axis"] = tuple(sorted(order.index(a + lead) for a in params["axis"]))
        copy[node] = Node(
            node.op, inputs, params, node.op.infer(*[i.spec for i in inputs], **params), node.source
        )
    return Graph(tuple(copy[i] for i in graph.inputs), tuple(copy[o] for o in graph.outputs))
