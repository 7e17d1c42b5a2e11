"""Lowering and verification: what a backend receives computes what the user wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from graphs import arrays_for, random_graphs, run
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb import dtypes
from mgb.errors import GraphError
from mgb.ir import CONST, Graph, Kind, Node, Spec, const_node, input_node
from mgb.ops import elementwise, layout, primitives, reduce
from mgb.ops.declare import OPS, op_of
from mgb.passes import decompose, lower, verify
from mgb.passes.constants import fold_constants
from mgb.passes.merge import merge
from mgb.tensor import Tensor
from mgb.tensor.apply import apply
from mgb.tensor.tracing import graph_of

PRIMITIVES = frozenset(name for name, op in OPS.items() if op.is_primitive)


@dataclass(frozen=True)
class Speaker:
    vocabulary: frozenset[str] = PRIMITIVES


def f32(*shape: int) -> Spec:
    return Spec(shape, dtypes.float32)


def f16(*shape: int) -> Spec:
    return Spec(shape, dtypes.float16)


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


# widening


@pytest.mark.parametrize("dtype", dtypes.HALVES)
def test_only_inputs_outputs_and_casts_have_16_bits(dtype: np.dtype[Any]) -> None:
    def body(x: Any, y: Any) -> Any:
        return reduce.reduce_sum(elementwise.square(x) + y * 0.5, axis=(1,))

    graph = lower(graph_of(body, Spec((3, 4), dtype), Spec((4,), dtype)), Speaker())
    verify(graph)
    for node in graph.nodes:
        halves = [n for n in (node, *node.inputs) if n.spec.dtype in dtypes.HALVES]
        assert not halves or node.op.name == "cast"
    assert graph.outputs[0].spec == Spec((3, 1), dtype)


@pytest.mark.parametrize("dtype", dtypes.HALVES)
def test_each_narrow_result_is_rounded_as_by_numpy(dtype: np.dtype[Any]) -> None:
    x = np.array([2**-12, 0.1, 3.3, 40000.0, 1e-7, -7.7], dtype)
    with np.errstate(over="ignore"):
        expected = [(x + dtype.type(1)) - dtype.type(1), (x * dtype.type(3)) / dtype.type(3)]
    graph = graph_of(lambda t: ((t + 1.0) - 1.0, (t * 3.0) / 3.0), Spec((6,), dtype))
    for got, wanted in zip(run(lower(graph, Speaker()), [x]), expected, strict=True):
        np.testing.assert_array_equal(got.astype(np.float64), wanted.astype(np.float64))


def test_an_op_that_is_spelt_out_rounds_once() -> None:
    x = np.linspace(-1, 3, 101).astype(np.float16)
    graph = lower(graph_of(elementwise.expm1, f16(101)), Speaker())
    np.testing.assert_array_equal(run(graph, [x])[0], np.expm1(x.astype(np.float64)).astype(np.float16))
    assert names(graph).count("cast") == 2


def test_what_16_bits_hold_is_not_rounded_again() -> None:
    def body(x: Any) -> Any:
        return reduce.reduce_max(elementwise.abs(primitives.maximum(x, -x)), axis=(0,))

    assert names(lower(graph_of(body, f16(3)), Speaker())).count("cast") == 2


def test_user_written_cast_rounds() -> None:
    def body(x: Any) -> Any:
        rounded = primitives.cast(x + 1.0, dtype=dtypes.float16)
        return primitives.cast(rounded, dtype=dtypes.float32) - 1.0

    graph = lower(graph_of(body, f32()), Speaker())
    assert run(graph, [np.array(2**-12, np.float32)])[0] == 0
    assert names(graph).count("cast") == 2


def test_bitcast_of_a_16_bit_float_sees_the_rounded_value() -> None:
    def body(x: Any) -> Any:
        return primitives.bitcast(x * 3.0, dtype=dtypes.uint16)

    x = np.array([0.1, -2.7, 6e4], np.float16)
    with np.errstate(over="ignore"):
        expected = (x.astype(np.float32) * np.float32(3)).astype(np.float16).view(np.uint16)
    np.testing.assert_array_equal(run(lower(graph_of(body, f16(3)), Speaker()), [x])[0], expected)


def test_16_bit_iota_rounds_large_indices() -> None:
    graph = lower(graph_of(lambda: primitives.iota(shape=(4000,), dtype=dtypes.float16)), Speaker())
    np.testing.assert_array_equal(run(graph, [])[0], np.arange(4000).astype(np.float16))


@settings(max_examples=60)
@given(random_graphs(max_nodes=6, dtype=dtypes.float16))
def test_lowered_16_bit_graphs_give_what_eager_ones_give(graph: Graph) -> None:
    arrays = arrays_for(graph, integers=True)
    with np.errstate(all="ignore"):
        for low, eager in zip(run(lower(graph, Speaker()), arrays), run(graph, arrays), strict=True):
            assert low.dtype == eager.dtype
            np.testing.assert_array_equal(low, eager)


# spelling out


def test_decompose_leaves_only_ops_of_the_op_set() -> None:
    graph = decompose(graph_of(lambda x: elementwise.logaddexp(x, elementwise.abs(x)), f32(3)), PRIMITIVES)
    assert set(names(graph)) <= PRIMITIVES | {"const", "iota", "cast"}


def test_decompose_keeps_composites_in_the_op_set() -> None:
    graph = decompose(graph_of(elementwise.square, f32(3)), PRIMITIVES | {"square"})
    assert names(graph) == ["square"]


def test_decompose_reports_the_missing_op() -> None:
    with pytest.raises(GraphError, match="'sub'"):
        decompose(graph_of(lambda x, y: x - y, f32(), f32()), frozenset({"add"}))


@pytest.mark.parametrize("name", ["log1p", "expm1", "tanh", "gelu", "erfc", "softplus"])
def test_decomposed_ops_agree_with_float64(name: str) -> None:
    op = OPS[name]
    x = np.linspace(-0.9, 4, 101, dtype=np.float32)
    graph = graph_of(lambda t: apply(op, t), f32(101))
    exact = run(graph, [x.astype(np.float64)])[0] if op.eager else None
    if exact is None:
        wide = graph_of(lambda t: apply(op, t), Spec((101,), dtypes.float64))
        exact = run(wide, [x.astype(np.float64)])[0]
    np.testing.assert_allclose(run(lower(graph, Speaker()), [x])[0], exact, rtol=2e-6, atol=1e-6)


# merging and folding


def test_merge_deduplicates_equal_computations() -> None:
    graph = merge(graph_of(lambda x, y: ((x + y) * 2.0, (x + y) * 2.0, y + x), f32(3), f32(3)))
    assert graph.outputs[0] is graph.outputs[1]
    assert graph.outputs[2] is not graph.outputs[0].inputs[0]


def test_merge_compares_constants_bitwise() -> None:
    x = input_node(f32())
    long = np.zeros(5000, np.float32), np.r_[np.zeros(4999), 1].astype(np.float32)
    pairs = [(0.0, -0.0), (np.nan, np.nan), *[long]]
    for a, b in pairs:
        left, right = (const_node(v, dtypes.float32) for v in (a, b))
        add = op_of(primitives.add)
        outputs = tuple(Node(add, (x, c), {}, Spec(c.spec.shape, dtypes.float32)) for c in (left, right))
        merged = merge(Graph((x,), outputs))
        same = np.asarray(a, np.float32).tobytes() == np.asarray(b, np.float32).tobytes()
        assert (merged.outputs[0] is merged.outputs[1]) is same


def test_merge_distinguishes_parameters_of_different_types() -> None:
    x = input_node(f32(2))
    op = OPS["leaky_relu"]
    outputs = tuple(Node(op, (x,), {"slope": slope}, f32(2)) for slope in (1, True, 1.0))
    assert len(set(merge(Graph((x,), outputs)).outputs)) == 3


def test_small_constants_are_folded() -> None:
    def body(x: Any) -> Any:
        few = primitives.iota(shape=(4,), dtype=dtypes.float32)
        two = primitives.sqrt(layout.broadcast_to(Tensor(4.0), shape=(5,)))
        return x + two, few

    graph = fold_constants(graph_of(body, f32(5)))
    assert names(graph).count("sqrt") == 0
    assert all(n.spec.size == 1 for n in graph.nodes if n.op is CONST)
    np.testing.assert_array_equal(run(graph, [np.ones(5, np.float32)])[0], np.full(5, 3))


def test_large_constants_are_not_folded() -> None:
    array = np.arange(5000, dtype=np.float32)
    graph = fold_constants(graph_of(lambda: primitives.sqrt(Tensor(array))))
    assert names(graph) == ["const", "sqrt"]


@settings(max_examples=100)
@given(random_graphs(), st.integers(0, 3))
def test_lowering_is_bitwise_exact_in_float32(graph: Graph, seed: int) -> None:
    lowered = lower(graph, Speaker())
    verify(lowered)
    arrays = arrays_for(graph, seed)
    for expected, found in zip(run(graph, arrays), run(lowered, arrays), strict=True):
        np.testing.assert_array_equal(found, expected)


# verification


def _add(spec: Spec, *specs: Spec) -> Graph:
    inputs = tuple(input_node(s) for s in specs)
    return Graph(inputs, (Node(op_of(primitives.add), inputs, {}, spec, "model.py:7"),))


def test_verify_accepts_traced_graphs() -> None:
    verify(graph_of(lambda x: reduce.reduce_max(x * 2, axis=(0,)), f32(3, 4)))


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (_add(f32(2), f32(3), f32(3)), r"add.*model.py:7.*infers float32\[3\]"),
        (_add(f16(3), f32(3), f32(3)), "infers float32"),
        (_add(f32(3), f32(3), f16(3)), "casts are missing"),
        (_add(f32(3), f32(3), f32(4)), "do not broadcast"),
        (_add(f32(3), f32(3), Spec((3,), dtypes.int32)), "casts are missing"),
        (_add(f32(3), f32(3), Spec((3,), dtypes.float32, "gpu0:0")), "spread over"),
    ],
)
def test_verify_reports_inconsistent_specs(graph: Graph, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        verify(graph)


def test_verify_rejects_unlisted_inputs() -> None:
    graph = _add(f32(3), f32(3), f32(3))
    with pytest.raises(GraphError, match="does not list"):
        verify(Graph(graph.inputs[:1], graph.outputs))


def test_verify_rejects_unhashable_parameters() -> None:
    x = input_node(f32(2, 3))
    node = Node(op_of(reduce.reduce_sum), (x,), {"axis": [0]}, f32(1, 3))
    with pytest.raises(GraphError, match="hashable"):
        verify(Graph((x,), (node,)))


def test_verify_rejects_writable_constants() -> None:
    node = Node(CONST, (), {"value": np.zeros(3, np.float32)}, f32(3))
    with pytest.raises(GraphError, match="written to"):
        verify(Graph((), (node,)))


def test_layout_ops_and_extent_have_the_expected_kinds() -> None:
    assert {OPS[n].kind for n in ("reshape", "transpose", "broadcast_to")} == {Kind.LAYOUT}
    assert OPS["extent"].kind is Kind.REDUCE
