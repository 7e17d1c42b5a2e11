"""Products of matrices and vectors are loops of kernels, with what stands before and after them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest
from mgb.jit import trace

R = np.random.default_rng(0)
A, X, Y = R.normal(size=(90, 70)), R.normal(size=70), R.normal(size=90)
BATCH, VECTORS = R.normal(size=(5, 40, 50)), R.normal(size=(5, 1, 40))

CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "rows": (lambda a, x: a @ x, np.matmul, (A, X)),
    "columns": (lambda a, y: y @ a, lambda a, y: y @ a, (A, Y)),
    "columns of a transposed one": (lambda a, y: a.T @ y, lambda a, y: a.T @ y, (A, Y)),
    "rows of a transposed one": (lambda a, x: x @ a.T, lambda a, x: x @ a.T, (A, X)),
    "said to be transposed": (
        lambda a, y: F.matmul(a, y.reshape(-1, 1), transpose_a=True), lambda a, y: a.T @ y[:, None], (A, Y)
    ),
    "both said to be": (
        lambda a, x: F.matmul(x.reshape(-1, 1), a, transpose_a=True, transpose_b=True),
        lambda a, x: x[None] @ a.T, (A, X),
    ),
    "a batch": (lambda b, v: v @ b, lambda b, v: v @ b, (BATCH, VECTORS)),
    "a vector for all": (lambda b, v: b @ v, np.matmul, (BATCH, R.normal(size=(50, 1)))),
    "outer": (
        lambda x, y: F.matmul(x.reshape(-1, 1), y.reshape(1, -1)) + 1, lambda x, y: np.outer(x, y) + 1, (X, Y)
    ),
    "with work around it": (
        lambda a, x, y: F.tanh((a * 2 + 1) @ x + y), lambda a, x, y: np.tanh((a * 2 + 1) @ x + y), (A, X, Y)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_vector_product_makes_no_library_call(name: str, dtype: str) -> None:
    function, numpys, arrays = CASES[name]
    run = trace(function, backend="CPU_LLVM")
    tensors = [mgb.tensor(a, dtype=dtype) for a in arrays]
    want = numpys(*(t.numpy().astype(np.float64) for t in tensors))
    for _ in range(2):
        got = run(*tensors).numpy()
        np.testing.assert_allclose(
            got, want, rtol=0, atol=(1e-5 if dtype == "float32" else 1e-12) * np.abs(want).max()
        )
    text = run.explain(*tensors)
    assert "matmul" not in text[text.index("\nprogram\n") :]


def test_integer_products_wrap() -> None:
    a, x = R.integers(-(2**31), 2**31, (80, 70), np.int32), R.integers(-9, 9, 70, np.int32)
    run = trace(lambda a, x: a @ x, backend="CPU_LLVM")
    np.testing.assert_array_equal(run(mgb.tensor(a), mgb.tensor(x)).numpy(), a @ x)


def test_reused_matrix_product_calls_the_library() -> None:
    run = trace(lambda a, b: a @ b, backend="CPU_LLVM")
    a, b = mgb.tensor(R.normal(size=(30, 20, 1, 64))), mgb.tensor(R.normal(size=(64, 64)))
    np.testing.assert_allclose(run(a, b).numpy(), a.numpy() @ b.numpy(), rtol=1e-4, atol=1e-4)
    text = run.explain(a, b)
    assert "matmul" in text[text.index("\nprogram\n") :]


def test_vector_products_with_other_lengths() -> None:
    run = trace(lambda a, x: (a * 2) @ x + 1, backend="CPU_LLVM")
    for rows, columns in ((90, 70), (33, 500), (1, 8000), (7000, 1), (90, 70)):
        a, x = R.normal(size=(rows, columns)), R.normal(size=columns)
        got = run(mgb.tensor(a, dtype="float64"), mgb.tensor(x, dtype="float64")).numpy()
        np.testing.assert_allclose(got, (a * 2) @ x + 1, rtol=1e-10, atol=1e-10)


def test_weight_gradient_with_its_update_matches_numpy() -> None:
    w, x = R.normal(size=(64, 80)).astype(np.float32), R.normal(size=64).astype(np.float32)
    step = trace(lambda w, x: w - 0.1 * mgb.grad(lambda w: (x @ w).sum())(w), backend="CPU_LLVM")
    got = step(mgb.tensor(w), mgb.tensor(x)).numpy()
    np.testing.assert_allclose(
        got, w - np.float32(0.1) * np.outer(x, np.ones(80, np.float32)), rtol=1e-5, atol=1e-6
    )
