"""Indexing: `x[key]` and `x[key] = value` mean what they mean in NumPy, and so do the gradients."""

from __future__ import annotations

from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from mgb import Tensor
from mgb.errors import ConversionError, ShapeError
from mgb.ir import Spec
from mgb.ops.getitem import updated
from mgb.ops.index import index_add, scatter_add
from mgb.ops.layout import unslice
from mgb.tensor.tracing import graph_of


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).normal(size=shape)


@st.composite
def shapes_and_keys(draw: Any) -> tuple[tuple[int, ...], Any]:
    shape = draw(hnp.array_shapes(max_dims=4, max_side=4))
    if draw(st.booleans()):
        return shape, draw(hnp.basic_indices(shape, max_dims=6, allow_newaxis=True))
    key: list[Any] = []
    axis, dots = 0, False
    while axis < len(shape) and draw(st.integers(0, 9)) < 9:
        kinds = ["int", "slice", "array", "tuple", "mask", "bool", "none", "dots"]
        length, kind = shape[axis], draw(st.sampled_from(kinds))
        axis += kind not in ("bool", "none", "dots")
        if kind == "int":
            key.append(draw(st.integers(-length, length - 1)))
        elif kind == "slice":
            key.append(draw(st.slices(length)))
        elif kind == "array":
            form = draw(st.sampled_from([(), (2,), (3, 1), (0,)]))
            key.append(draw(hnp.arrays(np.int32, form, elements=st.integers(-length, length - 1))))
        elif kind == "tuple":
            key.append(tuple(draw(st.lists(st.integers(-length, length - 1), max_size=2))))
        elif kind == "bool":
            key.append(draw(st.booleans()))
        elif kind == "mask":
            key.append(draw(hnp.arrays(bool, (length,))))
        elif kind == "none":
            key.append(None)
        elif not dots:
            dots = True
            key.append(Ellipsis)
            axis += draw(st.integers(0, len(shape) - axis))
    return shape, tuple(key)


def arrays_in(shape: tuple[int, ...], key: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    try:
        return x, x[key]
    except IndexError:  # index arrays that do not broadcast, or a mask after dots
        return None


@settings(max_examples=400)
@given(shapes_and_keys())
def test_getitem_matches_numpy(case: tuple[tuple[int, ...], Any]) -> None:
    shape, key = case
    both = arrays_in(shape, key)
    if both is None:
        with pytest.raises((IndexError, ValueError)):
            Tensor(np.zeros(shape))[key]
        return
    x, want = both
    got = Tensor(x)[key]
    assert got.shape == want.shape
    np.testing.assert_array_equal(got.numpy(), want)


@settings(max_examples=300)
@given(shapes_and_keys(), st.sampled_from(["scalar", "full", "row"]))
def test_setitem_matches_numpy(case: tuple[tuple[int, ...], Any], form: str) -> None:
    shape, key = case
    both = arrays_in(shape, key)
    if both is None:
        return
    x, chosen = both
    value: Any = -1.5
    if form == "full":
        value = -np.arange(chosen.size, dtype=np.float32).reshape(chosen.shape)
    elif form == "row" and chosen.ndim:
        value = -np.arange(chosen.shape[-1], dtype=np.float32)
    t, want = Tensor(x), x.copy()
    want[key] = value
    before = t
    t[key] = Tensor(value) if isinstance(value, np.ndarray) and chosen.size % 2 else value
    assert t is before
    np.testing.assert_array_equal(t.numpy(), want)


def test_tensor_can_be_an_index() -> None:
    x = numbers(4, 3)
    t = Tensor(x, dtype="float64")
    np.testing.assert_array_equal(t[Tensor([2, -1])].numpy(), x[[2, -1]])
    np.testing.assert_array_equal(t[Tensor(2)].numpy(), x[2])
    np.testing.assert_array_equal(t[t > 0].numpy(), x[x > 0])
    np.testing.assert_array_equal(t[[True, False, True, False], 1].numpy(), x[[0, 2], 1])


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ((0, 7), "index 7 is out of bounds for axis 1 with size 3"),
        ((slice(None), [0, 3]), "index 3 is out of bounds for axis 1 with size 3"),
        ((0, 0, 0), "too many indices"),
        ((..., ...), "single ellipsis"),
        ("a", "str is not an index"),
        (1.0, "float is not an index"),
        ([0.5], "integer or boolean type"),
        (np.ones(3, bool), "a mask of length 3 does not match axis 0 of length 4"),
    ],
)
def test_invalid_index_raises(key: Any, message: str) -> None:
    with pytest.raises(IndexError, match=message):
        Tensor(numbers(4, 3))[key]


def test_setitem_rejects_value_that_does_not_broadcast() -> None:
    t = Tensor(numbers(4, 3))
    with pytest.raises(ShapeError, match=r"\(2,\) does not broadcast to the 3 places of .* shape \(3,\)"):
        t[0] = [1.0, 2.0]


def test_setitem_keeps_the_dtype() -> None:
    t = Tensor([1, 2, 3])
    t[1] = 7.9
    assert t.dtype == np.int32
    np.testing.assert_array_equal(t.numpy(), [1, 7, 3])


def test_masked_scalar_assignment_is_traced_as_where() -> None:
    graph = graph_of(
        lambda x, m: updated(x, m, 0.0), Spec((3, 2), np.dtype("float32")), Spec((3,), np.dtype("bool"))
    )
    assert [n.op.name for n in graph.nodes if n.op.name == "where"] == ["where"]


def test_indexing_in_a_graph_has_the_shape_of_numpy() -> None:
    key = (slice(None, None, -1), None, [0, 2], 1)
    graph = graph_of(lambda x: x[key], Spec((4, 3, 2), np.dtype("float32")))
    assert graph.outputs[0].spec.shape == np.zeros((4, 3, 2))[key].shape


@pytest.mark.parametrize(
    "key",
    [
        1,
        slice(3, 0, -2),
        (..., None, 0),
        [0, 0, 2],
        ([0, 0], [1, 1]),
        (slice(1, 3), [2, 0, 0]),
        (0, [1, 1]),
        np.eye(4, 3) > 0,
    ],
)
def test_gradients_of_getitem_and_setitem(key: Any, check_gradient: Any) -> None:
    x = numbers(4, 3)
    check_gradient(lambda t: t[key], x, order=2)
    value = numbers(*x[key].shape)
    if (
        len(np.unique(np.arange(12).reshape(4, 3)[key])) == value.size
    ):  # of equal indices the last value stays
        check_gradient(lambda t, v: updated(t, key, v), x, value)


@pytest.mark.parametrize("dtype", ["float32", "int32", "float16"])
@pytest.mark.parametrize("shape", [(4, 300), (1200,)])
def test_index_add_matches_numpy_add_at(dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    x, value = ((rng.standard_normal(s) * 9).astype(dtype) for s in ((50, 64), (*shape, 64)))
    rows = rng.integers(-50, 50, shape).astype(np.int32)
    for added in (value, value[:, :1], value[:1]):
        wanted, size = x.astype(np.float64), np.abs(x).astype(np.float64)
        np.add.at(wanted, (rows,), added)
        np.add.at(size, (rows,), np.abs(added))
        found = index_add(Tensor(x), Tensor(added), Tensor(rows), axes=(0,), place=0).numpy()
        rounding = 0 if dtype == "int32" else np.bincount(rows.ravel() % 50).max() * np.finfo(dtype).eps
        assert np.all(np.abs(found - wanted) <= rounding * size)
    with pytest.raises(IndexError, match="out of bounds"):
        index_add(Tensor(x), Tensor(value), Tensor(rows + 1), axes=(0,), place=0)


@pytest.mark.parametrize("times", [2, 3, 5])
def test_repeat_matches_numpy_along_each_axis(times: int) -> None:
    x = numbers(6, 4).astype(np.float32)
    for axis in (0, 1, None):
        np.testing.assert_array_equal(F.repeat(Tensor(x), times, axis).numpy(), np.repeat(x, times, axis))


@pytest.mark.parametrize("shape", [(40, 300), (3, 40, 300), (40, 20, 20), (0, 300), (1, 400)])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_cumsum_matches_numpy_along_each_axis(shape: tuple[int, ...], dtype: str) -> None:
    x = (np.random.default_rng(5).standard_normal(shape) * 9).astype(dtype)
    for axis in range(len(shape)):
        for each in (x, x[..., ::-1]):
            wanted = np.cumsum(each, axis, dtype="int64" if dtype == "int32" else dtype)
            np.testing.assert_array_equal(F.cumsum(Tensor(each), axis).numpy(), wanted)


def test_index_add_and_unslice_return_row_major_results() -> None:
    x = Tensor(numbers(3, 5)).T
    for found in (
        index_add(x, Tensor([1.0]), Tensor([0]), axes=(0,), place=0),
        unslice(x, shape=(6, 4), window=((0, 5, 1), (0, 3, 1))),
    ):
        assert found._data.flags.c_contiguous
        np.testing.assert_array_equal(found.numpy()[1:5, :3], x.numpy()[1:])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "float16", "bool"])
@pytest.mark.parametrize("shape", [(7, 64), (7, 1), (7, 2, 40), (7,)])
@pytest.mark.parametrize("rows", [3, 4000])
def test_scatter_add_of_whole_rows(rows: int, shape: tuple[int, ...], dtype: str) -> None:
    """One place for each row, broadcast along it; places count from the end, too."""
    random = np.random.default_rng(0)
    x, value = (random.integers(0, 2, (n, *shape[1:])).astype(dtype) for n in (shape[0], rows))
    places = random.integers(-7, 7, rows)
    spread = np.broadcast_to(places.reshape(-1, *(1,) * (len(shape) - 1)), value.shape)
    want = x.copy()
    np.add.at(want, places, value)
    for index in (
        Tensor(spread),
        F.broadcast_to(Tensor(spread[(..., *(slice(1),) * (len(shape) - 1))]), spread.shape),
    ):
        found = scatter_add(Tensor(x, dtype), 0, index, Tensor(value, dtype))
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found.numpy(), want)
    nothing = F.zeros((*shape[:1], 0)), F.broadcast_to(Tensor([[0]] * rows), (rows, 0)), F.zeros((rows, 0))
    assert scatter_add(nothing[0], 0, *nothing[1:]).shape == (*shape[:1], 0)
    if shape[0] != rows:
        with pytest.raises(IndexError):
            scatter_add(
                Tensor(x),
                0,
                F.broadcast_to(Tensor([7]).reshape(*(1,) * len(shape)), value.shape),
                Tensor(value),
            )


def test_gradients_of_the_index_ops(check_gradient: Any) -> None:
    x, index = numbers(4, 3), np.array([[0, 2, 1], [3, 3, 0]])
    source = numbers(2, 3)
    check_gradient(lambda t: F.gather(t, 0, Tensor(index)), x)
    check_gradient(lambda t: F.take(t, Tensor([1, 1, 0]), 1), x)
    check_gradient(lambda t, s: scatter_add(t, 0, Tensor(index % 2 * 2), s), x, source)
    check_gradient(lambda t, s: F.scatter(t, 0, Tensor(index), s), x, source)
    check_gradient(lambda t, v: index_add(t, v, Tensor([1, 1]), axes=(0,), place=0), x, source)
    check_gradient(lambda t: F.indexing_one_hot(t, Tensor([0, 2, 2, 1])), x)


@given(st.integers(0, 2), st.data())
@settings(max_examples=50)
def test_gather_and_scatter_match_numpy_along_axis(axis: int, data: Any) -> None:
    x = numbers(3, 2, 4)
    form = list(x.shape)
    form[axis] = data.draw(st.integers(0, 5))
    index = data.draw(
        hnp.arrays(np.int32, tuple(form), elements=st.integers(-x.shape[axis], x.shape[axis] - 1))
    )
    t = Tensor(x, dtype="float64")
    np.testing.assert_array_equal(
        F.gather(t, axis, Tensor(index)).numpy(), np.take_along_axis(x, index, axis)
    )
    want = x.copy()
    np.put_along_axis(want, index, 0.0, axis)
    np.testing.assert_array_equal(F.scatter(t, axis, Tensor(index), F.zeros(tuple(form))).numpy(), want)


def test_gather_rejects_bad_index_shape_and_range() -> None:
    with pytest.raises(ShapeError, match="gather"):
        F.gather(Tensor(numbers(2, 3)), 0, Tensor([0, 1]))
    with pytest.raises(IndexError, match="out of bounds"):
        F.gather(Tensor(numbers(2, 3)), 0, Tensor([[2, 0, 0]]))


def test_one_hot() -> None:
    labels = np.array([[0, 2], [1, 1]])
    got = F.one_hot(Tensor(labels), 3)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got.numpy(), np.eye(3)[labels])
    with pytest.raises(ConversionError, match="labels must be integers"):
        F.one_hot(Tensor([0.5]), 3)


def test_indexing_one_hot_ignores_unpicked_infinities() -> None:
    x = np.array([[1.0, np.inf, 3.0], [np.nan, 5.0, 6.0]])
    got = F.indexing_one_hot(Tensor(x), Tensor([2, 1]))
    np.testing.assert_array_equal(got.numpy(), [3.0, 5.0])
    assert F.indexing_one_hot(Tensor(x), Tensor([2, 1]), keepdims=True).shape == (2, 1)
    with pytest.raises(ShapeError, match="the index must have shape"):
        F.indexing_one_hot(Tensor(x), Tensor([2, 1, 0]))


def test_cond_take_and_non_zero() -> None:
    x = np.array([[0.0, 1.0], [2.0, 0.0]])
    t = Tensor(x)
    values, places = F.cond_take(t > 0, t)
    np.testing.assert_array_equal(values.numpy(), [1, 2])
    np.testing.assert_array_equal(places.numpy(), [1, 2])
    np.testing.assert_array_equal(F.non_zero(t).numpy(), np.argwhere(x))
    for got, want in zip(F.non_zero(t, as_tuple=True), np.nonzero(x)):
        np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool"])
def test_large_indexing_and_concatenation_match_numpy(dtype: str) -> None:
    """On memory that was used before: indices from the end, of any shape, along any axis; out of range."""
    rng = np.random.default_rng(4)
    index = rng.integers(-70, 70, (40, 20))
    x = Tensor(rng.standard_normal((300, 70)), dtype=dtype)
    plain = x.numpy()
    np.testing.assert_array_equal(x[index].numpy(), plain[index])
    np.testing.assert_array_equal(x.T[:, index].numpy(), plain.T[:, index])
    for axis in (0, 1):
        joined = np.concatenate([x, x * x, x], axis=axis).numpy()
        np.testing.assert_array_equal(joined, np.concatenate([plain, (x * x).numpy(), plain], axis=axis))
    for bad in (300, -301):
        index[3, 4] = bad
        with pytest.raises(IndexError, match=str(bad)):
            x[index]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("most", [1, 5, 40, 900])
def test_many_values_are_added_to_rows_in_their_order(dtype: str, most: int) -> None:
    """Rows get none, one, a few or hundreds of values; negative ones count from the end."""
    rng = np.random.default_rng(most)
    rows = rng.integers(0, most, (40, 25)) - most // 2
    x = rng.integers(-99, 99, (most + 70, 4, 9)).astype(dtype)
    value = (rng.standard_normal((40, 25, 4, 9)) * 1e3).astype(dtype)
    sums = np.zeros_like(x)
    np.add.at(sums, rows, value)
    result = index_add(Tensor(x, dtype), Tensor(value, dtype), Tensor(rows), axes=(0,), place=0)
    np.testing.assert_array_equal(result.numpy(), x + sums)
