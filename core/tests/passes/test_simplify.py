"""The passes over whole graphs: what each level does, and that it changes nothing else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from graphs import arrays_for, random_graphs, run
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb import dtypes
from mgb.ir import Graph, Kind, Spec
from mgb.ops import elementwise, layout, primitives, reduce
from mgb.ops.bodies import transcendental as tr
from mgb.ops.sort import argmax_
from mgb.passes import PASSES, simplify, verify
from mgb.tensor import Tensor
from mgb.tensor.tracing import graph_of
from work import calls_of

INF, NAN = np.inf, np.nan


def f32(*shape: int) -> Spec:
    return Spec(shape, dtypes.float32)


def at(level: int, function: Callable[..., Any], *specs: Spec) -> Graph:
    graph = simplify(graph_of(function, *specs), level)
    verify(graph)
    return graph


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes if n.op.name not in ("const", "broadcast_to")]


def value(graph: Graph, *arrays: Any) -> np.ndarray:
    return run(graph, [np.asarray(a, n.spec.dtype) for a, n in zip(arrays, graph.inputs, strict=True)])[0]


# laws


@settings(max_examples=250)
@given(random_graphs(max_nodes=20), st.sampled_from((0, 2, 3)), st.integers(0, 5))
def test_simplified_graphs_compute_the_same(graph: Graph, level: int, seed: int) -> None:
    simple = simplify(graph, level)
    verify(simple)
    assert simple.inputs == graph.inputs
    assert [o.spec for o in simple.outputs] == [o.spec for o in graph.outputs]
    arrays = arrays_for(graph, seed)
    exact_arrays = [a.astype(np.float64) for a in arrays]
    for expected, found, truth in zip(
        run(graph, arrays), run(simple, arrays), run(graph, exact_arrays), strict=True
    ):
        if level == 0:
            np.testing.assert_array_equal(found, expected)
        else:
            with np.errstate(invalid="ignore"):
                sane = np.isfinite(expected) & (np.abs(expected - truth) <= 1e-4 * np.abs(truth))
            np.testing.assert_allclose(found[sane], truth[sane], rtol=1e-3, atol=1e-4)


@settings(max_examples=60)
@given(random_graphs(max_nodes=12))
def test_simplified_graph_has_nothing_left_to_merge(graph: Graph) -> None:
    once = simplify(graph, 1)
    assert len(simplify(once, 0).nodes) == len(once.nodes)


def test_negative_levels_equal_positive_ones() -> None:
    graph = graph_of(lambda x: x - x + tr.log(tr.exp(x)), f32(3))
    assert simplify(graph, -1).key == simplify(graph, 1).key


def test_mgb_verify_checks_each_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    from mgb.errors import GraphError
    from mgb.ir import Node

    def breaks(graph: Graph) -> Graph:
        (out,) = graph.outputs
        return Graph(graph.inputs, (Node(out.op, out.inputs, out.params, f32(9), out.source),))

    monkeypatch.setitem(PASSES, 0, (breaks,))
    monkeypatch.setenv("MGB_VERIFY", "1")
    with pytest.raises(GraphError, match="infers"):
        simplify(graph_of(lambda x: x + 1, f32(3)), 0)


# level 0


def test_level_0_only_merges_and_folds_constants() -> None:
    graph = at(0, lambda x: (x - x) * (Tensor(2.0) * 3.0) + (x - x), f32(3))
    assert names(graph) == ["sub", "mul", "add"]
    assert np.isnan(value(graph, [INF, 1, 2])[0])


# level 1

TWO = elementwise.square  # any op: what stands twice must be one node


# fmt: off
IDENTITIES: list[tuple[str, Callable[[Tensor], Tensor], list[str]]] = [
    ("x - x",          lambda x: TWO(x) - TWO(x),                        []),
    ("x / x",          lambda x: TWO(x) / TWO(x),                        []),
    ("x // x",         lambda x: TWO(x) // TWO(x),                       []),
    ("x + 0",          lambda x: x + 0.0,                                []),
    ("0 + x",          lambda x: 0.0 + x,                                []),
    ("x - 0",          lambda x: x - 0.0,                                []),
    ("x * 1",          lambda x: x * 1.0,                                []),
    ("x / 1",          lambda x: x / 1.0,                                []),
    ("x * 0",          lambda x: x * 0.0,                                []),
    ("x // 1",         lambda x: x // 1.0,                               ["floor"]),
    ("x ** 0",         lambda x: tr.pow(x, 0.0),                         []),
    ("x ** 1",         lambda x: tr.pow(x, 1.0),                         []),
    ("exp(0)",         lambda x: x + tr.exp(Tensor(0.0)) * 2.0,          ["add"]),
    ("log(exp)",       lambda x: tr.log(tr.exp(x)),                      []),
    ("log(exp * y)",   lambda x: tr.log(tr.exp(x) * (x + 5.0)),          ["add", "log", "add"]),
    ("log(y * exp)",   lambda x: tr.log((x + 5.0) * tr.exp(x)),          ["add", "log", "add"]),
    ("log(exp / y)",   lambda x: tr.log(tr.exp(x) / (x + 5.0)),          ["add", "log", "sub"]),
    ("log(1 + x)",     lambda x: tr.log(1.0 + TWO(x)),                   ["square", "log1p"]),
    ("log(x + 1)",     lambda x: tr.log(TWO(x) + 1.0),                   ["square", "log1p"]),
    ("log(exp + exp)", lambda x: tr.log(tr.exp(x) + tr.exp(TWO(x))),     ["square", "logaddexp"]),
    ("exp - 1",        lambda x: tr.exp(x) - 1.0,                        ["expm1"]),
    ("--x",            lambda x: primitives.neg(primitives.neg(x)),                             []),
    ("max(x, x)",      lambda x: primitives.maximum(x, x),               []),
    ("where(c, x, x)", lambda x: primitives.where(primitives.lt(x, 0), x, x), []),
]
# fmt: on


@pytest.mark.parametrize(
    ("function", "left"), [row[1:] for row in IDENTITIES], ids=[row[0] for row in IDENTITIES]
)
def test_algebraic_identities_are_simplified(function: Callable[[Tensor], Tensor], left: list[str]) -> None:
    graph = graph_of(function, f32(2, 3))
    simple = at(1, function, f32(2, 3))
    assert names(simple) == left
    assert simple.outputs[0].spec == graph.outputs[0].spec
    x = np.array([[0.5, 1.0, 2.0], [0.25, 3.0, -1.5]], np.float32)
    truth = run(graph, [x.astype(np.float64)])[0]
    np.testing.assert_allclose(run(simple, [x])[0], truth, rtol=1e-6, atol=3e-7)  # an ulp of the operands


def test_identities_keep_the_broadcast_shape() -> None:
    graph = at(1, lambda x, y: x + y * 0.0, f32(3), f32(2, 1))
    assert graph.outputs[0].spec.shape == (2, 3)
    np.testing.assert_array_equal(value(graph, [1, 2, 3], [[NAN], [1]]), [[1, 2, 3]] * 2)


def test_integer_floor_division_by_one_is_removed() -> None:
    assert names(at(1, lambda x: x // 1, Spec((3,), dtypes.int32))) == []


def test_level_1_changes_results_for_special_values() -> None:
    def quotient(x: Tensor) -> Tensor:
        return (2.0 * x) / (2.0 * x)

    assert np.isnan(value(at(0, quotient, f32()), 0.0)) and value(at(1, quotient, f32()), 0.0) == 1

    def log_sum(x: Tensor, y: Tensor) -> Tensor:
        return tr.log(tr.exp(x) + tr.exp(y))

    assert np.isinf(value(at(0, log_sum, f32(), f32()), 1e4, 0.0))
    assert value(at(1, log_sum, f32(), f32()), 1e4, 0.0) == 1e4
    assert value(at(1, lambda x: x * 0.0, f32()), NAN) == 0
    assert value(at(1, lambda x: x - x, f32()), INF) == 0


def test_isnan_is_not_simplified_away() -> None:
    graph = at(3, elementwise.isnan, f32(2))
    np.testing.assert_array_equal(value(graph, [NAN, 1.0]), [True, False])


# level 2


@pytest.mark.parametrize("exponent", [2.0, 3.0, 0.5, -0.5, -1.0, -2.0, -3.0])
def test_constant_powers_are_expanded(exponent: float) -> None:
    graph = at(2, lambda x: tr.pow(x, exponent), f32(4))
    assert "pow" not in names(graph)
    x = np.array([0.3, 1.0, 2.5, 7.0])
    np.testing.assert_allclose(
        value(graph, x), x.astype(np.float32).astype(np.float64) ** exponent, rtol=1e-6
    )


def test_other_powers_are_unchanged() -> None:
    assert names(at(2, lambda x: tr.pow(x, 2.5), f32(4))) == ["pow"]


def test_negations_are_absorbed() -> None:
    assert names(at(2, lambda x, y: x + (-y), f32(3), f32(3))) == ["sub"]
    assert names(at(2, lambda x, y: x - (-y), f32(3), f32(3))) == ["add"]
    assert names(at(2, lambda x, y: (-x) * (-y), f32(3), f32(3))) == ["mul"]
    assert names(at(2, lambda x: x * -1.0, f32(3))) == ["neg"]


# fmt: off
CASTS = [
    (dtypes.float16, dtypes.float32, dtypes.float64, 1),
    (dtypes.float16, dtypes.float32, dtypes.float16, 0),
    (dtypes.float32, dtypes.float16, dtypes.float32, 2),  # it rounds: the user wants that
    (dtypes.bfloat16, dtypes.float32, dtypes.bfloat16, 0),
    (dtypes.float16, dtypes.bfloat16, dtypes.float16, 2),
    (dtypes.int8, dtypes.int32, dtypes.float32, 1),
    (dtypes.int32, dtypes.float32, dtypes.int32, 2),  # not every int32 is a float32
    (dtypes.int64, dtypes.float64, dtypes.int64, 2),  # which NumPy calls safe
    (dtypes.int32, dtypes.float64, dtypes.int32, 0),
    (dtypes.uint8, dtypes.bfloat16, dtypes.float32, 1),
    (dtypes.uint16, dtypes.float16, dtypes.int32, 2),
    (dtypes.int16, dtypes.float32, dtypes.int16, 0),
    (dtypes.float32, dtypes.int32, dtypes.float32, 2),
    (dtypes.int8, dtypes.uint8, dtypes.int32, 2),
    (dtypes.bool_, dtypes.float32, dtypes.bool_, 0),
]
# fmt: on


@pytest.mark.parametrize(("source", "middle", "target", "left"), CASTS)
def test_lossless_casts_are_removed(source: Any, middle: Any, target: Any, left: int) -> None:
    def body(x: Tensor) -> Tensor:
        return primitives.cast(primitives.cast(x, dtype=middle), dtype=target)

    assert len(names(at(2, body, Spec((3,), source)))) == left


@pytest.mark.parametrize("source", [d for d in dtypes.DTYPES if d.itemsize <= 2])
@pytest.mark.parametrize("target", dtypes.DTYPES)
def test_exact_casts_preserve_every_value(source: np.dtype[Any], target: np.dtype[Any]) -> None:
    if source == dtypes.bool_:
        values = np.array([False, True])
    else:
        values = np.arange(2 ** (8 * source.itemsize), dtype=f"u{source.itemsize}").view(source)
        with np.errstate(invalid="ignore"):
            values = values[np.isfinite(values.astype(np.float64))]
    with np.errstate(all="ignore"):
        kept = values.astype(target).astype(np.float64) == values.astype(np.float64)
        there = kept & (values.astype(target).astype(source) == values)
    assert dtypes.exact(source, target) == there.all()


@pytest.mark.parametrize("source", ["int64", "uint64"])
def test_traced_integers_that_float64_rounds_stay_rounded(source: str) -> None:
    x = np.array([2**53 + 1, 2**62 + 1, 5], source)
    graph = at(
        2,
        lambda x: primitives.cast(primitives.cast(x, dtype=dtypes.float64), dtype=x.dtype),
        Spec((3,), x.dtype),
    )
    np.testing.assert_array_equal(value(graph, x), x.astype(np.float64).astype(source))


def test_layout_ops_cancel() -> None:
    def body(x: Tensor) -> Tensor:
        x = layout.transpose(layout.transpose(x, axes=(1, 2, 0)), axes=(2, 0, 1))
        return layout.reshape(layout.reshape(x, shape=(6, 4)), shape=(2, 3, 4))

    assert names(at(2, body, f32(2, 3, 4))) == []


def test_transpose_of_length_one_axis_is_a_reshape() -> None:
    assert names(at(2, lambda x: layout.transpose(x, axes=(1, 0)) + 1.0, f32(1, 5)))[0] == "reshape"


def test_transposes_move_to_the_inputs_of_a_chain() -> None:
    def body(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return tr.exp(layout.transpose((x + y) * 2.0, axes=(1, 0))) + z

    graph = at(2, body, f32(4, 3), f32(3), f32(3, 4))
    assert names(graph).index("exp") > max(
        i for i, n in enumerate(names(graph)) if n in ("transpose", "reshape")
    )
    x, y, z = arrays_for(graph)
    np.testing.assert_allclose(value(graph, x, y, z), np.exp((x + y).T * 2) + z, rtol=1e-5)


def test_final_transpose_is_not_moved() -> None:
    assert names(at(2, lambda x: layout.transpose(tr.exp(x), axes=(1, 0)), f32(4, 3))) == ["exp", "transpose"]


def test_reduction_moves_before_the_transpose_of_its_operand() -> None:
    def body(x: Tensor) -> Tensor:
        return reduce.reduce_sum(layout.transpose(x, axes=(2, 0, 1)), axis=(0,))

    graph = at(2, body, f32(2, 3, 4))
    assert names(graph) == ["reduce_sum", "reshape"]
    x = arrays_for(graph)[0]
    np.testing.assert_allclose(
        value(graph, x), x.transpose(2, 0, 1).sum(0, keepdims=True), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("small", [(), (40,), (30, 1), (1, 40)])
def test_what_reductions_read_is_computed_as_it_is_stored(small: tuple[int, ...]) -> None:
    def body(x: Tensor, y: Tensor) -> Tensor:
        turned = layout.transpose(x, axes=(1, 0))
        found = tr.exp(turned * y)
        return reduce.reduce_max(turned, axis=(1,)) * reduce.reduce_sum(found + turned, axis=(1,))

    graph = at(3, body, f32(40, 30), f32(*small))
    x, y = arrays_for(graph)
    assert [n for n in graph.nodes if n.op is layout.TRANSPOSE and n.inputs[0].spec.shape == x.shape] == []
    assert {n.params["axis"] for n in graph.nodes if n.op.kind is Kind.REDUCE} == {(0,)}
    want = x.T.max(1, keepdims=True) * (np.exp(x.T * y) + x.T).sum(1, keepdims=True)
    np.testing.assert_allclose(value(graph, x, y), want, rtol=1e-5)


def test_reduction_of_a_shared_transposed_value_is_not_moved() -> None:
    def body(x: Tensor) -> Tensor:
        turned = layout.transpose(x, axes=(1, 0))
        return turned / reduce.reduce_sum(turned, axis=(1,))

    graph = at(2, body, f32(3, 4))
    assert names(graph) == ["transpose", "reduce_sum", "div"]
    x = arrays_for(graph)[0]
    np.testing.assert_allclose(value(graph, x), x.T / x.T.sum(1, keepdims=True), rtol=1e-5)


def test_elementwise_ops_move_before_broadcasts() -> None:
    def body(x: Tensor, y: Tensor) -> Tensor:
        wide = layout.broadcast_to(x, shape=(4, 3))
        return tr.exp(wide) * 2.0 + layout.broadcast_to(y, shape=(4, 3))

    graph = at(2, body, f32(3), f32(1))
    assert all(n.spec.size <= 3 for n in graph.nodes if n.op.name != "broadcast_to")
    assert graph.outputs[0].spec.shape == (4, 3)


def test_reshape_after_a_reduction_moves_behind_elementwise_ops() -> None:
    def body(x: Tensor, y: Tensor) -> Tensor:
        return layout.reshape(reduce.reduce_sum(x, axis=(1,)), shape=(4,)) * 2.0 - tr.exp(y)

    graph = at(2, body, f32(4, 3), f32(4))
    assert names(graph)[-1] == "reshape" and graph.outputs[0].inputs[0].op.name == "sub"
    x, y = arrays_for(graph)
    np.testing.assert_allclose(value(graph, x, y), x.sum(1) * 2 - np.exp(y), rtol=1e-5, atol=1e-6)


def test_reshape_of_an_iota_is_folded_away() -> None:
    def body() -> Tensor:
        return layout.reshape(primitives.iota(shape=(6,), dtype=dtypes.int32), shape=(2, 3)) + 1

    assert "reshape" not in names(at(2, body))


def test_reductions_merge_and_drop_axes_of_length_one() -> None:
    def twice(x: Tensor) -> Tensor:
        return reduce.reduce_sum(reduce.reduce_sum(x, axis=(2,)), axis=(0, 1))

    graph = at(2, twice, f32(4, 1, 3))
    assert names(graph) == ["reduce_sum"] and graph.outputs[0].params == {"axis": (0, 2)}
    assert names(at(2, lambda x: reduce.reduce_max(x, axis=(0,)), f32(1, 3))) == []
    assert names(at(2, lambda x: x * reduce.extent(x, axis=(0,)), f32(1, 3))) == []


def test_argmax_indices_survive_simplification() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 1, 5)).astype(np.float32)
    bodies: list[tuple[Callable[[Tensor], Tensor], Any]] = [
        (lambda x: argmax_(x, axis=(2,)), np.zeros((3, 4, 1, 5))),
        (
            lambda x: argmax_(argmax_(x, axis=(0,)), axis=(1,)),
            x.argmax(0, keepdims=True).argmax(1, keepdims=True),
        ),
        (
            lambda x: argmax_(layout.transpose(x, axes=(3, 1, 2, 0)), axis=(0, 1)),
            x.transpose(3, 1, 2, 0).reshape(20, 1, 3).argmax(0).reshape(1, 1, 1, 3),
        ),
    ]
    for body, want in bodies:
        np.testing.assert_array_equal(run(at(2, body, f32(*x.shape)), [x])[0], want)


# speed


def test_simplifying_a_long_graph_takes_linear_work() -> None:
    def long(turns: int) -> Graph:
        def body(x: Tensor) -> Tensor:
            y = x
            for i in range(turns):
                y = layout.reshape(reduce.reduce_sum(y * float(i) + x, axis=(1,)), shape=(4,))
                y = layout.reshape(y, shape=(4, 1)) + x
            return y

        return graph_of(body, f32(4, 3))

    short, twice = (calls_of(partial(simplify, long(turns), 3)) for turns in (100, 200))
    assert twice < 2.2 * short


def test_reshape_adding_an_axis_to_a_scalar_is_not_removed() -> None:
    def body(x: Tensor) -> Tensor:
        return reduce.reduce_sum(layout.reshape(x / (x + 1.0), shape=(1,)), axis=(0,)) * x

    graph = graph_of(body, Spec((), dtypes.float32))
    simple = simplify(graph, 2)
    assert [n.spec for n in simple.outputs] == [Spec((1,), dtypes.float32)]
    np.testing.assert_allclose(run(simple, [np.float32(3.0)])[0], [2.25], rtol=1e-6)
