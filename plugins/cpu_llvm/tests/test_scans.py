"""Scans with what stands before and after them are one kernel."""

from __future__ import annotations

from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from mgb import Tensor
from mgb.jit import trace

RNG = np.random.default_rng(0)
TOLERANCE = {"float64": 1e-13, "float32": 1e-6, "float16": 4e-3, "bfloat16": 3e-2}


def in_one_kernel(function: Any, *arrays: Tensor) -> Any:
    """Return what a function gives that is one kernel."""
    traced = trace(function)
    for _ in range(3):
        found = traced(*arrays)
    assert "1 fused groups, 0 ops run eagerly" in str(traced.explain(*arrays))
    return found.numpy()


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("axis", [0, 1])
def test_logarithms_of_running_sums(dtype: str, axis: int) -> None:
    x = RNG.normal(size=(33, 41)) * 20
    x[4, 3:20] = -np.inf
    given = Tensor(x, dtype=dtype)
    got = in_one_kernel(lambda x: F.exp(F.logcumsumexp(x * 0.5, axis) * 0.01), given)
    want = np.exp(np.logaddexp.accumulate(given.numpy().astype(np.float64) * 0.5, axis) * 0.01)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=TOLERANCE[dtype])


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "int32", "int8", "uint8", "int64"]
)
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin"])
@pytest.mark.parametrize("axis", [0, 1])
def test_scans_of_each_dtype(name: str, dtype: str, axis: int) -> None:
    x = Tensor(RNG.integers(1, 3, (6, 19) if axis else (19, 6)), dtype=dtype)

    def function(x: Any) -> Any:
        found = getattr(F, name)(x * 2 - 3, axis)
        return (found[0] if isinstance(found, tuple) else found) * 3

    accumulate = {"cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum}
    got = in_one_kernel(function, x)
    want = accumulate[name].accumulate(x.numpy().astype(np.float64) * 2 - 3, axis) * 3
    if dtype == "uint8":
        want = accumulate[name].accumulate(
            x.numpy() * np.uint8(2) - np.uint8(3), axis, dtype=got.dtype
        ) * got.dtype.type(3)
    np.testing.assert_array_equal(got.astype(np.float64), want)


def test_worst_fall_below_the_maximum_so_far() -> None:
    x = RNG.uniform(-0.03, 0.031, (7, 2520))

    def fall(x: Any) -> Any:
        prices = F.cumprod(1 + x, 1)
        return F.min(prices / F.cummax(prices, 1)[0] - 1, 1, keepdims=True)

    prices = np.cumprod(1 + x, 1)
    want = (prices / np.maximum.accumulate(prices, 1) - 1).min(1, keepdims=True)
    np.testing.assert_allclose(in_one_kernel(fall, Tensor(x, dtype="float32")), want, rtol=1e-4)
