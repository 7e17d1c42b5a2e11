"""Derivatives up to the third order, against mpmath's and, in the long run, against JAX's.

The points are random ones and those where formulas of gradients go wrong when they are differentiated again:
ties, zeros, the ends of domains, saturation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import mgb
import mgb.functional as F
import mpmath as mp
import numpy as np
import pytest
from mgb.jit import trace
from smooth_functions import CURVES
from smooth_surfaces import SURFACES
from transform_functions import FORWARD, FUNCTIONS, X

Function = Callable[[Any], Any]
ORDERS = (1, 2, 3)
#: What has factors, distances or extremes that are 0 or equal at some of its points.
QUICK = {
    "cumprod", "hypot", "huber_loss of both", "logaddexp", "logcumsumexp", "logsumexp", "nanvar", "norm",
    "power", "prod", "prod along columns", "softmax",
}  # fmt: skip
SURFACE_CASES = [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in SURFACES]


def double(array: Any) -> Any:
    return mgb.tensor(np.asarray(array), dtype="float64")


# of one number


def _by_grad(function: Function, order: int) -> Function:
    """The derivative of each element, by gradients of gradients."""
    for _ in range(order):
        function = mgb.grad(lambda x, f=function: f(x).sum())
    return function


def _by_jvp(function: Function, order: int) -> Function:
    """The same, by directional derivatives of the gradient."""
    function = _by_grad(function, 1)
    for _ in range(order - 1):
        function = lambda x, f=function: mgb.jvp(f, (x,), (x * 0 + 1,))[1]  # noqa: E731
    return function


def _by_vmap(function: Function, order: int) -> Function:
    """The same, of one number, for all at once."""
    return mgb.vmap(_by_grad(function, order))


WAYS = {"grad of grad": _by_grad, "jvp of grad": _by_jvp, "vmap of grad": _by_vmap}


@lru_cache(maxsize=1000)
def _derivatives(name: str, order: int) -> np.ndarray:
    curve = CURVES[name]
    with mp.workdps(100):
        steps = [mp.diff(curve.theirs, mp.mpf(x), order, h=mp.mpf(10) ** -20) for x in curve.points]
        return np.array([float(mp.re(x)) for x in steps])


def _check_curve(name: str, change: Callable[[Function], Function], ways: Any) -> None:
    for order, way in itertools.product(ORDERS, ways):
        found = change(WAYS[way](CURVES[name].ours, order))(double(CURVES[name].points)).numpy()
        wanted, message = _derivatives(name, order), f"{way}, order {order}"
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12, err_msg=message)


@pytest.mark.parametrize("name", CURVES)
def test_derivatives_of_functions_of_one_number_match_mpmath(name: str) -> None:
    _check_curve(name, lambda f: f, WAYS if name in ("x ** 3", "i0") else ("grad of grad", "jvp of grad"))


@pytest.mark.slow
@pytest.mark.parametrize("name", CURVES)
def test_traced_derivatives_of_functions_of_one_number_match_mpmath(name: str) -> None:
    _check_curve(name, trace, WAYS)


# of several numbers


def _weights(count: int) -> list[float]:
    return [0.3 + 0.45 * i * (-1) ** i for i in range(count)]


def _total(function: Function) -> Function:
    """One number made of all results, in which no two count the same."""

    def total(x: Any) -> Any:
        y = function(x)
        return (y.reshape(-1) * np.array(_weights(math.prod(y.shape)))).sum() if y.ndim else y

    return total


@lru_cache(maxsize=1000)
def _partial_derivatives(name: str, point: tuple[float, ...], order: int) -> np.ndarray:
    def total(*xs: Any) -> Any:
        y = SURFACES[name].theirs(list(xs))
        return mp.fdot(zip(y, _weights(len(y)))) if isinstance(y, list) else y

    out = np.zeros((len(point),) * order)
    with mp.workdps(80):
        at = tuple(map(mp.mpf, point))
        for places in itertools.combinations_with_replacement(range(len(point)), order):
            orders = tuple(map(places.count, range(len(point))))
            slope = float(mp.re(mp.diff(total, at, orders, h=mp.mpf(10) ** -15)))
            for place in itertools.permutations(places):
                out[place] = slope
    return out


MATRICES: dict[str, tuple[int, Callable[[Function], Function]]] = {
    "grad": (1, mgb.grad),
    "hessian": (2, mgb.hessian),
    "jacrev of grad": (2, lambda f: mgb.jacrev(mgb.grad(f))),
    "jacrev of jacrev of grad": (3, lambda f: mgb.jacrev(mgb.jacrev(mgb.grad(f)))),
    "jacfwd of hessian": (3, lambda f: mgb.jacfwd(mgb.hessian(f))),
}


def _check_surface(name: str, transforms: Any, change: Callable[[Function], Function] = lambda f: f) -> None:
    surface = SURFACES[name]
    for transform in transforms:
        order, make = MATRICES[transform]
        function = change(make(_total(surface.ours)))
        for point in surface.points:
            wanted = _partial_derivatives(name, point, order)
            scale = max(1.0, np.abs(wanted).max())
            found, message = function(double(point)).numpy(), f"{transform} at {point}"
            np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-10 * scale, err_msg=message)


@pytest.mark.parametrize("name", SURFACE_CASES)
def test_derivatives_of_functions_of_a_vector_match_mpmath(name: str) -> None:
    _check_surface(name, MATRICES)


@pytest.mark.parametrize("name", [pytest.param("prod"), *(pytest.param(n, marks=pytest.mark.slow)
                                                          for n in SURFACES if n != "prod")])  # fmt: skip
def test_traced_derivatives_of_functions_of_a_vector_match_mpmath(name: str) -> None:
    _check_surface(name, ("hessian", "jacrev of grad"), trace)


@pytest.mark.parametrize("name", SURFACE_CASES)
def test_hessians_of_many_vectors_at_once_match_mpmath(name: str) -> None:
    for count, points in itertools.groupby(sorted(SURFACES[name].points, key=len), len):
        rows = list(points)
        found = mgb.vmap(mgb.hessian(_total(SURFACES[name].ours)))(double(rows)).numpy()
        assert found.shape == (len(rows), count, count)
        for row, hessian in zip(rows, found, strict=True):
            wanted = _partial_derivatives(name, row, 2)
            scale = max(1.0, np.abs(wanted).max())
            np.testing.assert_allclose(hessian, wanted, rtol=1e-8, atol=1e-10 * scale, err_msg=str(row))


# closed forms


@pytest.mark.parametrize("change", [lambda f: f, trace], ids=["eager", "traced"])
def test_powers_have_all_derivatives_at_0(change: Any) -> None:
    """Also those beyond the exponent, which are 0."""
    points = np.array([-1.5, -0.0, 0.0, 2.0, 1e-200])
    for n, order in itertools.product(range(4), range(1, 6)):
        wanted = [math.perm(n, order) * x ** (n - order) if order <= n else 0.0 for x in points]
        for power in (n, float(n), double(n), double(np.full(5, n))):
            found = change(_by_grad(lambda x, p=power: x**p, order))(double(points)).numpy()
            np.testing.assert_allclose(found, wanted, rtol=1e-12, err_msg=f"{power!r}, order {order}")


def test_polynomial_of_a_vector_of_powers_has_all_derivatives_at_0() -> None:
    coefficients, powers = double([5.0, 7.0, 2.0, 3.0]), double(np.arange(4.0))
    slopes = [
        _by_grad(lambda x: (coefficients * x**powers).sum(), k)(double(0.0)).item() for k in range(1, 6)
    ]
    assert slopes == [7.0, 4.0, 18.0, 0.0, 0.0]


def test_fourth_derivative_of_a_product_of_four_zeros_is_1() -> None:
    function: Function = F.prod
    for i in range(4):
        function = lambda x, f=function, i=i: mgb.grad(f)(x)[i]  # noqa: E731
    assert function(double(np.zeros(4))).item() == 1


def test_gradient_of_a_product_that_underflows_is_the_product_of_the_others() -> None:
    found = mgb.grad(F.prod)(double([1e-200, 1e-200, 2.0])).numpy()
    np.testing.assert_allclose(found, [2e-200, 2e-200, 0.0], rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex128"])
def test_gradient_of_a_product_has_the_dtype_of_its_operand(dtype: str) -> None:
    x = mgb.tensor(np.array([[2.0, 0.0], [3.0, 4.0]]), dtype=dtype)
    found = mgb.grad(lambda x: abs(F.prod(x, (0, 1)) + F.prod(x, 0).sum()))(x)
    assert found.dtype == x.dtype
    np.testing.assert_allclose(np.asarray(found.numpy(), complex).real, [[3.0, 28.0], [2.0, 0.0]], rtol=1e-2)


# by JAX

#: A random point, one with ties, one with zeros.
POINTS = {
    "random": X,
    "ties": np.array([[0.5, 0.5, 1.0], [1.0, 0.5, 0.5], [0.5, 1.0, 1.0]]),
    "zeros": np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 2.0], [0.5, 0.0, 1.0]]),
}
DIRECTION = np.random.default_rng(9).normal(size=(3, 3))
#: Why JAX does not judge there; what is right at a corner or at the end of a domain is a convention.
NOT_JUDGED = {
    ("cbrt", "zeros"): "the slope at 0 is infinite",
    ("arccosh", "zeros"): "the slope at 1 is infinite",
    ("power", "zeros"): "slopes of powers of 0 with exponents below 1 are infinite",
    ("float_power", "zeros"): "as power",
    ("hypot", "ties"): "JAX's is made of a maximum, whose tie loses curvature; ours is right by mpmath",
    ("hypot", "zeros"): "as with ties",
    ("nanstd with holes", "zeros"): "a root of 0",
    **{(name, point): "a corner of the order" for name in ("quantile", "percentile") for point in POINTS
       if point != "random"},
    ("corrcoef", "ties"): "JAX's is cut off at -1 and 1, and there is 0.5 of the slope",
    ("corrcoef", "zeros"): "as with ties",
    ("vander", "zeros"): "JAX gives NaN; ours is right by mpmath",
    ("det", "zeros"): "second derivatives of singular matrices are refused",
    ("qr", "zeros"): "a corner of abs",
    ("norm of order 3", "zeros"): "the third derivative of abs(x)**3 jumps at 0",
}  # fmt: skip


def _along(module: Any, function: Function, order: int, direction: Any) -> Function:
    """The derivative of the gradient along a direction, again and again."""
    out = module.grad(lambda x: function(x).sum())
    for _ in range(order - 1):
        out = lambda x, f=out: module.jvp(f, (x,), (direction,))[1]  # noqa: E731
    return out


def _pulled(function: Function, order: int, direction: Any) -> Function:
    """The same by gradients alone."""
    out = mgb.grad(lambda x: function(x).sum())
    for _ in range(order - 1):
        out = mgb.grad(lambda x, f=out: (f(x) * direction).sum())
    return out


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in FORWARD])
def test_second_and_third_derivatives_match_jax(name: str, point: str) -> None:
    jax = pytest.importorskip("jax")
    if (name, point) in NOT_JUDGED:
        pytest.skip(NOT_JUDGED[name, point])
    array, function = POINTS[point], FUNCTIONS[name]
    for order in (2, 3):
        with jax.enable_x64(True):
            theirs = _along(jax, lambda x: function(jax.numpy, x) * 1.0, order, jax.numpy.asarray(DIRECTION))
            wanted = np.asarray(theirs(jax.numpy.asarray(array)))
        scale = max(1.0, np.abs(wanted[np.isfinite(wanted)]).max(initial=0))
        ours = lambda x: function(np, x) * 1.0  # noqa: E731
        for found in (_along(mgb, ours, order, double(DIRECTION)), _pulled(ours, order, double(DIRECTION))):
            np.testing.assert_allclose(found(double(array)).numpy(), wanted, rtol=1e-6, atol=1e-8 * scale)
