"""Extents that no reduction of their reader's kernel counts become numbers of the program.

``mean(loss)`` divides by the number of rows, and so does its gradient, which needs nothing else of the loss.
Were the number left where the rows are summed, the gradient's kernel would have to wait for that sum.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..ir import Graph, Kind, Node, Op, Spec
from ..ops.reduce import EXTENT
from ..passes.rewrite import with_inputs

#: A constant that is not part of a kernel's source: it is read, so one kernel serves every value.
NUMBER = Op(
    "number",
    Kind.LEAF,
    lambda value, shape, dtype, device: Spec(shape, dtype, device),
    lambda value, shape, dtype, device: np.full(shape, value, dtype),
    differentiable=False,
)


def place_extents(graph: Graph) -> Graph:
    """Give each reader of an `extent` one of its own.

    A reader that also reads a reduction of as many elements, as in ``reduce_sum(x) / extent(x)``, gets the
    extent of that reduction's operand: the kernel that folds it knows how many there are, in calls of
    any size. Others get a `NUMBER`, which a kernel has as an operand, for the same reason.
    """
    if not graph.has(EXTENT):
        return graph
    numbers: dict[Node, Node] = {}

    def visit(node: Node, *inputs: Node) -> Node:
        placed = []
        for old, new in zip(node.inputs, inputs, strict=True):
            if old.op is not EXTENT:
                placed.append(new)
                continue
            folded = _folded(node, old, inputs)
            if folded is None:
                placed.append(numbers.setdefault(old, _number(old)))
            else:
                placed.append(Node(old.op, (folded,), old.params, old.spec, old.source))
        return with_inputs(node, tuple(placed))

    return graph.ending_in(graph.fold(visit, graph.inputs))


def _folded(reader: Node, extent: Node, inputs: tuple[Node, ...]) -> Node | None:
    """Return the operand of a reduction over the same axes of the same shape that `reader` reads, or None."""
    (counted,) = extent.inputs
    for old, new in zip(reader.inputs, inputs, strict=True):
        if old.op.kind is Kind.REDUCE and old is not extent:
            (source,) = new.inputs
            if old.params == extent.params and source.spec.shape == counted.spec.shape:
                return source
    return None


def _number(extent: Node) -> Node:
    (counted,) = extent.inputs
    value = prod(counted.spec.shape[axis] for axis in extent.params["axis"])
    return _of_number(value, extent.spec, extent.source)


def number_node(value: Any, dtype: np.dtype[Any], device: str) -> Node:
    """Return a `NUMBER` without axes."""
    return _of_number(value, Spec((), dtype, device), "")


def _of_number(value: Any, spec: Spec, source: str) -> Node:
    params = {"value": value, "shape": spec.shape, "dtype": spec.dtype, "device": spec.device}
    return Node(NUMBER, (), params, spec, source)
