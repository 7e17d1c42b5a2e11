"""Sorting, topk, the place of the extreme, running sums: against NumPy."""

from __future__ import annotations

from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from mgb import Tensor
from mgb.errors import ShapeError
from mgb.ir import Op, Spec
from mgb.ops.declare import op_of
from mgb.ops.sort import argmax_, argmin_
from mgb.passes import simplify
from mgb.tensor.apply import evaluate
from mgb.tensor.tracing import graph_of

ELEMENTS = st.sampled_from([-np.inf, -2.0, -0.0, 0.0, 1.0, 3.0, np.inf, np.nan])
ARRAYS = hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=4), elements=ELEMENTS)


@settings(max_examples=60)
@given(ARRAYS, st.booleans(), st.data())
def test_sort(x: Any, descending: bool, data: Any) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    values, places = F.sort(Tensor(x), descending=descending, dim=axis)
    want = np.sort(x, axis=axis)
    np.testing.assert_array_equal(values.numpy(), np.flip(want, axis) if descending else want)
    assert places.dtype == np.int32
    np.testing.assert_array_equal(np.take_along_axis(x, places.numpy(), axis), values.numpy())
    np.testing.assert_array_equal(F.argsort(Tensor(x), descending, axis).numpy(), places.numpy())


@pytest.mark.parametrize("descending", [False, True])
def test_sort_is_stable(descending: bool) -> None:
    x = np.array([1, 0, 1, 0, 1])
    want = [0, 2, 4, 1, 3] if descending else [1, 3, 0, 2, 4]
    np.testing.assert_array_equal(F.argsort(Tensor(x), descending).numpy(), want)


#: Where zeros, NaN, infinities and elements without equals may stand.
KINDS = ("ties", "distinct", "special", "equal")


def _column(kind: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(len(kind) + len(dtype))
    count, type_ = int(np.prod(shape)), np.dtype(dtype)
    if kind == "distinct" and type_.itemsize > 2:
        x = rng.permutation(count) - (0 if type_.kind == "u" else count // 2)
    elif kind == "special" and type_.kind == "f":
        x = rng.choice(np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.5, -1.5, 1e-45]), count)
    elif kind == "special" and type_.kind in "iu":
        info = np.iinfo(type_)
        x = rng.choice(np.array([info.min, info.max, info.max - 1, 0, 1], type_), count)
    else:
        x = np.zeros(count) if kind == "equal" else rng.integers(0, 9, count)
    return x.astype(type_).reshape(shape)


DTYPES = [
    "bool",
    "float16",
    "float32",
    "float64",
    *(f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64)),
]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_long_sort_and_topk_match_the_stable_order_of_numpy(dtype: str, kind: str, descending: bool) -> None:
    for shape, axis in [((1500,), 0), ((7, 300), 1), ((300, 7), 0), ((3, 200, 4), 1), ((2, 1, 600), 2)]:
        x = _column(kind, dtype, shape)
        ranks = np.unique(x, return_inverse=True)[1].reshape(shape)  # NaN is one rank, the greatest
        want = np.argsort(-ranks if descending else ranks, axis=axis, kind="stable")
        for laid in (x, np.asfortranarray(x), np.flip(np.flip(x, axis).copy(), axis)):
            values, places = F.sort(Tensor(laid, dtype=dtype), descending=descending, dim=axis)
            np.testing.assert_array_equal(places.numpy(), want)
            assert places.dtype == np.int32 and values.dtype == x.dtype
            np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, want, axis))
        rows = Tensor(np.moveaxis(x, axis, -1).copy(), dtype=dtype)
        for k in (0, 1, 10, rows.shape[-1] // 2, rows.shape[-1]):
            values, places = F.topk(rows, k, descending=descending)
            np.testing.assert_array_equal(places.numpy(), np.moveaxis(want, axis, -1)[..., :k])
            np.testing.assert_array_equal(
                values.numpy(), np.take_along_axis(rows.numpy(), places.numpy(), -1)
            )


def test_uint64_values_differing_in_low_bits_are_sorted_correctly() -> None:
    x = (np.uint64(1 << 63) + np.random.default_rng(0).permutation(1000).astype(np.uint64)).astype(np.uint64)
    for descending in (False, True):
        want = np.argsort(x)[::-1] if descending else np.argsort(x)
        np.testing.assert_array_equal(F.argsort(Tensor(x, dtype="uint64"), descending).numpy(), want)


def test_topk_of_rows_with_ties_and_rows_with_nan() -> None:
    x = np.random.default_rng(0).standard_normal((2, 600)).astype(np.float32)
    x[0, :20] = 9.0
    x[1, 5:15] = np.nan
    for dtype in ("float32", "float64"):
        places = F.topk(Tensor(x.astype(dtype), dtype=dtype), 10, descending=True)[1].numpy()
        np.testing.assert_array_equal(places, [range(10), range(5, 15)])


def test_sort_of_values_alone_computes_no_indices() -> None:
    graph = graph_of(lambda x: F.sort(x, dim=0)[0], Spec((300, 4), np.dtype(np.float32)))
    assert [node.op.name for node in simplify(graph, 3).nodes] == ["sort"]


def test_descending_sort_of_extreme_integers() -> None:
    for dtype in ("uint8", "int8"):
        x = np.array([np.iinfo(dtype).min, 5, np.iinfo(dtype).max], dtype)
        np.testing.assert_array_equal(F.sort(Tensor(x), descending=True)[0].numpy(), x[::-1])


@settings(max_examples=60)
@given(ARRAYS, st.booleans(), st.data())
def test_topk(x: Any, descending: bool, data: Any) -> None:
    k = data.draw(st.integers(1, x.shape[-1]))
    values, places = F.topk(Tensor(x), k, descending=descending)
    want = np.sort(x, axis=-1)
    want = (want[..., ::-1] if descending else want)[..., :k]
    np.testing.assert_array_equal(values.numpy(), want)
    np.testing.assert_array_equal(np.take_along_axis(x, places.numpy(), -1), want)
    value, place = F.topk(Tensor(x), k, descending=descending, kth_only=True)
    np.testing.assert_array_equal(value.numpy(), want[..., -1])
    np.testing.assert_array_equal(np.take_along_axis(x, place.numpy()[..., None], -1)[..., 0], want[..., -1])


def test_topk_returns_the_greatest_by_default() -> None:
    x = [3.0, 1.0, 2.0]
    assert F.topk(Tensor(x), 2)[0].tolist() == [3, 2]
    assert F.topk(Tensor(x), 2, False)[0].tolist() == [1, 2]
    assert [t.item() for t in F.topk(Tensor(x), 2, kth_only=True)] == [2, 2]


def test_topk_with_k_above_the_length_returns_all() -> None:
    values, places = F.topk(Tensor([[3.0, 1.0, 2.0]]), 7)
    assert (values.tolist(), places.tolist()) == ([[3, 2, 1]], [[0, 2, 1]])
    assert [t.tolist() for t in F.topk(Tensor([[3.0, 1.0, 2.0]]), 7, kth_only=True)] == [[1], [1]]


@pytest.mark.parametrize("kth_only", [False, True])
@pytest.mark.parametrize("k", [-1, -3])
def test_topk_rejects_negative_k(k: int, kth_only: bool) -> None:
    with pytest.raises(ShapeError, match=f"k = {k} is out of range for an axis of length 3"):
        F.topk(Tensor([1.0, 2.0, 3.0]), k, kth_only=kth_only)


def test_topk_kth_only_rejects_zero_k_and_empty_axis() -> None:
    with pytest.raises(ShapeError, match=r"topk: kth_only=True needs .*, got shape \(3,\)"):
        F.topk(Tensor([1.0, 2.0, 3.0]), 0, kth_only=True)
    with pytest.raises(ShapeError, match=r"topk: kth_only=True needs .*, got shape \(0,\)"):
        F.topk(Tensor(np.zeros(0)), 1, kth_only=True)
    values, places = F.topk(Tensor([1.0, 2.0, 3.0]), 0)
    assert values.shape == places.shape == (0,)


def test_topk_indices_do_not_keep_a_larger_array_alive() -> None:
    array = F.topk(Tensor(np.arange(1000)), 1)[1]._data
    assert (array if array.base is None else array.base).nbytes == 4


@settings(max_examples=60)
@given(ARRAYS, st.data())
def test_argmax_and_argmin(x: Any, data: Any) -> None:
    axis = data.draw(st.none() | st.integers(-x.ndim, x.ndim - 1))
    for function, want in ((F.argmax, np.argmax), (F.argmin, np.argmin)):
        got = function(Tensor(x), axis)
        assert got.dtype == np.int32
        np.testing.assert_array_equal(got.numpy(), want(x, axis=axis))


@pytest.mark.parametrize("op", [op_of(argmax_), op_of(argmin_)], ids=lambda op: op.name)
@settings(max_examples=60)
@given(x=ARRAYS, data=st.data())
def test_argmax_and_argmin_bodies_match_the_eager_rules(op: Op, x: Any, data: Any) -> None:
    axis = tuple(sorted(data.draw(st.sets(st.integers(0, x.ndim - 1), min_size=1))))
    assert op.body is not None
    spelt = op.body(Tensor(x), axis=axis).numpy()
    np.testing.assert_array_equal(spelt, evaluate(op, [x], {"axis": axis}))


def test_argmax_of_an_empty_axis_raises() -> None:
    with pytest.raises(ShapeError, match="of an empty array"):
        F.argmax(Tensor(np.zeros((0, 2))), 0)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cumsum(axis: int, check_gradient: Any) -> None:
    x = np.random.default_rng(0).normal(size=(3, 4))
    got = F.cumsum(Tensor(x, dtype="float64"), axis)
    np.testing.assert_allclose(got.numpy(), np.cumsum(x, axis))
    check_gradient(lambda t: F.cumsum(t, axis), x, order=2)


def test_gradients_of_sort_and_topk(check_gradient: Any) -> None:
    x = np.random.default_rng(0).permutation(12).reshape(3, 4) * 0.5
    check_gradient(lambda t: F.sort(t, dim=0)[0], x)
    check_gradient(lambda t: F.topk(t, 2, descending=True)[0], x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("gaps", [[10], [10, 11, 12], []])
def test_topk_of_a_long_row_with_nan_and_ties(gaps: list[int], dtype: str) -> None:
    x = np.arange(600, dtype=dtype) - 1000
    x[[20, 30]] = 5
    x[gaps] = np.nan
    for descending in (True, False):
        values, places = F.topk(Tensor(x, dtype=dtype), 2, descending=descending)
        want = np.lexsort((np.arange(600), -x if descending else x))
        if descending:
            want = np.array([*gaps, *(i for i in want if i not in gaps)])
        np.testing.assert_array_equal(places.numpy(), want[:2])
        np.testing.assert_array_equal(values.numpy(), x[want[:2]])
