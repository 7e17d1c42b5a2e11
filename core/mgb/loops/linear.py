"""Derivatives of graphs, as graphs: they are folded under tapes, on Tensors without values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ..autodiff.tape import Tape, forward_mode
from ..ir import CONST, INPUT, Body, Graph, Node, input_node
from ..ir.dtypes import INEXACT
from ..ops.creation import zeros_like
from ..tensor import ACTIVE, Tensor, next_level
from ..tensor.apply import apply
from ..tensor.tracing import Builder, rebuild


def floats(nodes: Sequence[Node]) -> tuple[int, ...]:
    """Return the places of those that have gradients."""
    return tuple(n for n, node in enumerate(nodes) if node.spec.dtype in INEXACT)


def fold_again(graph: Graph, values: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the outputs of `graph`, whose ops are applied again: tapes see them."""

    def rule(node: Node, *operands: Tensor) -> Tensor:
        builder = ACTIVE.get()
        if node.op is CONST and isinstance(builder, Builder):
            return builder.tensor(node)
        return apply(node.op, *operands, **node.params)

    return graph.fold(rule, values)


def with_inputs(graph: Graph) -> Graph:
    """Return `graph` with its own inputs where it takes what another computes: no pass looks behind them."""
    inputs = tuple(node if node.op is INPUT else input_node(node.spec) for node in graph.inputs)

    def copied(node: Node, *operands: Node) -> Node:
        return (
            node if operands == node.inputs else Node(node.op, operands, node.params, node.spec, node.source)
        )

    return Graph(inputs, graph.fold(copied, inputs))


@lru_cache(maxsize=256)
def both_ways(body: Body, wanted: tuple[int, ...]) -> Graph:
    """Return a graph and the gradients of its inputs `wanted`.

    Returns
    -------
    Graph
        It takes what the graph takes, then a gradient for each of its outputs that is of floats; it gives
        what the graph gives, then the gradients.
    """
    graph = body.graph
    seeds = [graph.outputs[n] for n in floats(graph.outputs)]
    cotangents = [input_node(node.spec) for node in seeds]

    def gradients(*values: Tensor) -> list[Tensor]:
        xs, dys = list(values[: len(graph.inputs)]), values[len(graph.inputs) :]
        tape = Tape(next_level())
        for n in wanted:
            xs[n] = xs[n]._alias()
            tape.watch(xs[n], lambda _: None)
        leaves = [(xs[n]._tape or {})[tape] for n in wanted]
        tape.open()
        try:
            outs = fold_again(graph, xs)
        finally:
            tape.rest()
        arrived = tape.pull([outs[n] for n in floats(graph.outputs)], dys, set(leaves))
        grads = (arrived[leaf] if leaf in arrived else zeros_like(xs[n].spec)
                 for leaf, n in zip(leaves, wanted, strict=True))  # fmt: skip
        return [*outs, *grads]

    return rebuild(gradients, (*graph.inputs, *cotangents))


def pullback(body: Body, wanted: tuple[int, ...]) -> Graph:
    """Return the gradients of `both_ways` alone."""
    both = both_ways(body, wanted)
    return Graph(both.inputs, both.outputs[len(body.graph.outputs) :])


@lru_cache(maxsize=256)
def pushforward(body: Body) -> Graph:
    """Return the derivative of a graph in a direction: the gradient of its gradient, which is linear.

    Returns
    -------
    Graph
        It takes what the graph takes, then a tangent for each input of floats; it gives a tangent for each
        output of floats.
    """
    graph, wanted = body.graph, floats(body.graph.inputs)
    token = forward_mode.set(True)
    try:
        back = pullback(body, wanted)
        twice = pullback(Body(back), tuple(range(len(graph.inputs), len(back.inputs))))
    finally:
        forward_mode.reset(token)
    count = len(graph.inputs), len(back.inputs)
    seeds = twice.inputs[count[0] : count[1]]

    def tangents(*values: Tensor) -> tuple[Tensor, ...]:
        zeros = [zeros_like(node.spec) for node in seeds]
        return fold_again(twice, (*values[: count[0]], *zeros, *values[count[0] :]))

    return rebuild(tangents, (*graph.inputs, *twice.inputs[count[1] :]))
