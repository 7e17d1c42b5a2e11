"""Folds by segments, against NumPy; and how kernels compute them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest
from mgb.errors import ConversionError, ShapeError
from mgb.jit import trace
from mgb.ops.index import index_add
from mgb.ops.scatter import scatter_fold
from mgb.tensor import Tensor
from mgb.transforms import grad

FOLDS: dict[str, tuple[Callable[..., Tensor], np.ufunc, float]] = {
    "sum": (F.segment_sum, np.add, 0.0),
    "prod": (F.segment_prod, np.multiply, 1.0),
    "max": (F.segment_max, np.maximum, -np.inf),
    "min": (F.segment_min, np.minimum, np.inf),
}


def drawn(shape: tuple[int, ...], count: int, seed: int = 0) -> tuple[Any, Any]:
    """Return elements of `shape`, and one of `count` ids for each along its first axis."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0.5, 1.5, shape).astype(np.float32), rng.integers(0, count, shape[0]).astype(np.int32)


def wanted(fold: str, x: Any, ids: Any, count: int) -> Any:
    _, ufunc, nothing = FOLDS[fold]
    out = np.full((count, *x.shape[ids.ndim :]), nothing)
    ufunc.at(out, ids, x.astype(np.float64))
    return out


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("shape", [(7,), (50, 3), (9, 2, 4), (1, 5)])
@pytest.mark.parametrize("fold", FOLDS)
def test_folds_match_numpy(fold: str, shape: tuple[int, ...], traced: bool) -> None:
    x, ids = drawn(shape, 6)
    function = FOLDS[fold][0]
    run = trace(lambda x, ids: function(x, ids, 6)) if traced else lambda x, ids: function(x, ids, 6)
    for _ in range(2):
        found = run(mgb.tensor(x), mgb.tensor(ids))
    np.testing.assert_allclose(found.numpy(), wanted(fold, x, ids, 6), rtol=1e-5)


@pytest.mark.parametrize("ids", [np.zeros((0,), np.int32), np.array([[0, 3], [2, 0], [3, 3]], np.int32)])
def test_ids_may_have_several_axes_or_no_elements(ids: Any) -> None:
    x = np.random.default_rng(0).random((*ids.shape, 5)).astype(np.float32)
    found = F.segment_sum(mgb.tensor(x), mgb.tensor(ids), 4)
    np.testing.assert_allclose(found.numpy(), wanted("sum", x, ids, 4), rtol=1e-5)


def test_the_number_of_segments_is_read_where_it_is_left_out() -> None:
    ids = mgb.tensor([0, 4, 1], dtype="int32")
    assert F.segment_sum(mgb.tensor([1, 2, 3]), ids).tolist() == [1, 3, 0, 0, 2]
    assert F.segment_max(mgb.tensor([1, 2, 3]), mgb.tensor([-1, 1, 1], dtype="int32"), 3).tolist() == [
        np.iinfo(np.int32).min,
        3,
        1,
    ]


def test_arguments_that_do_not_fit_raise() -> None:
    x, ids = mgb.tensor([1.0, 2.0]), mgb.tensor([0, 1], dtype="int32")
    with pytest.raises(IndexError, match="segment_sum: segment_ids must be of an integer type, got float32"):
        F.segment_sum(x, x, 2)
    with pytest.raises(
        ShapeError, match=r"segment_max: segment_ids has the leading axes of inp, got \(2,\) and"
    ):
        F.segment_max(mgb.tensor([1.0]), ids, 2)
    with pytest.raises(ShapeError, match="num_segments must be at least 0, got -1"):
        F.segment_min(x, ids, -1)
    with pytest.raises(ConversionError, match="segment_prod: inp has numbers, got bool"):
        F.segment_prod(x > 1, ids, 2)
    with pytest.raises(IndexError, match="1"):
        F.segment_sum(x, ids, 1).numpy()


@pytest.mark.parametrize("fold", FOLDS)
def test_gradients_match_finite_differences(fold: str, check_gradient: Callable[..., None]) -> None:
    x, ids = drawn((9, 2), 4, seed=3)
    weights = np.array([[2.0], [3.0], [5.0], [7.0]])

    def weighted(t: Tensor) -> Tensor:
        found = FOLDS[fold][0](t, mgb.tensor(ids), 4)
        return F.where(F.isinf(found), 0, found) * Tensor(weights, dtype="float64")

    check_gradient(weighted, x.astype(np.float64))


# in kernels


def folded(function: Callable[..., Any], *arrays: Any) -> tuple[Any, list[str]]:
    """Return what a traced function gives, and the ops of each of its kernels."""
    run, given = trace(function), [mgb.tensor(a, dtype=a.dtype.name) for a in arrays]
    for _ in range(2):
        found = run(*given)
    program = run.explain(*given)
    return found.numpy(), str(program)


@pytest.mark.parametrize("fold", FOLDS)
def test_elements_are_computed_where_they_are_folded(fold: str) -> None:
    x, ids = drawn((100_000,), 70)
    x = (x - 1) * 1e-3 + 1 if fold == "prod" else x
    found, text = folded(lambda x, ids: FOLDS[fold][0](x * x, ids, 70), x, ids)
    np.testing.assert_allclose(found, wanted(fold, x.astype(np.float64) ** 2, ids, 70), rtol=1e-3)
    assert f"scatter_{fold}" in text and "kernel" in text


def test_the_gradient_of_a_look_up_is_folded_by_rows() -> None:
    table, ids = np.random.default_rng(1).random((300, 32)).astype(np.float32), drawn((5000,), 300)[1]

    def gradient(table: Any, ids: Any) -> Any:
        return grad(lambda t: (t[ids] ** 2).sum())(table)

    found, text = folded(gradient, table, ids)
    np.testing.assert_allclose(found, 2 * table * np.bincount(ids, minlength=300)[:, None], rtol=1e-4)
    assert "scatter_sum" in text


def test_what_was_there_before_counts() -> None:
    x, ids = drawn((100_000, 2), 50)
    base = np.random.default_rng(2).random((50, 2)).astype(np.float32)
    put = lambda b, x, ids: index_add(b, x, ids, axes=(0,), place=0)  # noqa: E731
    found, text = folded(put, base, x, ids)
    np.testing.assert_allclose(found, base + wanted("sum", x, ids, 50), rtol=1e-4)
    assert "scatter_sum" in text

    def greatest(b: Any, x: Any, ids: Any) -> Any:
        return scatter_fold(b, x, F.broadcast_to(ids[:, None], x.shape), axis=0, fold="max")

    found, text = folded(greatest, base + 1, x, ids)
    np.testing.assert_allclose(found, np.maximum(base + 1, wanted("max", x, ids, 50)), rtol=1e-6)
    assert "scatter_max" in text


def test_16_bit_floats_are_folded_in_float32() -> None:
    ids = np.zeros(102_400, np.int32)
    x = mgb.tensor(np.full(102_400, 0.25), dtype="float16")
    found = trace(lambda x, ids: F.segment_sum(x, ids, 2))(x, mgb.tensor(ids))
    assert found.dtype == np.float16 and found.tolist() == [25_600.0, 0.0]


def test_an_id_out_of_range_raises_in_a_kernel_and_nothing_is_lost() -> None:
    x, ids = drawn((100_000,), 50)
    run = trace(lambda x, ids: F.segment_sum(x * 2, ids, 50))
    ids[77_777] = 50
    for _ in range(2):
        with pytest.raises(IndexError, match="index 50 is out of bounds for axis 0 with size 50"):
            run(mgb.tensor(x), mgb.tensor(ids)).numpy()
    ids[77_777] = 49
    found = run(mgb.tensor(x), mgb.tensor(ids))
    np.testing.assert_allclose(found.numpy(), 2 * wanted("sum", x, ids, 50), rtol=1e-4)


def test_results_are_the_same_each_time() -> None:
    x, ids = drawn((300_000,), 40)
    run, given = trace(lambda x, ids: F.segment_sum(x, ids, 40)), (mgb.tensor(x), mgb.tensor(ids))
    first = [run(*given).numpy() for _ in range(2)][-1]  # after the call that is recorded, which runs eagerly
    assert all(np.array_equal(run(*given).numpy(), first) for _ in range(20))


def mean_of_cells(p: Any) -> tuple[Any, Any]:
    """Return the mean of the points of each cell, and their number."""
    q = (p * 8.0).astype("int32")
    ids = (q[:, 0] * 8 + q[:, 1]) * 8 + q[:, 2]
    count = F.segment_sum((ids * 0 + 1).astype("float32"), ids, 512)
    return F.segment_sum(p, ids, 512) / F.maximum(count, 1.0)[:, None], count


@pytest.mark.parametrize("count", [60_000, 300, 1])
def test_sums_and_number_of_narrow_rows_are_folded_together(count: int) -> None:
    p = np.random.default_rng(4).random((count, 3), np.float32)
    run = trace(mean_of_cells)
    for _ in range(3):
        mean, number = run(mgb.tensor(p))
    q = (p * np.float32(8)).astype(int)
    ids = (q[:, 0] * 8 + q[:, 1]) * 8 + q[:, 2]
    counted = np.bincount(ids, minlength=512)
    np.testing.assert_array_equal(number.numpy(), counted)
    total = wanted("sum", p, ids, 512)
    np.testing.assert_allclose(mean.numpy(), total / np.maximum(counted, 1)[:, None], rtol=2e-6)
    text = str(run.explain(mgb.tensor(p)))
    assert text.split("def run")[1].count("kernel") == 2  # the folds, and the quotients


def attention(sent: Any, got: Any, source: Any, target: Any) -> Any:
    x = sent[source] + got[target]
    e = F.exp(x - F.segment_max(x, target, 50)[target])
    return e / F.segment_sum(e, target, 50)[target]


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("edges", [1, 900, 50_000])
def test_softmax_over_segments_matches_numpy(edges: int, heads: int) -> None:
    rng = np.random.default_rng(5)
    sent, got = rng.normal(size=(70, heads)), rng.normal(size=(50, heads))
    source, target = rng.integers(0, 70, edges), rng.integers(-50, 50, edges)
    target[target % 50 == 7] = 8  # a segment without elements
    arrays = [sent.astype(np.float32), got.astype(np.float32), source, target]
    run = trace(attention)
    for _ in range(3):
        found = run(*map(mgb.tensor, arrays))
    e = np.exp(sent[source] + got[target])
    np.testing.assert_allclose(found.numpy(), e / wanted("sum", e, target % 50, 50)[target], rtol=2e-5)


@pytest.mark.parametrize("wrong", [50, -51])
def test_an_id_of_narrow_rows_out_of_range_raises(wrong: int) -> None:
    x, ids = drawn((100_000, 3), 50)
    run = trace(lambda x, ids: (F.segment_sum(x, ids, 50), F.segment_max(x * 2, ids, 50)))
    for _ in range(2):
        run(mgb.tensor(x), mgb.tensor(ids))
    ids[77_777] = wrong
    with pytest.raises(IndexError, match=f"index {wrong} is out of bounds for axis 0 with size 50"):
        run(mgb.tensor(x), mgb.tensor(ids))[0].numpy()


def test_narrow_rows_of_nan_integers_and_no_rows() -> None:
    rng = np.random.default_rng(6)
    run = trace(lambda x, ids: tuple(FOLDS[f][0](x, ids, 9) for f in FOLDS))
    whole = trace(lambda x, ids: (F.segment_sum(x, ids, 9), F.segment_sum(x * x, ids, 9)))
    for count in (700, 700, 0, 40):
        ids = rng.integers(0, 8, count).astype(np.int32)
        x = rng.uniform(0.9, 1.1, (count, 2)).astype(np.float32)
        x[:1, 0] = np.nan
        for fold, found in zip(FOLDS, run(mgb.tensor(x), mgb.tensor(ids)), strict=True):
            np.testing.assert_allclose(found.numpy(), wanted(fold, x, ids, 9), rtol=1e-4)
        n = rng.integers(-(1 << 30), 1 << 30, (count, 3)).astype(np.int32)
        for found, values in zip(
            whole(mgb.tensor(n, dtype="int32"), mgb.tensor(ids)), (n, n * n), strict=True
        ):
            out = np.zeros((9, 3), np.int32)
            np.add.at(out, ids, values)
            np.testing.assert_array_equal(found.numpy(), out)


def test_bits_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    x, ids = drawn((200_000, 3), 3000)
    run = trace(lambda x, ids: (F.segment_sum(x, ids, 3000), F.segment_max(x, ids, 3000), x.sum()))
    given = mgb.tensor(x), mgb.tensor(ids)
    run(*given)
    found = []
    for threads in ("1", "2", "3", "7"):
        monkeypatch.setenv("MGB_NUM_THREADS", threads)
        found.append([r.numpy().tobytes() for r in run(*given)])
    assert all(one == found[0] for one in found)
