"""A ``while_loop`` as ONNX's Loop, a ``cond`` as its If: their graphs see the names around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import onnx
from mgb.ir import Graph, Node, Op
from mgb.ir.dtypes import bool_, int64
from mgb.loops import COND, WHILE

from .values import NUMBER_OF


class Writer(Protocol):
    """A sheet that writes graphs, within another one too."""

    nodes: list[Any]

    def call(self, operator: str, *inputs: str) -> str:
        """Add a node of one output and return the name of its value."""

    def constant(self, array: Any) -> str:
        """Return the name of a constant."""

    def new_name(self, wanted: str) -> str:
        """Return a name that nothing has, here and in the graphs around."""

    def within(self) -> Writer:
        """Return a sheet for a graph that sees the values of this one."""

    def write(self, graph: Graph, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Add the nodes of `graph`."""


def write_loop(sheet: Writer, node: Node, inputs: Sequence[str]) -> list[str]:
    """Add a loop or a branch and return the names of its results."""
    return _WAYS[node.op](sheet, node, inputs)


def _while(sheet: Writer, node: Node, inputs: Sequence[str]) -> list[str]:
    test, body, consts = (node.params[name] for name in ("test", "body", "consts"))
    outside, first, ends = inputs[:consts], inputs[consts:], body.graph.outputs
    begins = sheet.new_name("goes_on")
    sheet.write(test.graph, inputs, [begins])
    inner = sheet.within()
    turn, going, goes_on = (sheet.new_name(name) for name in ("turn", "going", "goes_on"))
    carried, new, last = (_names(sheet, name, len(first)) for name in ("carried", "next", "last"))
    inner.write(body.graph, [*outside, *carried], new)
    inner.write(test.graph, [*outside, *new], [goes_on])
    given = [_typed(turn, int64, ()), _typed(going, bool_, ()), *map(_typed, carried, map(_dtype, ends))]
    made = [_typed(goes_on, bool_, ()), *map(_typed, new, map(_dtype, ends))]
    step = onnx.helper.make_graph(inner.nodes, sheet.new_name("body"), given, made)
    sheet.nodes.append(onnx.helper.make_node("Loop", ["", begins, *first], last, body=step))
    return last


def _cond(sheet: Writer, node: Node, inputs: Sequence[str]) -> list[str]:
    index, *operands = inputs
    graphs = [branch.graph for branch in node.params["branches"]]
    return _chosen(sheet, node.inputs[0], index, graphs, operands)


def _chosen(
    sheet: Writer, chooser: Node, index: str, graphs: Sequence[Graph], operands: Sequence[str]
) -> list[str]:
    """Return the results of one of `graphs`: of the last one, or of one of those before it."""
    *others, graph = graphs
    names = _names(sheet, "chosen", len(graph.outputs))
    if not others:
        sheet.write(graph, operands, names)
        return names
    yes, no = sheet.within(), sheet.within()
    found = _names(sheet, "then", len(names))
    yes.write(graph, operands, found)
    results = found, _chosen(no, chooser, index, others, operands)
    ways = [
        onnx.helper.make_graph(
            way.nodes, sheet.new_name(name), [], list(map(_typed, found, map(_dtype, graph.outputs)))
        )
        for way, name, found in zip((yes, no), ("then", "else"), results, strict=True)
    ]
    holds = index
    if chooser.spec.dtype != bool_:
        least = sheet.constant(np.array(len(others), chooser.spec.dtype))
        holds = sheet.call("GreaterOrEqual", index, least)
    made = onnx.helper.make_node("If", [holds], names, then_branch=ways[0], else_branch=ways[1])
    sheet.nodes.append(made)
    return names


_WAYS: dict[Op, Callable[[Writer, Node, Sequence[str]], list[str]]] = {WHILE: _while, COND: _cond}


def _names(sheet: Writer, wanted: str, count: int) -> list[str]:
    return [sheet.new_name(wanted) for _ in range(count)]


def _dtype(node: Node) -> Any:
    return node.spec.dtype


def _typed(name: str, dtype: Any, shape: Sequence[int] | None = None) -> Any:
    """Return a type without a shape where lengths may be open: so the graph is the same for all."""
    return onnx.helper.make_tensor_value_info(name, NUMBER_OF[dtype], shape)


def graphs_within(node: Any) -> Iterator[Any]:
    """Yield the graphs that a node of ONNX holds."""
    for attribute in node.attribute:
        yield from (attribute.g,) if attribute.HasField("g") else attribute.graphs


def nodes_within(nodes: Sequence[Any]) -> Iterator[Any]:
    """Yield nodes of ONNX, and those of the graphs that they hold."""
    for node in nodes:
        yield node
        for graph in graphs_within(node):
            yield from nodes_within(graph.node)
