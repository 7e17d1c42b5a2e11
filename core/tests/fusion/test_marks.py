"""One element that is put into each row is a choice in kernels; every value is NumPy's."""

from __future__ import annotations

from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest
from mgb.jit import trace
from mgb.ops.index import scatter_, scatter_add_
from mgb.ops.scatter import scatter_fold
from mgb.transforms import grad, value_and_grad

R = np.random.default_rng(0)


def put(fold: str, x: Any, value: Any, index: Any, axis: int) -> Any:
    if fold == "set":
        return scatter_(x, value, index, axis=axis)
    return scatter_add_(x, value, index, axis=axis) if fold == "sum" else scatter_fold(
        x, value, index, axis=axis, fold=fold
    )  # fmt: skip


def wanted(fold: str, x: Any, value: Any, index: Any, axis: int) -> Any:
    old = np.take_along_axis(x, index, axis)
    new = {"set": lambda a, b: b, "sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}[
        fold
    ](old, value)
    out = x.copy()
    np.put_along_axis(out, index, new, axis)
    return out


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8"])
@pytest.mark.parametrize("fold", ["set", "sum", "max", "min", "prod"])
def test_one_element_of_each_row(fold: str, dtype: str) -> None:
    run = trace(lambda x, v, i, axis: put(fold, x * 2, v, i, axis) + 1)
    for shape, axis in [
        ((300, 10), 1),
        ((10, 300), 0),
        ((40, 7, 30), 1),
        ((5, 4), 1),
        ((1, 9), 1),
        ((700, 300), 1),
    ]:
        x = R.integers(0, 20, shape).astype(dtype)
        row = tuple(1 if a == axis else d for a, d in enumerate(shape))
        value = R.integers(0, 30, row).astype(dtype)
        index = R.integers(-shape[axis], shape[axis], row).astype(np.int32)
        for _ in range(2):
            found = run(mgb.tensor(x, dtype=dtype), mgb.tensor(value, dtype=dtype), mgb.tensor(index), axis)
        np.testing.assert_array_equal(
            found.numpy(), wanted(fold, x * 2, value, index, axis) + x.dtype.type(1)
        )


def test_nan_and_signed_zeros_are_as_in_eager_code() -> None:
    x = np.array([[np.nan, 1, -0.0], [0.0, np.inf, -0.0]] * 200, np.float32)
    value = np.array([[np.nan], [-0.0]] * 200, np.float32)
    index = mgb.tensor(np.full((400, 1), 2, np.int32))
    for fold in ("set", "sum", "max"):
        body = lambda x, v, i, fold=fold: put(fold, x, v, i, 1)  # noqa: E731
        run, given = trace(body), (mgb.tensor(x), mgb.tensor(value), index)
        eager = body(*given).numpy()
        for _ in range(2):
            np.testing.assert_array_equal(run(*given).numpy().view(np.int32), eager.view(np.int32))


@pytest.mark.parametrize("wrong", [10, -11])
def test_an_index_out_of_range_raises(wrong: int) -> None:
    index = np.zeros((300, 1), np.int32)
    run = trace(lambda x, i: scatter_add_(x, x[:, :1], i, axis=1) * 2)
    x = mgb.tensor(R.random((300, 10), np.float32))
    for _ in range(2):
        run(x, mgb.tensor(index))
    index[211] = wrong
    with pytest.raises(IndexError, match=rf"{wrong}.*axis 1.*10"):
        run(x, mgb.tensor(index)).numpy()


def loss(w: Any, x: Any, y: Any) -> Any:
    z = F.matmul(x, w)
    return F.mean(F.logsumexp(z, 1) - F.take_along_axis(z, y[:, None], 1)[:, 0])


@pytest.mark.parametrize("classes", [2, 10, 70])
def test_softmax_regression_matches_numpy(classes: int) -> None:
    x, w = R.normal(size=(600, 5)), R.normal(size=(5, classes))
    y = R.integers(0, classes, 600).astype(np.int32)
    z = x @ w
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    value = -np.log(p[np.arange(600), y]).mean()
    p[np.arange(600), y] -= 1
    given = [mgb.tensor(a.astype(np.float32)) for a in (w, x)]
    run, both = trace(lambda *a: grad(loss)(*a)), trace(lambda *a: value_and_grad(loss)(*a))
    for _ in range(3):
        np.testing.assert_allclose(run(*given, mgb.tensor(y)).numpy(), x.T @ p / 600, rtol=1e-4, atol=1e-6)
        found, slope = both(*given, mgb.tensor(y))
        np.testing.assert_allclose(found.numpy(), value, rtol=1e-5)
        np.testing.assert_allclose(slope.numpy(), x.T @ p / 600, rtol=1e-4, atol=1e-6)
    assert (
        "scatter_add"
        not in str(run.explain(*given, mgb.tensor(y))).split("simplified")[1].split("def run")[1]
    )
