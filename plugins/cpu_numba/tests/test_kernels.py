"""Whole groups: any shapes, any strides, any reduced axes, against NumPy in float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from cpu_numba_helpers import BACKEND, VIEWS, call, outputs_of, run, traced, view
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb.ops import primitives as ops
from mgb.ops.bodies.transcendental import exp
from mgb.ops.reduce import extent, reduce_max, reduce_min, reduce_sum

RNG = np.random.default_rng(7)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


# fmt: off
UNARY = [
    (lambda x: x + 1.5, lambda x: x + 1.5), (lambda x: x * 0.5, lambda x: x * 0.5),
    (lambda x: -x, lambda x: -x),
    (lambda x: ops.maximum(x, 0.25), lambda x: np.maximum(x, 0.25)), (ops.floor, np.floor),
    (lambda x: ops.sqrt(ops.maximum(x, 0.0)), lambda x: np.sqrt(np.maximum(x, 0.0))),
]
BINARY = [
    (lambda a, b: a + b, np.add), (lambda a, b: a - b, np.subtract), (lambda a, b: a * b, np.multiply),
    (ops.minimum, np.minimum), (lambda a, b: ops.where(ops.lt(a, b), a, b), np.minimum),
]
# fmt: on


REDUCTIONS = [(reduce_sum, np.sum), (reduce_max, np.max), (reduce_min, np.min)]


@st.composite
def programs(draw: st.DrawFn) -> tuple[Any, Any, list[Any]]:
    """(traced function, NumPy function, arrays): a random graph over broadcast, strided inputs."""
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    axis = tuple(a for a in range(len(shape)) if draw(st.booleans()))
    masks = [
        [True] * len(shape),
        *draw(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), max_size=2)),
    ]
    shapes = [[d if m else 1 for d, m in zip(shape, mask, strict=False)] for mask in masks]
    arrays = [view(normal(*s), draw(st.sampled_from(VIEWS))) for s in shapes]
    place = st.integers(0, 99)
    steps = draw(st.lists(st.tuples(st.sampled_from("ubr"), place, place, place), min_size=1, max_size=8))

    def play(side: int, values: list[Any]) -> list[Any]:
        full = values[0]
        for kind, word, i, j in steps:
            a, b = values[i % len(values)], values[j % len(values)]
            if kind == "u":
                out = UNARY[word % len(UNARY)][side](a)
            elif kind == "b" or not axis:
                out = BINARY[word % len(BINARY)][side](a, b)
            else:  # a group reduces only what varies along every reduced axis
                keep = {} if side == 0 else {"keepdims": True}
                out = REDUCTIONS[word % len(REDUCTIONS)][side](a + full * 0.0, axis=axis, **keep)
            values = [*values, out]
        return [values[-1] * 2.0, values[len(values) // 2] + 1.0]

    return lambda *xs: play(0, list(xs)), lambda *xs: play(1, list(xs)), arrays


@settings(max_examples=15, derandomize=True)
@given(programs())
def test_random_groups_match_numpy(program: tuple[Any, Any, list[Any]]) -> None:
    function, truth, arrays = program
    got = run(function, *arrays)
    want = truth(*(a.astype(np.float64) for a in arrays))
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-4 * (1 + np.abs(w).max()))


def softmax(x: Any, axis: tuple[int, ...]) -> Any:
    e = exp(x - reduce_max(x, axis=axis))
    return e / reduce_sum(e, axis=axis)


def true_softmax(x: Any, axis: tuple[int, ...]) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def norm(x: Any, w: Any, axis: tuple[int, ...]) -> tuple[Any, ...]:
    n = extent(x, axis=axis)
    mean = reduce_sum(x, axis=axis) / n
    d = x - mean
    variance = reduce_sum(d * d, axis=axis) / n
    return d / ops.sqrt(variance + 1e-5) * w, mean, variance


def true_norm(x: Any, w: Any, axis: tuple[int, ...]) -> tuple[Any, ...]:
    mean, variance = x.mean(axis, keepdims=True), x.var(axis, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * w, mean, variance


AXES = [axes for n in (1, 2, 3) for axes in itertools.combinations(range(3), n)]


@pytest.mark.parametrize("axis", AXES, ids=str)
def test_softmax_over_any_axes_in_any_layout_and_size(axis: tuple[int, ...]) -> None:
    small = normal(3, 4, 5)
    graph = traced(lambda x: softmax(x, axis), [small])
    kernel = BACKEND.compile(graph)
    shapes = [(3, 4, 5), (2, 2, 700), (200, 3, 2), (2, 300, 9), (40, 40, 70)]
    for shape, layout in itertools.product(shapes, VIEWS):
        x = view(normal(*shape), layout)
        out = np.full(shape, 9, np.float32)
        kernel.run(x, out=(out,))
        np.testing.assert_allclose(out, true_softmax(x.astype(np.float64), axis), rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("axis", [(0,), (1,), (0, 2, 3), (1, 2, 3)], ids=str)
def test_norms_with_row_outputs(axis: tuple[int, ...]) -> None:
    x = normal(6, 5, 7, 3)
    weight = normal(*(1 if i in axis else d for i, d in enumerate(x.shape)))
    graph = traced(lambda x, w: norm(x, w, axis), [x, weight])
    kernel = BACKEND.compile(graph)
    for scale in (1, 9):
        x = normal(6 * scale, 5, 7 * scale, 3)
        weight = normal(*(1 if i in axis else d for i, d in enumerate(x.shape)))
        out = tuple(np.full(s, 9, np.float32) for s in (x.shape, weight.shape, weight.shape))
        kernel.run(x, weight, out=out)
        for g, w in zip(out, true_norm(x.astype("f8"), weight.astype("f8"), axis), strict=True):
            np.testing.assert_allclose(g, w, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("shape", [(1, 1), (1, 300_000), (300_000, 1), (3, 100_000), (100_000, 3)], ids=str)
def test_long_sums_are_accurate(shape: tuple[int, ...]) -> None:
    x = RNG.random(shape).astype(np.float32)
    for axis in ((0,), (1,), (0, 1)):
        (got,) = run(lambda x, axis=axis: reduce_sum(x * 1.0, axis=axis), x)
        np.testing.assert_allclose(got, x.astype("f8").sum(axis, keepdims=True), rtol=1e-6)


def test_maximum_of_rows_with_nan_is_nan() -> None:
    x = normal(4, 600)
    x[1, 5] = x[3, 599] = np.nan
    for axis in (0, 1):
        (got,) = run(lambda x, axis=axis: reduce_max(x, axis=(axis,)), x)
        np.testing.assert_array_equal(got, x.max(axis, keepdims=True))


def test_iota_counts_elements_of_its_own_shape() -> None:
    x = normal(4, 1, 6)
    i4 = np.dtype("i4")
    graph = traced(lambda x: x + ops.cast(ops.iota(shape=(3, 6), dtype=i4), dtype=x.dtype), [x])
    (got,) = call(BACKEND.compile(graph), graph, [x])
    np.testing.assert_allclose(got, x + np.arange(18).reshape(3, 6), rtol=1e-6)
    graph = traced(
        lambda x: reduce_max(
            x * 0.0 + ops.cast(ops.iota(shape=(4, 1, 6), dtype=i4), dtype=x.dtype), axis=(2,)
        ),
        [x],
    )
    (got,) = call(BACKEND.compile(graph), graph, [x])
    np.testing.assert_array_equal(got.ravel(), [5, 11, 17, 23])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "float32", "float64"])
def test_iota_is_the_flat_index_in_its_dtype(dtype: str) -> None:
    """Integers wrap; floats are the rounded address, not a sum of rounded ones."""
    shape = (300, 60_000 if dtype == "float32" else 700)  # past what the dtype counts exactly
    x = np.ones((300, 1), dtype)
    (got,) = run(lambda x: x * ops.iota(shape=shape, dtype=np.dtype(dtype)), x)
    np.testing.assert_array_equal(got, np.arange(300 * shape[1]).reshape(shape).astype(dtype))


def test_constant_array_is_an_operand() -> None:
    x, table = normal(5, 7), normal(7)
    (got,) = run(lambda x: ops.add(x, table), x)
    np.testing.assert_allclose(got, x + table)


def test_reduction_over_length_1_is_the_identity() -> None:
    x = normal(5, 1)
    (got,) = run(lambda x: reduce_sum(x, axis=(1,)) / extent(x, axis=(1,)), x)
    np.testing.assert_array_equal(got, x)


def test_one_kernel_serves_every_size() -> None:
    graph = traced(lambda a, b: (a * b + a, b - 1.0), [normal(2, 3), normal(3)])
    kernel = BACKEND.compile(graph)
    for rows, columns in ((2, 3), (7, 2), (1000, 100), (2, 200_000), (0, 4)):
        a, b = normal(rows, columns), normal(columns)
        out = (np.full_like(a, 9), np.full_like(b, 9))
        kernel.run(a, b, out=out)
        np.testing.assert_allclose(out[0], a.astype("f8") * b + a, rtol=1e-5, atol=1e-5)
        if rows:
            np.testing.assert_array_equal(out[1], b - 1)


def add_one(a: Any, b: Any) -> Any:
    return a * b + 1.0


def swapped(a: Any, b: Any) -> Any:
    return a + 1.0, b + 2.0


def two(a: Any, b: Any) -> Any:
    return a + b, a * 3.0


def early(a: Any, b: Any) -> Any:
    """The first output is written before the sum is known, the second after it."""
    return a + 1.0, b / reduce_sum(a * b, axis=(1,)) + a


def rows(a: Any, b: Any) -> Any:
    return softmax(a, (1,)), b


def columns(a: Any, b: Any) -> Any:
    return softmax(a, (0,)), b


@pytest.mark.parametrize(
    ("function", "reuse"),
    [(add_one, {0: 0}), (swapped, {0: 1, 1: 0}), (two, {0: 0, 1: 1}), (early, {0: 0, 1: 1}), (rows, {0: 0}),
     (columns, {0: 0})],
)  # fmt: skip
def test_outputs_may_overwrite_inputs(function: Any, reuse: dict[int, int]) -> None:
    kernel = None
    for length in (20, 900):
        arrays = [normal(length, 100), normal(length, 100)]
        graph = traced(function, arrays)
        kernel = kernel or BACKEND.compile(graph)
        want = call(kernel, graph, arrays)
        out = tuple(arrays[reuse[j]] if j in reuse else o for j, o in enumerate(outputs_of(graph)))
        kernel.run(*arrays, out=out)
        for g, w in zip(out, want, strict=True):
            np.testing.assert_array_equal(g, w)


def test_row_output_may_overwrite_a_row_input() -> None:
    for length in (20, 900):
        a, c = normal(length, 100), normal(length, 1)
        graph = traced(lambda a, c: (c * 2.0, a / (reduce_sum(a * a, axis=(1,)) + c)), [a, c])
        kernel = BACKEND.compile(graph)
        want = call(kernel, graph, [a, c])
        out = (c, np.empty_like(a))
        kernel.run(a, c, out=out)
        for g, w in zip(out, want, strict=True):
            np.testing.assert_array_equal(g, w)
