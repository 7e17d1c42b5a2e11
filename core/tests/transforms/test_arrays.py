"""Transformed functions take and give NumPy arrays: SciPy's solvers work on them."""

from __future__ import annotations

from typing import Any

import mgb
import numpy as np
import pytest
from auto_sessions import auto
from mgb.jit import trace
from scipy.optimize import check_grad, minimize, rosen_der, rosen_hess

START = np.array([1.3, 0.7, 0.8, 1.9, 1.2])

#: Methods of `scipy.optimize.minimize` that take a gradient.
METHODS = ["CG", "BFGS", "Newton-CG", "L-BFGS-B", "TNC", "SLSQP", "trust-constr"]


def rosen(x: Any) -> Any:
    """Return Rosenbrock's function, which is 0 where all of `x` are 1."""
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_of_scipy_minimizes_the_rosenbrock_function(method: str, traced: bool) -> None:
    both = mgb.value_and_grad(trace(rosen) if traced else rosen)
    found = minimize(both, START, jac=True, method=method)
    wanted = minimize(lambda x: (rosen(x), rosen_der(x)), START, jac=True, method=method)
    assert found.success
    np.testing.assert_allclose(found.x, 1, atol=1e-3)
    assert found.nit == pytest.approx(wanted.nit, abs=2)  # as with the gradient by hand: in float64


def test_derivatives_are_arrays_of_the_dtype_of_the_arguments() -> None:
    value, slope = mgb.value_and_grad(rosen)(START)
    assert isinstance(value, np.ndarray) and value.dtype == slope.dtype == np.float64
    np.testing.assert_allclose(slope, rosen_der(START), rtol=1e-12)
    np.testing.assert_allclose(mgb.hessian(rosen)(START), rosen_hess(START), rtol=1e-12)
    assert check_grad(rosen, mgb.grad(rosen), START) < 1e-4
    assert mgb.grad(rosen)(START.astype(np.float32)).dtype == np.float32
    slope += 1  # the caller's own


def test_forward_mode_and_vmap_give_arrays() -> None:
    y, dy = mgb.jvp(np.sin, (START,), (np.ones(5),))
    np.testing.assert_allclose(y, np.sin(START), rtol=1e-15)
    np.testing.assert_allclose(dy, np.cos(START), rtol=1e-15)
    rows = np.arange(6).reshape(2, 3)
    sums = mgb.vmap(lambda row: row.sum())(rows)
    assert isinstance(sums, np.ndarray) and sums.dtype == np.int64 and sums.tolist() == [3, 12]


def test_arguments_beside_arrays_stay_what_they_are() -> None:
    def loss(parameters: Any, power: int, name: str) -> Any:
        assert isinstance(name, str)
        return (parameters["w"] ** power).sum()

    found = mgb.grad(loss)({"w": START}, 2, "x")
    np.testing.assert_allclose(found["w"], 2 * START)


def test_tensor_among_the_arguments_gives_tensors() -> None:
    found = mgb.grad(lambda x, y: (x * y).sum())(mgb.tensor(START), START)
    assert isinstance(found, mgb.Tensor) and found.dtype == np.float32


def test_gradient_inside_a_trace_keeps_the_dtype_of_arrays() -> None:
    traced = trace(mgb.value_and_grad(rosen))
    for _ in range(3):
        value, slope = traced(START)
    assert (value.dtype, slope.dtype) == (np.float64, np.float64)
    np.testing.assert_allclose(slope.numpy(), rosen_der(START), rtol=1e-12)
    assert traced.stats()["body_runs"] <= 2


def test_arrays_come_back_where_ops_are_deferred() -> None:
    with auto():
        value, slope = mgb.value_and_grad(rosen)(START)
    assert isinstance(value, np.ndarray) and isinstance(slope, np.ndarray)
    np.testing.assert_allclose(slope, rosen_der(START), rtol=1e-12)
