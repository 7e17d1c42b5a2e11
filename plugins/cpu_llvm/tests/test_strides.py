"""Kernels that reach arrays by strides: interleaved, backwards and transposed ones, and what they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb
import numpy as np
import pytest
from mgb.jit import trace

R = np.random.default_rng(7)
DTYPES = ["uint8", "int16", "float16", "int32", "float32", "float64"]


def numbers(dtype: str, *shape: int) -> Any:
    return R.integers(-9, 10, shape).astype(dtype)  # every result is exact


def pairs(x: Any, y: Any) -> Any:
    """Complex products of pairs that lie side by side."""
    a, b, c, d = x[:, 0], x[:, 1], y[:, 0], y[:, 1]
    return np.stack([a * c - b * d, a * d + b * c], axis=1)


def colours(x: Any, y: Any) -> Any:
    """Three interleaved values, apart and together again in another order."""
    r, g, b = (x[:, k] + y[:, k] for k in range(3))
    return np.stack([b, g * r, r - b], axis=1)


def backwards(x: Any, y: Any) -> Any:
    return x[::-1] + y[::-1, ::-1] - x[:, ::-1] * y


def quarters(x: Any, y: Any) -> Any:
    """Every fourth element, one of them backwards."""
    m = x.shape[1] // 4 * 4
    return x[:, :m:4] * y[:, 3:m:4] + x[:, :m][:, ::-4]


def across(x: Any, y: Any) -> Any:
    """One operand lies across the other, forwards and backwards."""
    n = min(x.shape)
    return x[:n, :n] + y[:n, :n].T - x[:n, :n][::-1].T * y[:n, :n][:, ::-1].T


def turned(x: Any, y: Any) -> Any:
    """Axes in another order; two operands lie across the result, one along it."""
    n, m = x.shape
    a, b = x.reshape(1, n, m), y.reshape(1, n, m)
    return np.transpose(a, (0, 2, 1)) * 2 + np.transpose(b, (0, 2, 1)) + a.reshape(1, -1)[:, :1]


def of_rows(x: Any, y: Any) -> Any:
    """Sums along the rows of a transposed operand, and along its columns."""
    return (x.T + y.T * 2).sum(axis=1), (x.T - y.T).max(axis=0)


FUNCTIONS = [pairs, colours, backwards, quarters, across, turned, of_rows]
SHAPES = [(3, 4), (700, 4), (33, 37), (64, 100), (130, 517), (1025, 260), (5000, 5), (2000, 700)]


def check(function: Callable[..., Any], dtype: str, shape: tuple[int, int]) -> None:
    x, y = numbers(dtype, *shape), numbers(dtype, *shape)
    traced = trace(function, backend="cpu_llvm")
    for _ in range(2):
        found = traced(mgb.tensor(x, dtype=dtype), mgb.tensor(y, dtype=dtype))
    is_float = np.issubdtype(x.dtype, np.floating)
    wanted = function(*(a.astype(np.float64) for a in (x, y)) if is_float else (x, y))
    for got, value in zip(*((r if isinstance(r, tuple) else (r,)) for r in (found, wanted)), strict=True):
        np.testing.assert_array_equal(got.numpy(), value.astype(got.numpy().dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_values_match_numpy(function: Callable[..., Any], dtype: str) -> None:
    for shape in SHAPES:
        check(function, dtype, shape)
