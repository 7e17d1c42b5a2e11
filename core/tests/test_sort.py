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
from mgb.apply import evaluate
from mgb.errors import ShapeError
from mgb.ir import Op
from mgb.ops.declare import op_of
from mgb.ops.sort import argmax_, argmin_

ELEMENTS = st.sampled_from([-np.inf, -2.0, -0.0, 0.0, 1.0, 3.0, np.inf, np.nan])
ARRAYS = hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=4), elements=ELEMENTS)


@settings(max_examples=60, deadline=None)
@given(ARRAYS, st.booleans(), st.data())
def test_sort(x: Any, descending: bool, data: Any) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    values, places = F.sort(Tensor(x), descending=descending, axis=axis)
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


def test_sort_of_unsigned_and_least_integers() -> None:
    for dtype in ("uint8", "int8"):
        x = np.array([np.iinfo(dtype).min, 5, np.iinfo(dtype).max], dtype)
        np.testing.assert_array_equal(F.sort(Tensor(x), descending=True)[0].numpy(), x[::-1])


@settings(max_examples=60, deadline=None)
@given(ARRAYS, st.booleans(), st.data())
def test_topk(x: Any, descending: bool, data: Any) -> None:
    k = data.draw(st.integers(1, x.shape[-1]))
    values, places = F.topk(Tensor(x), k, descending=descending)
    want = np.sort(x, axis=-1)
    want = (want[..., ::-1] if descending else want)[..., :k]
    np.testing.assert_array_equal(values.numpy(), want)
    np.testing.assert_array_equal(np.take_along_axis(x, places.numpy(), -1), want)
    kth = F.topk(Tensor(x), k, descending=descending, kth_only=True)
    assert isinstance(kth, Tensor)
    np.testing.assert_array_equal(kth.numpy(), want[..., -1])


@pytest.mark.parametrize("kth_only", [False, True])
@pytest.mark.parametrize("k", [4, -1, -3])
def test_topk_of_too_many_or_a_negative_number(k: int, kth_only: bool) -> None:
    with pytest.raises(ShapeError, match=f"k = {k} of an axis of length 3"):
        F.topk(Tensor([1.0, 2.0, 3.0]), k, kth_only=kth_only)


def test_there_is_no_kth_element_of_none() -> None:
    with pytest.raises(ShapeError, match="topk: k = 0, so there is no k-th element"):
        F.topk(Tensor([1.0, 2.0, 3.0]), 0, kth_only=True)
    values, places = F.topk(Tensor([1.0, 2.0, 3.0]), 0)
    assert values.shape == places.shape == (0,)


def test_indices_of_topk_keep_no_more_than_themselves() -> None:
    array = F.topk(Tensor(np.arange(1000)), 1)[1]._data
    assert (array if array.base is None else array.base).nbytes == 4


@settings(max_examples=60, deadline=None)
@given(ARRAYS, st.data())
def test_argmax_and_argmin(x: Any, data: Any) -> None:
    axis = data.draw(st.none() | st.integers(-x.ndim, x.ndim - 1))
    for function, want in ((F.argmax, np.argmax), (F.argmin, np.argmin)):
        got = function(Tensor(x), axis)
        assert got.dtype == np.int32
        np.testing.assert_array_equal(got.numpy(), want(x, axis=axis))


@pytest.mark.parametrize("op", [op_of(argmax_), op_of(argmin_)], ids=lambda op: op.name)
@settings(max_examples=60, deadline=None)
@given(x=ARRAYS, data=st.data())
def test_the_bodies_of_argmax_and_argmin(op: Op, x: Any, data: Any) -> None:
    axis = tuple(sorted(data.draw(st.sets(st.integers(0, x.ndim - 1), min_size=1))))
    assert op.body is not None
    spelt = op.body(Tensor(x), axis=axis).numpy()
    np.testing.assert_array_equal(spelt, evaluate(op, [x], {"axis": axis}))


def test_argmax_of_nothing() -> None:
    with pytest.raises(ShapeError, match="of nothing"):
        F.argmax(Tensor(np.zeros((0, 2))), 0)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cumsum(axis: int, check_gradient: Any) -> None:
    x = np.random.default_rng(0).normal(size=(3, 4))
    got = F.cumsum(Tensor(x, dtype="float64"), axis)
    np.testing.assert_allclose(got.numpy(), np.cumsum(x, axis))
    check_gradient(lambda t: F.cumsum(t, axis), x, order=2)


def test_gradients_of_sort_and_topk(check_gradient: Any) -> None:
    x = np.random.default_rng(0).permutation(12).reshape(3, 4) * 0.5
    check_gradient(lambda t: F.sort(t, axis=0)[0], x)
    check_gradient(lambda t: F.topk(t, 2, descending=True)[0], x)
