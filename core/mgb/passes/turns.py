"""Level 3: loops whose steps are few element-wise ops do several steps at once.

Then what is carried stays in registers from step to step, and a kernel is started once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir import CONST, Body, Graph, Kind, Node
from ..ir.sizes import Size
from ..loops import RESULT, SCAN, result
from ..tensor import Tensor
from ..tensor.apply import apply
from ..tensor.tracing import copy_node, rebuild

#: So many ops are done at once, and so many steps; shorter loops stay as they are.
OPS, STEPS, SHORT = 96, 16, 64


def take_several_turns(graph: Graph) -> Graph:
    """Rewrite `graph`, so that its loops take several steps of few element-wise ops in a turn."""
    if not any(_at_once(node) > 1 for node in graph.nodes):
        return graph
    return rebuild(lambda *xs: graph.fold(_rule, xs), graph.inputs)


def _at_once(node: Node) -> int:
    """Return the number of steps of a node that one iteration runs."""
    if node.op is not SCAN or node.params["length"] < SHORT:
        return 1
    body, carries = node.params["body"].graph, node.params["carries"]
    if len(body.inputs) != node.params["consts"] + carries or len(body.outputs) != carries:
        return 1
    ops = [n for n in body.nodes if n.op is not CONST]
    if not ops or any(n.op.kind is not Kind.ELEMENTWISE for n in ops):
        return 1
    return min(OPS // len(ops), STEPS)


def _rule(node: Node, *values: Any) -> Any:
    """Return the fold's rule; the value of such a scan is the list of its results."""
    times = _at_once(node)
    if times > 1:
        return _several(node, times, values)
    if node.op is RESULT and isinstance(values[0], list):
        return values[0][node.params["index"]]
    return copy_node(node, *values)


def _several(node: Node, times: int, values: Sequence[Tensor]) -> list[Tensor]:
    params = node.params
    graph, consts = params["body"].graph, params["consts"]
    turns, rest = divmod(params["length"], times)

    def steps(count: int, given: Sequence[Tensor]) -> list[Tensor]:
        outside, carry = given[:consts], list(given[consts:])
        for _ in range(count):
            carry = list(graph.fold(copy_node, (*outside, *carry)))
        return carry

    def scan(given: Sequence[Tensor], body: Body, length: Any) -> list[Tensor]:
        bundle = apply(SCAN, *given, **{**params, "body": body, "length": length})
        return [result(bundle, n, output.spec) for n, output in enumerate(graph.outputs)]

    carry = scan(values, Body(rebuild(lambda *xs: steps(times, xs), graph.inputs)), turns)
    given = (*values[:consts], *carry)
    if type(rest) is Size:  # how many are left is another number for each length
        return scan(given, params["body"], rest)
    return steps(rest, given)
