"""What fusion leaves apart, and the laws that hold for any graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from fusing import (
    HOLES,
    TRAITS,
    WHOLE,
    execute,
    f32,
    fused,
    ops,
    softmax,
    steps_of,
    total,
)
from graphs import arrays_for, random_graphs, run
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb import dtypes
from mgb.backends import Scope, Traits
from mgb.codegen.domain import domain, reduced_axes
from mgb.fusion import FusionConfig, accepts, detect, duplicate
from mgb.fusion.quotient import Quotient
from mgb.ir import Graph, Node, Spec
from mgb.ops import layout, primitives
from mgb.ops.activations import relu
from mgb.ops.bodies import transcendental as tr
from mgb.ops.images import contract
from mgb.passes import simplify
from mgb.tensor import Tensor
from mgb.tensor.tracing import graph_of
from work import calls_of

# what does not


def test_reductions_over_different_axes_are_two_groups() -> None:
    steps = steps_of(lambda x: (total(x * x, 0), total(x * x, 1)), f32(6, 5))
    assert len(fused(steps)) == 2
    assert any("it folds axes" in s.reason for s in steps)


def test_config_can_exclude_reductions_from_fusion() -> None:
    steps = steps_of(softmax, f32(6, 5), reduce=False)
    assert [ops(s) for s in steps if not s.fused] == [["reduce_max"], ["reduce_sum"], ["div"]]
    assert "configuration" in next(s.reason for s in steps if not s.fused)


def test_fuel_limits_merging() -> None:
    counts = [len(steps_of(softmax, f32(6, 5), fuel=n)) for n in range(6)]
    assert counts[0] == 5 and counts[-1] == 1 and counts == sorted(counts, reverse=True)


def test_single_large_row_ends_the_group_at_its_reduction() -> None:
    graph = graph_of(lambda x: x * 2.0 / total(x * x, 0), f32(1 << 18))
    steps = detect(graph, TRAITS)
    assert [ops(s)[-1] for s in steps] == ["reduce_sum", "div"] and "1 rows" in steps[0].reason


def test_costly_values_are_not_recomputed_per_row() -> None:
    steps = steps_of(lambda x, y: x + tr.exp(y), f32(6, 5), f32(5))
    assert len(steps) == 2
    assert len(steps_of(lambda x, y: x + (y + 1.0), f32(6, 5), f32(5))) == 1


def test_unsupported_ops_dtypes_devices_and_empty_arrays_are_rejected() -> None:
    def reason(function: Callable[..., Any], *specs: Spec, traits: Traits = TRAITS) -> str | None:
        return accepts(traits, graph_of(function, *specs).outputs[0])

    few = Traits(frozenset({"add", "where", "lt"}), api_version=1)
    assert reason(lambda x: x + 1.0, f32(3), traits=few) is None
    assert reason(relu, f32(3), traits=few) is not None
    assert "float64" in str(reason(lambda x: x + 1.0, Spec((3,), dtypes.float64), traits=few))
    assert "'mul'" in str(reason(lambda x: x * 2.0, f32(3), traits=few))
    assert "gpu0:0" in str(reason(lambda x: x + 1.0, Spec((3,), dtypes.float32, "gpu0:0")))
    assert reason(lambda x: x + 1.0, f32(0, 3)) == "has no elements"
    assert reason(lambda x: total(x, 0), f32(3, 3), traits=few) == "is of kind reduce"


def test_step_between_two_groups_prevents_their_merge() -> None:
    def body(x: Tensor) -> Tensor:
        y = tr.exp(x) * 2.0
        return contract.matmul(y, y) + y

    steps = steps_of(body, f32(3, 3), traits=HOLES)
    assert [s.fused for s in steps] == [True, False, True]
    assert steps[0].reason == "ends at mul: matmul reads it"
    steps = steps_of(body, f32(3, 3))
    assert "another step stands between them" in steps[0].reason


def test_whole_graph_backend_fuses_unconnected_ops() -> None:
    def body(x: Tensor, y: Tensor) -> list[Tensor]:
        return [tr.exp(x), total(y, 0), contract.matmul(x, x)]

    (step,) = steps_of(body, f32(3, 3), f32(7), traits=WHOLE)
    assert step.fused and len(step.writes) == 3


# laws


@pytest.mark.parametrize("traits", [TRAITS, WHOLE, HOLES], ids=["domain", "whole", "holes"])
@settings(max_examples=150)
@given(
    graph=random_graphs(max_nodes=24),
    level=st.sampled_from((0, 3)),
    fuel=st.sampled_from((None, None, 3, 7)),
    largest=st.sampled_from((512, 2, 4, 6)),
)
def test_fused_steps_match_the_graph(
    traits: Traits, graph: Graph, level: int, fuel: int | None, largest: int
) -> None:
    graph = duplicate(simplify(graph, level), traits)
    steps = detect(graph, traits, FusionConfig(fuel=fuel, largest=largest))
    arrays = arrays_for(graph)
    for expected, found in zip(run(graph, arrays), execute(graph, steps, arrays), strict=True):
        np.testing.assert_array_equal(found, expected)
    for step in steps:
        assert len(step.reads) <= traits.max_inputs
        if step.fused and traits.scope is Scope.DOMAIN:
            shapes = {o.spec.shape for o in step.graph.outputs}
            axes = reduced_axes(step.graph)
            full = domain(step.graph)
            row = tuple(1 if i in axes else d for i, d in enumerate(full))
            assert {_bare(s) for s in shapes} <= {_bare(full), _bare(row)}


def _bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if not shape or shape[0] != 1 else _bare(shape[1:])


def _reachable(edges: set[tuple[int, int]], a: int, b: int, skip_edge: bool) -> bool:
    todo = [y for x, y in edges if x == a and not (skip_edge and y == b)]
    seen: set[int] = set()
    while todo:
        node = todo.pop()
        if node == b:
            return True
        if node not in seen:
            seen.add(node)
            todo += [y for x, y in edges if x == node]
    return False


@settings(max_examples=100)
@given(st.data())
def test_quotient_detects_every_path_through_a_third_group(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 14))
    sources = [
        sorted(data.draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else [] for i in range(count)
    ]
    quotient = Quotient(sources)
    for _ in range(data.draw(st.integers(0, 12))):
        a, b = (quotient.find(data.draw(st.integers(0, count - 1))) for _ in range(2))
        pairs = {(quotient.find(j), quotient.find(i)) for i, row in enumerate(sources) for j in row}
        edges = {(x, y) for x, y in pairs if x != y}
        if a == b:
            continue
        expected = _reachable(edges, a, b, True) or _reachable(edges, b, a, True)
        assert quotient.waits(a, b) is expected
        if not expected:
            quotient.merge(a, b)
    order = {g: i for i, g in enumerate(quotient.groups())}
    for i, row in enumerate(sources):
        for j in row:
            assert order[quotient.find(j)] <= order[quotient.find(i)]
    assert sorted(i for g in order for i in quotient.members[g]) == list(range(count))


# cheap values


def test_cheap_value_is_recomputed_by_each_reader() -> None:
    def body(x: Tensor) -> list[Tensor]:
        wide = primitives.cast(x, dtype=dtypes.float32)
        return [total(wide * 2.0, 0), total(wide * 3.0, 1)]

    graph = simplify(graph_of(body, Spec((6, 5), dtypes.float16)), 3)
    steps = detect(duplicate(graph, TRAITS), TRAITS)
    assert [s.reads for s in steps] == [graph.inputs] * 2
    assert len(detect(graph, TRAITS)[0].writes) == 2


def test_stored_value_is_not_recomputed() -> None:
    def body(x: Tensor) -> list[Tensor]:
        y = x + 1.0
        return [y, contract.matmul(y, y), y * 2.0]

    graph = simplify(graph_of(body, f32(3, 3)), 3)
    assert len(duplicate(graph, TRAITS).nodes) == len(graph.nodes)


# large groups


def _chain(x: Tensor, count: int) -> Tensor:
    for i in range(count):
        x = primitives.maximum(x * 1.5, float(i))
    return x


def test_long_chain_is_split_into_kernels_of_bounded_size() -> None:
    def sizes(count: int, largest: int) -> list[int]:
        return [len(ops(s)) for s in steps_of(lambda x: _chain(x, count), f32(6, 5), largest=largest)]

    assert sizes(128, 256) == [256]
    assert sizes(129, 256) == [130, 128]  # the last is no smaller than half of what is allowed
    cut = sizes(1000, 256)
    assert sum(cut) == 2000 and max(cut) <= 256 and min(cut) >= 128
    assert sizes(1000, FusionConfig().largest)[:3] == [512] * 3


def test_split_points_minimize_values_passed_between_kernels() -> None:
    def body(x: Tensor) -> Tensor:
        for _ in range(36):  # between two rounds of 12 ops one value is handed on, elsewhere up to four
            wide = [x * float(k) for k in range(2, 6)]
            x = tr.exp(wide[0]) + tr.exp(wide[1]) - tr.exp(wide[2]) * tr.exp(wide[3])
            x = primitives.minimum(x, 1.0)
        return x

    steps = steps_of(body, f32(6, 5), largest=150)
    assert len(steps) == 3 and all(len(s.writes) == 1 and len(s.reads) == 1 for s in steps)
    assert all(ops(s)[-1] == "minimum" for s in steps)
    assert len({s.graph.key for s in steps}) == 1  # one kernel for all


def test_chain_is_not_split_where_too_many_values_cross() -> None:
    def body(x: Tensor) -> Tensor:
        kept = [x]
        for k in range(400):
            kept.append(primitives.maximum(kept[-1] * 1.5, float(k)))
        total = x
        for value in reversed(kept):
            total = total * value
        return total

    (step,) = detect(graph_of(body, f32(6, 5)), TRAITS, FusionConfig(largest=256))
    assert len(ops(step)) == 1201


def test_softmax_after_a_long_chain_is_not_split() -> None:
    steps = steps_of(lambda x: softmax(_chain(x, 300)), f32(6, 5))
    assert all(s.fused for s in steps) and len(steps) > 1
    assert sum("reduce_max" in ops(s) for s in steps) == 1
    assert [o.spec.shape for s in steps for o in s.writes] == [(6, 5)] * len(steps)


# speed


def _network(depth: int) -> Graph:
    """Layers forward and back, with an op between them that no group takes, and an update for each."""
    whole = ((0, 64, 1), (0, 32, 1))

    def body(x: Tensor, *weights: Tensor) -> list[Tensor]:
        kept = []
        for w in weights:
            kept.append(x)
            x = relu(layout.slice_(x, window=whole) * w + 1.5)
        g, out = x, []
        for h, w in zip(reversed(kept), reversed(weights), strict=True):
            g = primitives.where(primitives.lt(h, 0), 0, g)
            step = layout.reshape(total(g * h, 0), shape=(32,))
            out.append(w - step / (primitives.sqrt(step * step) + 1e-8))
            g = layout.slice_(g * w, window=whole)
        return out

    return graph_of(body, f32(64, 32), *[f32(32)] * depth)


@pytest.mark.parametrize("traits", [TRAITS, HOLES], ids=["domain", "graph"])
def test_detection_of_ten_thousand_nodes_takes_seconds(traits: Traits) -> None:
    graph = _network(550)
    assert len(graph.nodes) > 10_000
    assert len(fused(detect(simplify(graph, 3), traits))) < 1200


@pytest.mark.parametrize("traits", [TRAITS, HOLES], ids=["domain", "graph"])
def test_fusing_a_long_graph_takes_linear_work(traits: Traits) -> None:
    graphs = [simplify(_network(depth), 3) for depth in (40, 80)]
    short, twice = (calls_of(partial(detect, graph, traits)) for graph in graphs)
    assert twice < 2.2 * short


def test_detection_does_not_modify_the_graph() -> None:
    graph = graph_of(lambda x: tr.exp(x) + 1.0, f32(3))
    before = graph.key
    detect(graph, TRAITS)
    assert graph.key == before and all(isinstance(n, Node) for n in graph.nodes)


def test_single_op_is_compiled_only_when_large() -> None:
    large, small = (detect(graph_of(lambda x: x * 2.0, f32(n)), TRAITS) for n in (1 << 16, 1 << 15))
    assert [step.fused for step in (*large, *small)] == [True, False]
