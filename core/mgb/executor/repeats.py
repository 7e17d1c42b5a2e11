"""Repeated results: a kernel writes a result to each of its positions in a larger value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..backends import Traits
from ..fusion import Step
from ..ir import Graph, Node, input_node


def write_repeats(steps: Sequence[Step], traits: Traits) -> tuple[Step, ...]:
    """Give each place of an operand that an op puts side by side with itself a result of its own.

    Parameters
    ----------
    steps : sequence of Step
        In the order in which they run.
    traits : Traits
        Of the backend that is to compile the groups; without `Traits.strided_outputs` nothing is changed.
    """
    found, writer = list(steps), {n: k for k, step in enumerate(steps) if step.fused for n in step.writes}
    for k, step in enumerate(steps if traits.strided_outputs else ()):
        node = step.graph.outputs[0]
        if step.fused or node.op.parts is None or len(step.reads) == len(node.inputs):
            continue
        operands, constants = list[Node](), frozenset(step.outside.inputs).difference(step.reads)
        for value in step.outside.inputs:
            if value in operands and value in writer:
                again = input_node(value.spec, value.source)
                found[writer[value]] = _writing_again(found[writer[value]], value, again)
                value = again
            operands.append(value)
        inside = {v: input_node(v.spec, v.source) for v in operands if v not in constants}
        inputs = tuple(inside.get(v, v) for v in operands)
        put = Node(node.op, inputs, node.params, node.spec, node.source)
        found[k] = replace(step, graph=Graph(tuple(inside.values()), (put,)), reads=tuple(inside))
    return tuple(found)


def _writing_again(step: Step, value: Node, again: Node) -> Step:
    inner = step.graph.outputs[step.writes.index(value)]
    graph = Graph(step.graph.inputs, (*step.graph.outputs, inner))
    return replace(step, graph=graph, writes=(*step.writes, again))
