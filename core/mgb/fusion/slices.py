"""Slices move in front of element-wise ops all of whose results are sliced.

``a[::2] + a[1::2]`` of a computed `a` would store it whole, for the slices to be views of it. Where the
slices have no more elements than `a`, each is computed of slices of the operands instead, in the kernel that
reads it.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ..ir import Graph, Kind, Node
from ..ir.sizes import about, count, key
from ..ops.layout import SLICE, Window, slice_
from ..passes.merge import merge
from ..tensor import Tensor
from ..tensor.apply import apply
from ..tensor.tracing import copy_node, rebuild
from .components import LONGEST


def hoist_slices(graph: Graph) -> Graph:
    """Move each slice of a computed value in front of what is computed for slices alone."""
    sliced = _sliced(graph) if graph.has(SLICE) else None
    if not sliced:
        return graph

    def write(*inputs: Tensor) -> list[Tensor]:
        whole = dict(zip(graph.inputs, inputs, strict=True))
        parts: dict[Any, Tensor] = {}

        def part(node: Node, window: Window) -> Tensor:
            own = _own(node, window)
            name = node, _key(own)
            if name not in parts and node not in sliced:
                parts[name] = slice_(whole[node], window=own)
            return parts[name]

        for node in graph.nodes:
            for window in sliced.get(node, {}).values():
                operands = [part(i, window) if i.spec.ndim else whole[i] for i in node.inputs]
                parts[node, _key(window)] = apply(node.op, *operands, **node.params)
            if node.op is SLICE and node.inputs[0] in sliced:
                whole[node] = part(node.inputs[0], node.params["window"])
            elif node not in sliced:
                whole[node] = copy_node(node, *(whole[i] for i in node.inputs))
        return [whole[node] for node in graph.outputs]

    return merge(rebuild(write, graph.inputs))


def _sliced(graph: Graph) -> dict[Node, dict[Any, Window]]:
    """Return the element-wise values of which slices are wanted alone, no larger in all than they are."""
    wanted: dict[Node, dict[Any, Window]] = {}
    outputs = frozenset(graph.outputs)
    for node in reversed(graph.nodes):
        readers = graph.readers[node]
        if node.op.kind is not Kind.ELEMENTWISE or node in outputs or not node.inputs or not readers:
            continue
        if not all(_cuts(r) or (r in wanted and r.spec.ndim == node.spec.ndim) for r in readers):
            continue
        windows: dict[Any, Window] = {}
        for reader in readers:
            given = [reader.params["window"]] if _cuts(reader) else wanted[reader].values()
            windows.update((_key(own), own) for own in (_own(node, window) for window in given))
        if sum(about(prod(count(*axis) for axis in w)) for w in windows.values()) <= about(node.spec.size):
            wanted[node] = windows
    return wanted


def _cuts(node: Node) -> bool:
    """Return whether it is a slice, but not one element of short rows, which `taken_apart` takes."""
    if node.op is not SLICE or node.spec.size == 0:
        return False
    lengths = zip(node.inputs[0].spec.shape, node.spec.shape, strict=True)
    return not any(own == 1 and full != 1 and about(full) <= LONGEST for full, own in lengths)


def _key(window: Window) -> Any:
    return key([end for axis in window for end in axis])


def _own(operand: Node, window: Window) -> Window:
    """Return the window of an operand, which may be broadcast."""
    axes = window[len(window) - operand.spec.ndim :]
    return tuple((0, 1, 1) if d == 1 else axis for d, axis in zip(operand.spec.shape, axes, strict=True))
