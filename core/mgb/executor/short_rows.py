"""Groups of short rows are turned, so that neighbouring rows are the lanes of a vector.

A kernel goes through the last axis of its domain vector by vector. Where that axis has three elements, as the
coordinates of points or the colours of pixels, or ten, as the classes of a softmax, most of a vector is empty
and the walk around a row takes longer than the row. If it is folded, it is put in front. If not, and how an
operand lies keeps it from being one with the axis before, it is put before as many as make a long row.
Operands become transposed views. Results of the whole domain are transposed views of what is stored, and laid
out for who wants them otherwise: by the kernel, where it may write into windows (`parts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from math import prod

import numpy as np

from ..backends import Scope, Traits
from ..codegen import aligned, domain, reduced_axes, tables
from ..fusion import Step
from ..fusion.gathers import LOOK_UP
from ..fusion.step import make_step
from ..ir import Graph, Kind, Node, Op, input_node
from ..ir.sizes import about, same_shape
from ..ir.strides import broadcast_strides, row_major
from ..ops.declare import op_of
from ..ops.dot import DOT
from ..ops.layout import RESHAPE, TRANSPOSE, concat
from ..ops.look_up import Along, reach
from ..ops.primitives import IOTA
from ..passes.rewrite import with_inputs
from .views import lying

Shape = tuple[int, ...]

CONCAT = op_of(concat)

#: Rows from which turning them is worth the views; where none is folded, elements, and those of a long row.
ROWS, ELEMENTS, LONG = 1 << 8, 1 << 14, 1 << 10

#: How many times as long rows may be where products are folded: each vector of theirs has a loop of its own.
DOTTED = 4


def turn_short_rows(graph: Graph, steps: Sequence[Step], traits: Traits) -> tuple[Step, ...]:
    """Turn the groups whose rows have `Traits.short_rows` elements or fewer.

    Parameters
    ----------
    graph : Graph
        The whole program.
    steps : sequence of Step
        In the order in which they run.
    traits : Traits
        Of the backend that is to compile the groups.

    Returns
    -------
    tuple of Step
        With further ones, which make views.
    """
    if not traits.short_rows or traits.scope is Scope.GRAPH:
        return tuple(steps)
    laid_out = _laid_out(graph, steps)
    return tuple(s for step in steps for s in _turned(step, traits, laid_out))


def _laid_out(graph: Graph, steps: Sequence[Step]) -> frozenset[Node]:
    """Return the outputs of the program and the operands that ops need in a layout of their own."""
    strict = (s for s in steps if not s.fused and _op(s) is not TRANSPOSE and _op(s).parts is None)
    return frozenset((*graph.outputs, *(n for step in strict for n in step.reads)))


def _op(step: Step) -> Op:
    return step.graph.outputs[0].op


def _turned(given: Step, traits: Traits, laid_out: frozenset[Node]) -> Iterator[Step]:
    step = _with_tables_apart(given) if given.fused else given
    order = _order(step, traits) if step.fused else None
    if order is None:
        yield given
        return
    graph, reads = _graph(step.graph, order), list[Node]()
    apart = tables(graph)
    for read, inner in zip(step.reads, graph.inputs, strict=True):
        if inner in apart:
            reads.append(read)
            continue
        views = _views(read, aligned(read.spec.shape, len(order)), order, inner.spec.shape)
        yield from (_viewed(view) for view in views)
        reads.append(views[-1] if views else read)
    back, stored, moved = tuple(int(a) for a in np.argsort(order)), list[Node](), list[list[Node]]()
    for out, wanted in zip(graph.outputs, step.writes, strict=True):
        result = input_node(out.spec, out.source)
        views = _views(result, aligned(out.spec.shape, len(order)), back, wanted.spec.shape)
        if any(view.op is TRANSPOSE for view in views) and wanted in laid_out and _is_put(out, step.graph):
            views.append(_node(CONCAT, views[-1], axis=0))
        stored.append(result if views else wanted)
        moved.append(views)
    yield replace(step, graph=graph, reads=tuple(reads), writes=tuple(stored))
    for views, wanted in zip(moved, step.writes, strict=True):
        yield from (_viewed(view) for view in views[:-1])
        if views:
            yield replace(_viewed(views[-1]), writes=(wanted,))


def _with_tables_apart(step: Step) -> Step:
    """Return a group in which what products go through, and is read in the domain, too, is read twice."""
    graph = step.graph
    dots = [n for n in graph.nodes if n.op.name == DOT]
    shared = {i for n in dots for i in n.inputs if i in graph.inputs}.difference(tables(graph))
    if not shared:
        return step
    twins = {i: input_node(i.spec, i.source) for i in graph.inputs if i in shared}
    copy = {i: i for i in graph.inputs}
    for node in graph.nodes:
        if node not in copy:
            inputs = tuple(twins.get(i, copy[i]) if node in dots else copy[i] for i in node.inputs)
            copy[node] = with_inputs(node, inputs)
    outside = dict(zip(graph.inputs, step.reads, strict=True))
    found = Graph((*graph.inputs, *twins.values()), tuple(copy[o] for o in graph.outputs))
    return replace(step, graph=found, reads=(*step.reads, *(outside[i] for i in twins)))


def _is_put(out: Node, graph: Graph) -> bool:
    """Return whether a kernel puts a result where it is wanted; not where a whole domain is folded, too."""
    return not reduced_axes(graph) or out.spec.size != prod(domain(graph))


def _order(step: Step, traits: Traits) -> tuple[int, ...] | None:
    """Return the axes of the domain in the order of the turned one; None: they stay where they are."""
    graph = step.graph
    if not all(_can_turn(n, graph) for n in graph.nodes):
        return None
    folded, shape = reduced_axes(graph), domain(graph)
    long = [a for a, d in enumerate(shape) if d != 1]
    if not folded:
        if not traits.strided_outputs or about(prod(shape)) < ELEMENTS or _factors(graph):
            return None
        moved = _outward(step, shape, long, traits.short_rows)
        return None if moved == long else (*(a for a, d in enumerate(shape) if d == 1), *moved)
    row = [shape[a] for a in takewhile(lambda a: a in folded, reversed(long))]
    longest = traits.short_rows * (DOTTED if _factors(graph) else 1)
    single = [a for a, d in enumerate(shape) if d == 1]
    kept = [a for a in long if a not in folded]
    if row and prod(row) <= longest and about(prod(shape[a] for a in kept)) >= ROWS:
        if traits.strided_outputs:
            kept = _outward(step, shape, kept, traits.short_rows)
        return (*single, *(a for a in long if a in folded), *kept)
    return (*single, *long) if len(long) > 1 and long[-1] != len(shape) - 1 else None  # rows of one


def _outward(step: Step, shape: Shape, axes: list[int], longest: int) -> list[int]:
    """Return the axes, short ones at the end before those that make a long row.

    Some stay: they make a row with the axis before, since every operand lies so.
    """
    operands = [(out.spec.shape, row_major(out.spec.shape)) for out in step.graph.outputs]
    factors = _factors(step.graph)
    for read, inner in zip(step.reads, step.graph.inputs, strict=True):
        own, steps = read.spec.shape, lying(read)
        alongs = factors.get(inner, [tuple(range(-len(own), 0))])
        operands += [(reach(own, along), reach(steps, along, 0)) for along in alongs]
    strides = [broadcast_strides(own, steps, shape) for own, steps in operands]
    order, short = list(axes), list[int]()
    while len(order) > 1 and shape[order[-1]] <= longest:
        before, last = order[-2:]
        if all(steps[before] == steps[last] * shape[last] for steps in strides):
            break
        short.insert(0, order.pop())
    place = len(order)
    while place and about(prod(shape[a] for a in order[place:])) < LONG:
        place -= 1
    return [*order[:place], *short, *order[place:]]


def _factors(graph: Graph) -> dict[Node, list[Along]]:
    """Return the inputs that products go through, with the axes of the domain along which they lie."""
    found: dict[Node, list[Along]] = {}
    for node in graph.nodes:
        if node.op.name == DOT:
            for operand, along in zip(node.inputs, node.params["along"], strict=True):
                found.setdefault(operand, []).append(along)
    return found


def _can_turn(node: Node, graph: Graph) -> bool:
    """Return whether it can be had over a turned domain: of constants those that vary along no axis."""
    if node.op.kind is Kind.LEAF:
        return sum(d != 1 for d in node.spec.shape) <= (node.op is IOTA)
    if node.op.name == DOT:
        return tables(graph).issuperset(node.inputs)
    if node.op is LOOK_UP:
        table, *others = node.inputs
        own = table in tables(graph)  # else it is turned with the domain, and its axes are in another order
        return own or (table.spec.ndim == len(domain(graph)) and len(others) == 1)
    return node.op.kind in (Kind.ELEMENTWISE, Kind.REDUCE)


def _permuted(value: Node, order: Sequence[int]) -> Shape:
    shape = aligned(value.spec.shape, len(order))
    return value.spec.shape if all(d == 1 for d in shape) else tuple(shape[a] for a in order)


def _views(value: Node, full: Shape, order: tuple[int, ...], wanted: Shape) -> list[Node]:
    """List the ops that order the axes of `value`, seen as `full`, by `order`, and shape it as `wanted`."""
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
    return make_step([view], [view], False, "a view for a kernel of short rows, which is turned")


def _graph(graph: Graph, order: tuple[int, ...]) -> Graph:
    """Return the group over the turned domain; tables outside of it are as they were."""
    apart = tables(graph)
    copy = {
        i: input_node(i.spec if i in apart else replace(i.spec, shape=_permuted(i, order)), i.source)
        for i in graph.inputs
    }
    for node in graph.nodes:
        if node in copy:
            continue
        params, inputs = dict(node.params), tuple(copy[i] for i in node.inputs)
        if node.op is IOTA:
            params["shape"] = _permuted(node, order)
        elif node.op.kind is Kind.REDUCE:
            lead = len(order) - node.inputs[0].spec.ndim
            params["axis"] = tuple(sorted(order.index(a + lead) for a in params["axis"]))
        elif node.op is LOOK_UP:
            params["along"] = _along(node, order, node.inputs[0] in apart)
        elif node.op.name == DOT:
            params["along"] = tuple(_moved(along, order) for along in params["along"])
        copy[node] = node
        if node.op.kind is not Kind.LEAF or node.op is IOTA:
            spec = node.op.infer(*[i.spec for i in inputs], **params)
            copy[node] = Node(node.op, inputs, params, spec, node.source)
    return Graph(tuple(copy[i] for i in graph.inputs), tuple(copy[o] for o in graph.outputs))


def _along(look_up: Node, order: tuple[int, ...], is_apart: bool) -> Along:
    """Return how the axes of a table lie along those of the turned domain."""
    found = _moved(look_up.params["along"], order)
    return found if is_apart else tuple(found[a] for a in order)


def _moved(along: Along, order: tuple[int, ...]) -> Along:
    return tuple(None if at is None else order.index(at + len(order)) - len(order) for at in along)
