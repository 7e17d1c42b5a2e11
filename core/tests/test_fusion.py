"""The fusion detector: which steps come out, that they compute the same, and that it is fast."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from graphs import arrays_for, random_graphs, run
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb import dtypes
from mgb.apply import apply
from mgb.autodiff import GradManager
from mgb.backend import ALL_DTYPES, Scope, Traits
from mgb.codegen.domain import domain, reduced_axes
from mgb.fusion import FusionConfig, Step, accepts, detect, duplicate
from mgb.fusion.quotient import Quotient
from mgb.ir import Graph, Kind, Node, Spec
from mgb.ops import contract, elementwise, layout, primitives, reduce
from mgb.ops import transcendental as tr
from mgb.ops.activations import gelu, relu
from mgb.ops.declare import OPS
from mgb.passes import hoist_transposes, lower, simplify, verify
from mgb.tensor import Tensor
from mgb.tracing import graph_of

VOCABULARY = frozenset(n for n, op in OPS.items() if op.is_primitive) | {"exp", "log", "sin", "pow", "erf"}
TRAITS = Traits(VOCABULARY, frozenset({Kind.ELEMENTWISE, Kind.REDUCE}), ALL_DTYPES)
WHOLE = Traits(VOCABULARY, frozenset(Kind) - {Kind.OPAQUE}, ALL_DTYPES, scope=Scope.GRAPH, min_ops=1)
#: As `WHOLE`, with holes: layout ops split its groups.
HOLES = Traits(
    VOCABULARY, frozenset({Kind.ELEMENTWISE, Kind.REDUCE}), ALL_DTYPES, scope=Scope.GRAPH, min_ops=1
)


def f32(*shape: int) -> Spec:
    return Spec(shape, dtypes.float32)


def execute(graph: Graph, steps: Sequence[Step], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What the outputs are when the steps run one after the other."""
    values = dict(zip(graph.inputs, arrays, strict=True))
    for step in steps:
        out = run(step.graph, [values[r] for r in step.reads])
        assert not set(step.writes) & set(values), "a value is computed twice"
        values.update(zip(step.writes, out, strict=True))
    return [values[o] for o in graph.outputs]


def steps_of(
    function: Callable[..., Any], *specs: Spec, traits: Traits = TRAITS, **config: Any
) -> list[Step]:
    """The steps of `function` at opt_level 3, checked to compute what it computes."""
    graph = graph_of(function, *specs)
    simple = simplify(graph, 3)
    verify(simple)
    steps = detect(simple, traits, FusionConfig(**config))
    arrays = arrays_for(graph)
    for expected, found in zip(run(graph, arrays), execute(simple, steps, arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    for step in steps:
        if step.fused and traits.scope is Scope.DOMAIN:
            lowered = lower(step.graph, traits)
            verify(lowered)
            assert domain(lowered) == domain(step.graph)
            assert reduced_axes(lowered) == reduced_axes(step.graph)
    return steps


def fused(steps: Sequence[Step]) -> list[Step]:
    return [s for s in steps if s.fused]


def ops(step: Step) -> list[str]:
    return [n.op.name for n in step.graph.nodes if n.op.kind is not Kind.LEAF]


# the pieces that programs are made of


def total(x: Tensor, *axis: int) -> Tensor:
    return reduce.reduce_sum(x, axis=axis)


def mean(x: Tensor, *axis: int) -> Tensor:
    return total(x, *axis) / reduce.extent(x, axis=axis)


def softmax(x: Tensor) -> Tensor:
    e = tr.exp(x - reduce.reduce_max(x, axis=(x.ndim - 1,)))
    return e / total(e, x.ndim - 1)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - mean(x, x.ndim - 1)
    return centred / primitives.sqrt(mean(centred * centred, x.ndim - 1) + 1e-5) * weight + bias


def batch_norm(x: Tensor, weight: Tensor, bias: Tensor, old_mean: Tensor, old_var: Tensor) -> list[Tensor]:
    m = mean(x, 0, 2, 3)
    v = mean(elementwise.square(x - m), 0, 2, 3)
    y = (x - m) / primitives.sqrt(v + 1e-5) * weight + bias
    return [y, old_mean * 0.9 + m * 0.1, old_var * 0.9 + v * 0.1]


def adam(p: Tensor, g: Tensor, m: Tensor, v: Tensor, rate: Tensor) -> list[Tensor]:
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    return [p - rate * (m / (primitives.sqrt(v) + 1e-8)), m, v]


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    rows, classes = logits.shape
    top = reduce.reduce_max(logits, axis=(1,))
    log_sum = layout.reshape(tr.log(total(tr.exp(logits - top), 1)) + top, shape=(rows,))
    places = primitives.iota(shape=(classes,), dtype=dtypes.int32)
    hit = primitives.eq(places, layout.reshape(labels, shape=(rows, 1)))
    picked = layout.reshape(total(primitives.where(hit, logits, 0.0), 1), shape=(rows,))
    return log_sum - picked


# what becomes one group


def test_softmax_is_one_group() -> None:
    (step,) = steps_of(softmax, f32(6, 5))
    assert step.fused and len(step.writes) == 1


def test_layer_norm_is_one_group() -> None:
    (step,) = steps_of(layer_norm, f32(6, 5), f32(5), f32(5))
    assert step.fused and len(step.reads) == 3


def test_batch_norm_statistics_and_normalisation_are_one_group() -> None:
    row = f32(1, 3, 1, 1)
    (step,) = steps_of(batch_norm, f32(4, 3, 5, 5), row, row, row, row)
    assert step.fused and len(step.writes) == 3


def test_bias_and_gelu_after_a_matmul_are_one_group() -> None:
    product, step = steps_of(lambda x, w, b: gelu(contract.matmul(x, w) + b), f32(4, 3), f32(3, 5), f32(5))
    assert not product.fused and "contract" in product.reason
    assert step.fused and len(step.reads) == 2


def test_a_lone_composite_is_worth_a_kernel_and_a_lone_primitive_is_not() -> None:
    assert [s.fused for s in steps_of(gelu, f32(7))] == [True]
    (step,) = steps_of(primitives.neg, f32(7))
    assert not step.fused and "is one of 1 ops, a kernel takes 2 or more" in step.reason


def test_a_bias_gradient_is_one_group_with_its_producers() -> None:
    def body(g: Tensor, x: Tensor) -> Tensor:
        return layout.reshape(total(primitives.where(primitives.lt(x, 0), 0, g), 0), shape=(5,))

    steps = steps_of(body, f32(6, 5), f32(6, 5))
    assert len(fused(steps)) == 1 and {op for s in steps if not s.fused for op in ops(s)} <= {"reshape"}


def test_a_bias_gradient_goes_on_into_the_update_of_the_bias() -> None:
    def body(g: Tensor, bias: Tensor) -> Tensor:
        return bias - 0.1 * layout.reshape(total(g, 0), shape=(5,))

    assert len(fused(steps_of(body, f32(6, 5), f32(5)))) == 1


def test_an_adam_update_is_one_group() -> None:
    (step,) = steps_of(adam, f32(8, 7), f32(8, 7), f32(8, 7), f32(8, 7), f32())
    assert step.fused and len(step.writes) == 3


def test_adam_over_many_tensors_shares_kernels_by_shape() -> None:
    shapes = [(4 + i % 5, 3) for i in range(20)]

    def body(rate: Tensor, *tensors: Tensor) -> list[Tensor]:
        parts = [tensors[4 * i : 4 * i + 4] for i in range(20)]
        return [out for part in parts for out in adam(*part, rate)]

    steps = steps_of(body, f32(), *(f32(*s) for s in shapes for _ in range(4)))
    assert all(s.fused for s in steps) and len(steps) == 5
    assert sum(len(s.writes) for s in steps) == 60


def test_cross_entropy_is_one_group() -> None:
    def body(logits: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(logits, labels)

    graph = graph_of(body, f32(6, 5), Spec((6,), dtypes.int32))
    steps = detect(simplify(graph, 3), TRAITS)
    assert len(fused(steps)) == 1
    assert {op for s in steps if not s.fused for op in ops(s)} <= {"reshape"}


def test_the_mean_of_a_loss_is_a_second_group() -> None:
    def body(logits: Tensor, labels: Tensor) -> Tensor:
        return layout.reshape(mean(cross_entropy(logits, labels), 0), shape=())

    graph = graph_of(body, f32(6, 5), Spec((6,), dtypes.int32))
    steps = detect(simplify(graph, 3), TRAITS)
    assert len(fused(steps)) == 2
    assert {op for s in steps if not s.fused for op in ops(s)} <= {"reshape"}


def test_values_of_rows_stay_with_the_reduction_when_its_axis_is_dropped() -> None:
    def body(x: Tensor, y: Tensor) -> Tensor:
        return tr.exp(layout.reshape(total(x * x, 1), shape=(6,)) * 0.1) - tr.sin(y)

    assert len(fused(steps_of(body, f32(6, 5), f32(6)))) == 1


def test_transposes_do_not_split() -> None:
    def body(x: Tensor, y: Tensor) -> Tensor:
        return layout.transpose(tr.exp(x) * 2.0, axes=(1, 0)) + y

    steps = steps_of(body, f32(6, 5), f32(5, 6))
    assert [ops(s) for s in steps] == [["transpose"], ["exp", "mul", "add"]]
    graph = simplify(graph_of(body, f32(6, 5), f32(5, 6)), 3, skip=frozenset({hoist_transposes}))
    assert len(fused(detect(graph, TRAITS))) == 1


def test_gradients_of_broadcasts_do_not_split() -> None:
    def body(g: Tensor, x: Tensor) -> Tensor:
        return layout.broadcast_to(g, shape=(6, 5)) * x + layout.broadcast_to(g * 2.0, shape=(6, 5))

    (step,) = steps_of(body, f32(6, 1), f32(6, 5))
    assert step.fused


def test_16_bit_floats_and_integers_fuse() -> None:
    def body(x: Tensor, n: Tensor) -> Tensor:
        return primitives.cast(x * 2.0 + n, dtype=dtypes.float16)

    graph = graph_of(body, Spec((6,), dtypes.float16), Spec((6,), dtypes.int32))
    (step,) = detect(simplify(graph, 3), TRAITS)
    assert step.fused


def test_the_place_of_a_maximum_joins_what_comes_before() -> None:
    (step,) = steps_of(lambda x: apply(OPS["argmax"], tr.exp(x) + 1.0, axis=(1,)), f32(6, 5))
    assert step.fused


def test_a_training_step_is_its_matmuls_and_a_kernel_for_what_stands_between() -> None:
    def body(x: Tensor, labels: Tensor, *rest: Tensor) -> list[Tensor]:
        w, b, v, rate, *state = rest
        with GradManager().attach([w, b, v]) as manager:
            loss = mean(cross_entropy(contract.matmul(relu(contract.matmul(x, w) + b), v), labels), 0)
            manager.backward(layout.reshape(loss, shape=()))
        out = [loss]
        for i, p in enumerate((w, b, v)):
            assert p.grad is not None
            out += adam(p, p.grad, state[2 * i], state[2 * i + 1], rate)
        return out

    weights = [f32(7, 6), f32(6), f32(6, 5)]
    moments = [s for s in weights for _ in range(2)]
    graph = graph_of(body, f32(8, 7), Spec((8,), dtypes.int32), *weights, f32(), *moments)
    simple = simplify(graph, 3)
    steps = detect(simple, TRAITS)
    eager = [op for s in steps if not s.fused for op in ops(s)]
    assert set(eager) <= {"matmul", "reshape"} and eager.count("matmul") == 5
    assert len(fused(steps)) <= 7
    arrays = arrays_for(graph)
    arrays[1] = arrays[1] % 5
    for expected, found in zip(run(graph, arrays), execute(simple, steps, arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


# the cases of MegEngine's own tests


def test_basic() -> None:
    def body(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        return a * b + c * a + d + d + d

    (step,) = steps_of(body, f32(3, 3), f32(3, 1), f32(1, 1), f32(1, 1))
    assert step.fused and len(step.reads) == 4


@pytest.mark.parametrize("count", [120, 64])
def test_many_inputs_are_split(count: int) -> None:
    def body(*xs: Tensor) -> Tensor:
        out = xs[0]
        for x in xs[1:]:
            out = out + x
        return out

    steps = steps_of(body, *[f32(4, 3, 2, 1)] * count)
    assert all(s.fused for s in steps) and all(len(s.reads) <= TRAITS.max_inputs for s in steps)
    assert len(steps) == (2 if count == 120 else 1)


def test_a_producer_of_several_values_feeds_a_group() -> None:
    def body(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        first = layout.slice_(x, window=((0, 2, 1), (0, 3, 1)))
        second = layout.slice_(x, window=((2, 4, 1), (0, 3, 1)))
        return first * y + second * z - first

    steps = steps_of(body, f32(4, 3), f32(2, 3), f32(2, 3))
    assert [s.fused for s in steps] == [False, False, True]


def test_operands_that_broadcast() -> None:
    (step,) = steps_of(lambda x, y, z: tr.exp(x) * y + z / y, f32(3, 3), f32(1, 3), f32(3, 1))
    assert step.fused


def test_repeated_squaring_does_not_blow_up() -> None:
    def body(y: Tensor) -> Tensor:
        for _ in range(32):
            y = y * y + y
        return y

    graph = graph_of(body, f32(3))
    (step,) = detect(simplify(graph, 3), TRAITS)
    assert step.fused and len(step.graph.nodes) == 64


def test_scalars_are_no_inputs() -> None:
    (step,) = steps_of(lambda x: (x * x + 1) / (tr.sin(x) + 1.2) * 0.3, f32(4))
    assert step.fused and len(step.reads) == 1


def test_results_of_matmul_and_slice_are_inputs() -> None:
    def body(x: Tensor, w: Tensor) -> Tensor:
        return tr.exp(layout.slice_(x, window=((0, 3, 1), (0, 3, 1)))) * 0.5 + contract.matmul(w, w)

    steps = steps_of(body, f32(4, 3), f32(3, 3))
    assert [s.fused for s in steps] == [False, False, True] and len(steps[-1].reads) == 2


# what does not


def test_reductions_over_different_axes_are_two_groups() -> None:
    steps = steps_of(lambda x: (total(x * x, 0), total(x * x, 1)), f32(6, 5))
    assert len(fused(steps)) == 2
    assert any("it folds axes" in s.reason for s in steps)


def test_the_configuration_keeps_reductions_out() -> None:
    steps = steps_of(softmax, f32(6, 5), reduce=False)
    assert [ops(s) for s in steps if not s.fused] == [["reduce_max"], ["reduce_sum"], ["div"]]
    assert "configuration" in next(s.reason for s in steps if not s.fused)


def test_fuel_stops_the_merging() -> None:
    counts = [len(steps_of(softmax, f32(6, 5), fuel=n)) for n in range(6)]
    assert counts[0] == 5 and counts[-1] == 1 and counts == sorted(counts, reverse=True)


def test_one_row_of_many_does_not_go_on_at_full_size() -> None:
    graph = graph_of(lambda x: x * 2.0 / total(x * x, 0), f32(1 << 18))
    steps = detect(graph, TRAITS)
    assert [ops(s)[-1] for s in steps] == ["reduce_sum", "div"] and "1 rows" in steps[0].reason


def test_costly_values_are_not_computed_once_for_each_row() -> None:
    steps = steps_of(lambda x, y: x + tr.exp(y), f32(6, 5), f32(5))
    assert len(steps) == 2
    assert len(steps_of(lambda x, y: x + (y + 1.0), f32(6, 5), f32(5))) == 1


def test_values_of_other_devices_and_sizes_are_refused() -> None:
    def reason(function: Callable[..., Any], *specs: Spec, traits: Traits = TRAITS) -> str | None:
        return accepts(traits, graph_of(function, *specs).outputs[0])

    few = Traits(frozenset({"add", "where", "lt"}))
    assert reason(lambda x: x + 1.0, f32(3), traits=few) is None
    assert reason(relu, f32(3), traits=few) is not None
    assert "float64" in str(reason(lambda x: x + 1.0, Spec((3,), dtypes.float64), traits=few))
    assert "'mul'" in str(reason(lambda x: x * 2.0, f32(3), traits=few))
    assert "gpu0:0" in str(reason(lambda x: x + 1.0, Spec((3,), dtypes.float32, "gpu0:0")))
    assert reason(lambda x: x + 1.0, f32(0, 3)) == "has no elements"
    assert reason(lambda x: total(x, 0), f32(3, 3), traits=few) == "is of kind reduce"


def test_a_step_between_keeps_two_groups_apart() -> None:
    def body(x: Tensor) -> Tensor:
        y = tr.exp(x) * 2.0
        return contract.matmul(y, y) + y

    steps = steps_of(body, f32(3, 3), traits=HOLES)
    assert [s.fused for s in steps] == [True, False, True]
    assert steps[0].reason == "ends at mul: matmul reads it"
    steps = steps_of(body, f32(3, 3))
    assert "another step stands between them" in steps[0].reason


def test_whole_graph_backends_take_what_is_not_connected() -> None:
    def body(x: Tensor, y: Tensor) -> list[Tensor]:
        return [tr.exp(x), total(y, 0), contract.matmul(x, x)]

    (step,) = steps_of(body, f32(3, 3), f32(7), traits=WHOLE)
    assert step.fused and len(step.writes) == 3


# laws


@pytest.mark.parametrize("traits", [TRAITS, WHOLE, HOLES], ids=["domain", "whole", "holes"])
@settings(deadline=None, max_examples=150)
@given(
    graph=random_graphs(max_nodes=24), level=st.sampled_from((0, 3)), fuel=st.sampled_from((None, None, 3, 7))
)
def test_steps_compute_what_the_graph_computes(
    traits: Traits, graph: Graph, level: int, fuel: int | None
) -> None:
    graph = duplicate(simplify(graph, level), traits)
    steps = detect(graph, traits, FusionConfig(fuel=fuel))
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


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_quotient_knows_every_way_through_a_third_group(data: st.DataObject) -> None:
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


def test_a_cheap_value_is_computed_where_it_is_read() -> None:
    def body(x: Tensor) -> list[Tensor]:
        wide = primitives.cast(x, dtype=dtypes.float32)
        return [total(wide * 2.0, 0), total(wide * 3.0, 1)]

    graph = simplify(graph_of(body, Spec((6, 5), dtypes.float16)), 3)
    steps = detect(duplicate(graph, TRAITS), TRAITS)
    assert [s.reads for s in steps] == [graph.inputs] * 2
    assert len(detect(graph, TRAITS)[0].writes) == 2


def test_a_value_that_is_stored_anyway_is_not_computed_twice() -> None:
    def body(x: Tensor) -> list[Tensor]:
        y = x + 1.0
        return [y, contract.matmul(y, y), y * 2.0]

    graph = simplify(graph_of(body, f32(3, 3)), 3)
    assert len(duplicate(graph, TRAITS).nodes) == len(graph.nodes)


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
def test_ten_thousand_nodes_take_seconds(traits: Traits) -> None:
    graph = _network(550)
    assert len(graph.nodes) > 10_000
    start = time.perf_counter()
    steps = detect(simplify(graph, 3), traits)
    assert time.perf_counter() - start < 20
    assert len(fused(steps)) < 1200


def test_nodes_know_nothing_of_steps() -> None:
    graph = graph_of(lambda x: tr.exp(x) + 1.0, f32(3))
    before = graph.key
    detect(graph, TRAITS)
    assert graph.key == before and all(isinstance(n, Node) for n in graph.nodes)


def test_a_single_op_is_a_kernel_where_it_is_large() -> None:
    large, small = (detect(graph_of(lambda x: x * 2.0, f32(n)), TRAITS) for n in (1 << 16, 1 << 15))
    assert [step.fused for step in (*large, *small)] == [True, False]
