"""Scans with what stands before and after them are one kernel."""

from __future__ import annotations

from functools import partial
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from mgb import Tensor
from mgb.jit import trace
from mgb.ops.scans import decayed_sum

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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("start", [0, 5, 4080])
@pytest.mark.parametrize(
    "factors",
    [
        (1e38, 1e-25, 1e-25, 1e-25, 1e30, 1e7),
        (1e10, 1e25, 1e-25, 1e-25, 1e25, 1.0),  # the product of no other neighbours underflows
        (1e25, 1.0, 1e-22, 1e-22, 1e21, 1e25),  # one of these is subnormal
        (1e30, 1e-20, 1e-20, 0.0, 1e30, 1.0),  # a zero after them
    ],
)
def test_products_of_parts_that_underflow(dtype: str, start: int, factors: tuple[float, ...]) -> None:
    """Check that no element is lost which steps one after the other keep."""
    power = 8 if dtype == "float64" else 1
    x = np.ones((3, 4096), dtype)
    tensor = partial(Tensor, dtype=dtype)
    x[1, start : start + len(factors)] = np.array(factors) ** power
    got = in_one_kernel(lambda x: F.cumprod(F.exp(x * 0) * x, 1) * 1.5, tensor(x))
    np.testing.assert_allclose(got, np.cumprod(x, 1) * 1.5, rtol=1e-5)

    given, decay = np.zeros_like(x), x.copy()
    given[1, start], decay[1, start] = x[1, start], 0.5
    got = in_one_kernel(
        lambda x, d: decayed_sum(F.exp(x * 0) * x, d, axis=1) * 1.5, tensor(given), tensor(decay)
    )
    want, after = np.empty_like(x), np.zeros(3, dtype)
    for i in range(x.shape[1]):
        want[:, i] = after = given[:, i] + decay[:, i] * after
    np.testing.assert_allclose(got, want * 1.5, rtol=1e-5)
