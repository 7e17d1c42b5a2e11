"""Level 2: transposes move towards the inputs, where they are strided views that cost nothing."""

from __future__ import annotations

from functools import partial

from ..ir import Graph, Kind, Node
from ..ir.sizes import same_shape
from ..ops.layout import TRANSPOSE, transpose
from ..tensor import Tensor
from ..tensor.apply import apply
from ..tensor.tracing import copy_node, rebuild
from .rewrite import COMPUTING, inputs_of, node_of, read_once, reshaped, rewrite

Axes = tuple[int, ...]


def hoist_transposes(graph: Graph) -> Graph:
    """Move each transpose that stands between computing ops in front of what only it reads.

    A transpose at an end, or before a matmul, is a view already and stays.
    """
    moved = _moved(graph) if graph.has(TRANSPOSE) else None
    if not moved:
        return graph

    def visit(node: Node, *values: Tensor) -> Tensor:
        if node in moved:
            axes = moved[node]
            operands = (
                v if i in moved else _transposed(v, axes) for i, v in zip(node.inputs, values, strict=True)
            )
            return apply(node.op, *operands, **node.params)
        if node.op is TRANSPOSE and node.inputs[0] in moved:
            return values[0]
        return copy_node(node, *values)

    return rebuild(lambda *xs: graph.fold(visit, xs), graph.inputs)


def _moved(graph: Graph) -> dict[Node, Axes]:
    """Return the nodes to compute in transposed form, each with its axes."""
    moved: dict[Node, Axes] = {}
    outputs = frozenset(graph.outputs)
    for node in reversed(graph.nodes):
        readers = graph.readers[node]
        if node.op.kind is not Kind.ELEMENTWISE or len(readers) != 1 or node in outputs or not node.spec.ndim:
            continue
        (reader,) = readers
        if reader.op is TRANSPOSE:
            if any(r.op.kind in COMPUTING for r in graph.readers[reader]):
                moved[node] = reader.params["axes"]
        elif reader in moved and reader.spec.ndim == node.spec.ndim:
            moved[node] = moved[reader]
    return moved


def _transposed(value: Tensor, axes: Axes) -> Tensor:
    """Return `value`, which broadcasts to what the transpose read, so that it broadcasts to what it gives."""
    if not value.ndim:
        return value
    value = reshaped(value, (1,) * (len(axes) - value.ndim) + value.shape)
    return transpose(value, axes=axes)


def merge_transposes(graph: Graph) -> Graph:
    """Make one transpose of two, a reshape of one that moves only ones, and reduce before transposing.

    Where others read the transposed value too, the reduction stays with them: they may share a kernel.
    """
    return rewrite(graph, partial(_merge, read_once(graph))) if graph.has(TRANSPOSE) else graph


def _merge(alone: frozenset[Node], node: Node, *values: Tensor) -> Tensor | None:
    inner = inputs_of(values[0], TRANSPOSE) if values else None
    reduces = node.op.kind is Kind.REDUCE and node.op.is_primitive  # argmax counts in row-major order
    if reduces and inner and node.inputs[0] in alone:
        return _reduce_first(node, values[0], inner[0])
    if node.op is not TRANSPOSE:
        return None
    axes: Axes = node.params["axes"]
    source = values[0]
    if inner:
        before = _axes(values[0])
        axes, source = tuple(before[a] for a in axes), inner[0]
    long = [a for a in axes if source.shape[a] != 1]
    if long == sorted(long):
        return reshaped(source, node.spec.shape)
    return transpose(source, axes=axes)


def _reduce_first(node: Node, value: Tensor, source: Tensor) -> Tensor:
    axes = _axes(value)
    return transpose(_reduced(node, source, axes), axes=axes)


def _reduced(node: Node, source: Tensor, axes: Axes) -> Tensor:
    """Reduce what `node` reduces, before it is transposed by `axes`."""
    return apply(node.op, source, axis=tuple(sorted(axes[a] for a in node.params["axis"])))


def reduce_as_stored(graph: Graph) -> Graph:
    """Compute what only reductions read in the order in which its operands are stored.

    ``(x.T * y).sum(axis=1)`` becomes ``(x * y[:, None]).sum(axis=0)``. All large operands are transposes by
    the same axes, and only reductions read the result, so the order of its elements does not matter.
    """
    stored = _stored(graph) if graph.has(TRANSPOSE) else None
    if not stored:
        return graph

    def visit(node: Node, *values: Tensor) -> Tensor:
        if node.op is TRANSPOSE and node in stored:
            return values[0]
        if node.op.kind is Kind.REDUCE and node.inputs[0] in stored:
            axes = stored[node.inputs[0]]
            return transpose(_reduced(node, values[0], axes), axes=axes)
        if node not in stored:
            return copy_node(node, *values)
        back = _inverse(stored[node])
        operands = (
            v if i in stored else _transposed(v, back) for i, v in zip(node.inputs, values, strict=True)
        )
        return apply(node.op, *operands, **node.params)

    return rebuild(lambda *xs: graph.fold(visit, xs), graph.inputs)


def _stored(graph: Graph) -> dict[Node, Axes]:
    """Return the values to compute as they are stored, and their transposed sources, each with its axes."""
    found: dict[Node, Axes] = {}
    outputs, seen = frozenset(graph.outputs), set[Node]()
    for start in graph.nodes:
        if start.op is not TRANSPOSE or start in seen:
            continue
        axes = start.params["axes"]
        region = _region(graph, start)
        seen |= region
        sources = [n for n in region if n.op is TRANSPOSE]
        computed = [n for n in region if n.op is not TRANSPOSE]
        ends = {r for n in region for r in graph.readers[n]} - region
        reduced = ends and all(r.op.kind is Kind.REDUCE and r.op.is_primitive for r in ends)
        if reduced and region.isdisjoint(outputs) and all(n.params["axes"] == axes for n in sources):
            large = (i for n in computed for i in n.inputs if same_shape(i.spec.shape, n.spec.shape))
            if all(i in region for i in large):
                found |= dict.fromkeys(region, axes)
    return found


def _region(graph: Graph, start: Node) -> set[Node]:
    """Return the transposes and element-wise values of the shape of `start` that are read with it."""
    region, waiting = {start}, [start]
    while waiting:
        node = waiting.pop()
        sources = () if node.op is TRANSPOSE else node.inputs
        near = {n for n in (*graph.readers[node], *sources) if n.op.kind is Kind.ELEMENTWISE}
        near |= {n for n in sources if n.op is TRANSPOSE}
        joining = {n for n in near - region if same_shape(n.spec.shape, start.spec.shape)}
        region |= joining
        waiting += joining
    return region


def _inverse(axes: Axes) -> Axes:
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


def _axes(value: Tensor) -> Axes:
    axes: Axes = node_of(value).params["axes"]
    return axes
