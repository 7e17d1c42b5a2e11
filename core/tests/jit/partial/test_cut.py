"""The values that a forward pass keeps are a minimum cut: judged by trying every set of values."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb import Tensor, tensor
from mgb.autodiff.cut import MOST, Network, values_to_keep, without
from mgb.functional import matmul
from mgb.ir import INPUT, Graph, Kind, Node, Spec, input_node
from mgb.jit.entry import OUTPUT_GRADIENT
from mgb.ops.creation import zeros_like
from mgb.ops.layout import concat
from mgb.ops.primitives import add, mul, neg
from mgb.tensor.apply import apply
from mgb.tensor.tracing import graph_of, rebuild

FLOAT = np.dtype(np.float32)


def computable(node: Node, kept: Sequence[Node]) -> bool:
    """Whether element-wise ops and moves lead from `kept` to `node`."""
    if node in kept:
        return True
    cheap = node.op is not INPUT and node.op.kind in (Kind.ELEMENTWISE, Kind.LAYOUT, Kind.LEAF)
    return cheap and all(computable(i, kept) for i in node.inputs)


def cost(kept: Sequence[Node], held: Sequence[Node]) -> int:
    return sum(1 if n in held else n.spec.nbytes for n in kept)


@settings(max_examples=60)
@given(st.data())
def test_saved_values_are_a_minimum_cut(data: st.DataObject) -> None:
    """Random graphs of chains, products and reductions over two shapes."""

    def body(*inputs: Tensor) -> Tensor:
        values = list(inputs)
        for _ in range(data.draw(st.integers(1, 5))):
            a, b = (values[data.draw(st.integers(0, len(values) - 1))] for _ in range(2))
            choice = data.draw(st.integers(0, 3))
            values.append(
                [
                    neg(a),
                    a * b,
                    a.sum(axis=0, keepdims=True),
                    matmul(a, b) if a.shape == (4, 4) == b.shape else a,
                ][choice]
            )
        g = apply(OUTPUT_GRADIENT, values[-1])
        picked = [values[data.draw(st.integers(0, len(values) - 1))] for _ in range(2)]
        return mul(mul(g, picked[0]), picked[1])

    inputs = [Spec((4, 4), FLOAT), Spec((1, 4), FLOAT)]
    graph = graph_of(body, *inputs)
    arriving = [n for n in graph.nodes if n.op is OUTPUT_GRADIENT]
    held = list(graph.inputs)
    kept = values_to_keep(graph.outputs, arriving, held)
    later = Graph((*arriving, *kept), graph.outputs)
    assert not [n for n in later.nodes if n.op is INPUT or n.op.kind in (Kind.REDUCE, Kind.CONTRACT)]
    reads = [graph.outputs[0].inputs[1], graph.outputs[0].inputs[0].inputs[1]]
    values = [*graph.inputs, *(n for n in graph.nodes if n not in arriving)]
    values = [n for n in values if n not in (graph.outputs[0], graph.outputs[0].inputs[0])]
    best = min(
        cost(chosen, held)
        for count in range(len(values) + 1)
        for chosen in itertools.combinations(values, count)
        if all(computable(n, chosen) for n in reads)
    )
    assert cost(kept, held) == best


def test_latest_of_equal_cuts_is_chosen() -> None:
    def body(x: Tensor, w: Tensor) -> Tensor:
        y = neg(matmul(x, w))
        return mul(apply(OUTPUT_GRADIENT, y), y)

    graph = graph_of(body, Spec((4, 4), FLOAT), Spec((4, 4), FLOAT))
    arriving = [n for n in graph.nodes if n.op is OUTPUT_GRADIENT]
    (kept,) = values_to_keep(graph.outputs, arriving, graph.inputs)
    assert kept.op.name == "neg"


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(1, 9)), min_size=3, max_size=16))
def test_network_cut_is_minimal(edges: list[tuple[int, int, int]]) -> None:
    edges = [(a, b, c) for a, b, c in edges if a != b]
    network = Network()
    for _ in range(5):
        network.vertex()
    for a, b, c in edges:
        network.edge(a, b, c)
    behind = network.behind_the_cut()
    assert 1 in behind and 0 not in behind

    def crossing(side: set[int]) -> int:
        return sum(c for a, b, c in edges if a not in side and b in side)

    others = [{1, *s} for k in range(6) for s in itertools.combinations(range(2, 7), k)]
    assert crossing(behind) == min(map(crossing, others))


def test_missing_gradients_are_dropped_or_zero() -> None:
    gradients = tuple(input_node(Spec((2,), FLOAT)) for _ in range(3))

    def body(a: Tensor, b: Tensor, c: Tensor) -> list[Tensor]:
        return [add(neg(a), neg(b)), concat(a, b, axis=0), neg(c), add(a, zeros_like(a))]

    graph = rebuild(body, gradients)
    part, places = without(graph, arrived=[1], missing=[0, 2])
    assert places == (0, 1)
    assert [n.op.name for n in part.nodes if n.op.name in ("add", "neg")] == ["neg"]
    a = np.array([1.0, 2.0], FLOAT)

    def run(node: Node, *values: Tensor) -> Tensor:
        return (
            apply(node.op, *values, **node.params)
            if node.op.name != "const"
            else tensor(node.params["value"])
        )

    first, second = part.fold(run, [tensor(a)] * 3)
    assert first.tolist() == [-1, -2]
    assert second.tolist() == [0, 0, 1, 2]


def test_long_chain_is_recomputed_only_at_its_end() -> None:
    """And no recursion is as deep as it."""

    def body(x: Tensor) -> Tensor:
        y = x
        for _ in range(2000):
            y = neg(y)
        return mul(apply(OUTPUT_GRADIENT, y), y)

    graph = graph_of(body, Spec((4,), FLOAT))
    (arriving,) = (n for n in graph.nodes if n.op is OUTPUT_GRADIENT)
    (kept,) = values_to_keep(graph.outputs, [arriving], graph.inputs)
    assert len(Graph((arriving, kept), graph.outputs).nodes) <= MOST + 1


def test_short_chain_saves_only_its_input() -> None:
    def body(x: Tensor) -> Tensor:
        y = x
        for _ in range(MOST):
            y = neg(y)
        return mul(apply(OUTPUT_GRADIENT, y), y)

    graph = graph_of(body, Spec((4,), FLOAT))
    arriving = [n for n in graph.nodes if n.op is OUTPUT_GRADIENT]
    assert values_to_keep(graph.outputs, arriving, graph.inputs) == list(graph.inputs)
