"""The bodies of the transcendental functions, in primitives, against mpmath and the special cases of C."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from mgb.ir import Spec
from mgb.ops import elementwise as el
from mgb.ops.bodies import division
from mgb.ops.bodies import hyperbolic as hyp
from mgb.ops.bodies import transcendental as tr
from mgb.ops.bodies.circular import FAR
from mgb.ops.declare import op_of
from mgb.tensor.tracing import graph_of
from oracle import DTYPES, assert_same, check_gradient, in_words, sample, tensors, ulps

INF = float("inf")


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workprec(300), np.errstate(all="ignore"):
        yield


def _log(base):
    return lambda x: None if x < 0 else -mpmath.inf if x == 0 else mpmath.log(x) / base


def _log1p(x):
    return None if x < -1 else -mpmath.inf if x == -1 else mpmath.log1p(x)


def _circular(function):
    def truth(x):
        with mpmath.workprec(1300):
            return function(x)

    return truth


# function, truth, the range where it is neither overflowing by far nor 0, ULPs
BODIES = [
    (tr.exp, mpmath.exp, (-800, 800), 1),
    (el.exp2, lambda x: mpmath.mpf(2) ** x, (-1100, 1100), 1),
    (el.expm1, mpmath.expm1, (-800, 800), 2),
    (tr.tanh, mpmath.tanh, (-100, 100), 2),
    (tr.log, _log(1), (-INF, INF), 1),
    (el.log1p, _log1p, (-INF, INF), 1),
    (el.log2, _log(mpmath.log(2)), (-INF, INF), 2),
    (el.log10, _log(mpmath.log(10)), (-INF, INF), 2),
    (tr.sin, _circular(mpmath.sin), (-INF, INF), 1),
    (tr.cos, _circular(mpmath.cos), (-INF, INF), 1),
    (tr.erf, mpmath.erf, (-30, 30), 2),
    (hyp.erfc, mpmath.erfc, (-30, 30), 2),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("function", "truth", "interval", "bound"), BODIES)
def test_op_body_is_within_its_ulp_bound(function, truth, interval, bound, dtype):
    x = sample(dtype, *interval)
    got = in_words(op_of(function), *tensors(x)).numpy()
    assert got.dtype == dtype
    error, where = ulps(got[np.isfinite(x)], truth, x[np.isfinite(x)])
    assert error <= bound, (error, where)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", [row[0] for row in BODIES])
def test_op_body_matches_numpy_on_special_values(function, dtype):
    x = np.array([0.0, -0.0, INF, -INF, np.nan, 1, -1, 2, 30, -30], dtype)
    op = op_of(function)
    assert_same(in_words(op, *tensors(x)).numpy(), op.eager(x), 1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sin_and_cos_of_hard_arguments(dtype):
    """The doubles and floats that come nearest to a multiple of pi / 2, and the largest ones."""
    hard = [
        6381956970095103 * 2.0**797,
        16367173 * 2.0**72,
        1e22,
        2.0**30,
        np.pi,
        3 * np.pi / 2,
        np.finfo(dtype).max,
    ]
    x = np.array(hard, np.float64).astype(dtype)
    x = x[np.isfinite(x)]
    for function, truth in ((tr.sin, mpmath.sin), (tr.cos, mpmath.cos)):
        error, where = ulps(in_words(op_of(function), *tensors(x)).numpy(), _circular(truth), x)
        assert error <= 1, (error, where)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("function", "truth", "bound"),
    [(tr.sin, mpmath.sin, 1), (tr.cos, mpmath.cos, 1), (hyp.tan, mpmath.tan, 2)],
)
def test_circular_functions_next_to_multiples_of_half_pi(function, truth, bound, dtype):
    """With one reduction up to `FAR`, with another one from there on."""
    far = FAR[np.dtype(dtype)]
    n = np.unique(np.geomspace(1, 4 * far / np.pi, 300).astype(np.int64))
    middle = np.array([float(k * mpmath.pi / 2) for k in n]).astype(dtype)
    nearest_of_all = 252.89820861816406 if dtype == np.float32 else 5319372.648326541
    ends = np.array([far, nearest_of_all, 2 * nearest_of_all, 0.75, 0.8, np.pi / 4], dtype)
    x = np.concatenate([middle, ends])
    x = np.concatenate([x, np.nextafter(x, dtype(0)), -np.nextafter(x, dtype(INF))])
    error, where = ulps(in_words(op_of(function), *tensors(x)).numpy(), truth, x)
    assert error <= bound, (error, where)


def test_exp_underflows_gradually():
    x = np.array([-87.5, -95, -103, -103.97, -104], np.float32)
    assert_same(
        in_words(op_of(tr.exp), *tensors(x)).numpy(), np.exp(x.astype(np.float64)).astype(np.float32), 0
    )
    x = np.array([-709.0, -730, -745.13, -746])
    error, where = ulps(in_words(op_of(tr.exp), *tensors(x)).numpy(), mpmath.exp, x)
    assert error <= 1, where


@pytest.mark.parametrize("dtype", DTYPES)
def test_exp_of_masked_scores_does_not_underflow(dtype):
    """An operation that underflows takes processors a hundred times as long as one that gives 0."""
    x = np.array([-INF, -1e9, -800.0, 0.0, 3.0, INF, np.nan], dtype)
    assert_same(_without_underflow(op_of(tr.exp), x), np.exp(x), 2 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", [tr.sin, tr.cos, hyp.tan])
def test_powers_of_tiny_angles_do_not_underflow(function, dtype):
    x = np.array([1e-9, -1e-13, 1e-20, 0.0, -0.0, 1e-30, 0.5], dtype)
    assert_same(_without_underflow(op_of(function), x), op_of(function).eager(x), 2 * np.finfo(dtype).eps)


def test_powers_of_tiny_arcs_do_not_underflow():
    x = np.array([1e-9, -1e-13, 0.0, -0.0, 0.5, 1e9, 1e13], np.float32)
    eps = np.finfo(x.dtype).eps
    assert_same(_without_underflow(op_of(hyp.atan), x), np.arctan(x), 2 * eps)
    assert_same(_without_underflow(op_of(tr.atan2), x, np.ones_like(x)), np.arctan(x), 2 * eps)


def _without_underflow(op, *xs):
    def rule(node, *arrays):
        if node.op.name == "const":
            return node.params["value"]
        if node.op.body is not None:
            return _without_underflow(node.op, *arrays)
        with np.errstate(under="raise"):
            return node.op.eager(*arrays, **node.params)

    return graph_of(op.body, *(Spec(x.shape, x.dtype) for x in xs)).fold(rule, xs)[0]


SPECIAL = [
    0.0,
    -0.0,
    INF,
    -INF,
    np.nan,
    1,
    -1,
    2,
    -2,
    3,
    -3,
    0.5,
    -0.5,
    1.5,
    1e30,
    -1e30,
    1e-30,
    2**24 + 1,
    -7,
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", [tr.pow, tr.atan2, el.hypot, division.fmod, el.copysign])
def test_binary_functions_match_numpy_on_special_values(function, dtype):
    a, b = (v.ravel() for v in np.meshgrid(*2 * [np.array(SPECIAL, dtype)]))
    op = op_of(function)
    assert_same(in_words(op, *tensors(a, b)).numpy(), op.eager(a, b), 1e-6)


def _pow(x, y):
    if x == 0:
        return mpmath.mpf(y == 0) if y >= 0 else mpmath.inf
    if x < 0 and mpmath.floor(y) != y:
        return None
    size = y * mpmath.log(abs(x))
    sign = -1 if x < 0 and mpmath.floor(y / 2) != y / 2 else 1
    return sign * (mpmath.inf if size > 1e4 else mpmath.mpf(0) if size < -1e4 else mpmath.exp(size))


@pytest.mark.parametrize("dtype", DTYPES)
def test_pow_is_within_1_ulp(dtype):
    random = np.random.default_rng(0)
    anything = sample(dtype, -INF, INF)
    anything = anything[np.isfinite(anything) & (anything != 0)]
    x = np.concatenate(
        [anything, random.uniform(0, 5, 200), random.uniform(0.9, 1.1, 200), random.uniform(-9, 0, 99)]
    )
    y = [random.permutation(anything), random.uniform(-300, 300, 200), random.uniform(-5e3, 5e3, 200)]
    y = np.concatenate([*y, random.integers(-40, 40, 99)])
    x, y = x.astype(dtype), y.astype(dtype)
    error, where = ulps(in_words(op_of(tr.pow), *tensors(x, y)).numpy(), _pow, x, y)
    assert error <= 1, (error, where)


@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, 1), (np.float64, 2)])
def test_atan2_and_atan_are_within_their_ulp_bounds(dtype, bound):
    """Of numbers of all sizes, then of pairs whose quotient is near the ends of the ranges."""
    random, info = np.random.default_rng(0), np.finfo(dtype)
    y = sample(dtype, -INF, INF)
    y = y[np.isfinite(y) & (y != 0)]
    x = random.permutation(y)
    sizes = 2.0 ** random.uniform(info.minexp - info.nmant + 9, info.maxexp - 2, 400)
    ratios = random.choice([1e-6, 0.2, 0.5, 0.625, 1, 1.6, 2, 5, 1e6], 400) * random.uniform(0.99, 1.01, 400)
    with np.errstate(under="ignore", over="ignore"):
        y = np.concatenate([y, (sizes * np.minimum(ratios, 1)).astype(dtype)])
        x = np.concatenate([x, (sizes / np.maximum(ratios, 1) * random.choice([1, -1], 400)).astype(dtype)])
    kept = y != 0
    y, x = y[kept], x[kept]
    error, where = ulps(in_words(op_of(tr.atan2), *tensors(y, x)).numpy(), mpmath.atan2, y, x)
    assert error <= bound, (error, where)
    both = np.concatenate([y, ratios.astype(dtype), -ratios.astype(dtype)])
    error, where = ulps(in_words(op_of(hyp.atan), *tensors(both)).numpy(), mpmath.atan, both)
    assert error <= bound, (error, where)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_16_bit_floats_are_computed_in_float32(name):
    x = tensors(np.array([0.5, 1, 3, 60], np.float32), dtype=name)
    for function in (tr.exp, tr.log, tr.sin, tr.erf):
        op = op_of(function)
        body = op.body(*x)
        assert body.dtype == x[0].dtype == op.infer(x[0].spec).dtype
        wide = op.eager(x[0].numpy().astype(np.float32)).astype(x[0].dtype)
        np.testing.assert_array_equal(body.numpy(), wide)


X = np.array([-2.5, -1.25, -0.6, -0.1, 0.2, 0.7, 1.3, 2.75])


@pytest.mark.parametrize("function", [tr.exp, tr.sin, tr.cos, tr.tanh, tr.erf, el.exp2, el.expm1, hyp.erfc])
def test_gradients_of_unary_functions(function):
    assert check_gradient(op_of(function), X) == 1


@pytest.mark.parametrize("function", [tr.log, el.log2, el.log10, el.log1p])
def test_gradients_of_logarithms(function):
    assert check_gradient(op_of(function), abs(X)) == 1


def test_gradients_of_binary_functions():
    assert check_gradient(op_of(tr.atan2), X, X[::-1] + 0.05) == 2
    assert check_gradient(op_of(tr.pow), abs(X), X[::-1]) == 2


def test_gradient_of_pow_at_zero_and_negative_bases():
    x, y, g = tensors(np.array([0.0, 0, 0, -2]), np.array([2.0, 1, 0, 3]), np.ones(4))
    dx, dy = op_of(tr.pow).grad(g, tr.pow(x, y), x, y)
    np.testing.assert_array_equal(dx.numpy(), [0, 1, 0, 12])
    np.testing.assert_array_equal(np.isnan(dy.numpy()), [False, False, False, True])


def test_gradient_of_atan2_does_not_overflow():
    y, x, g = tensors(*np.array([[1e200, 1.0], [2e200, 0], [1, 1]]))
    dy, dx = op_of(tr.atan2).grad(g, None, y, x)
    np.testing.assert_allclose(dy.numpy(), [4e-201, 0])
    np.testing.assert_allclose(dx.numpy(), [-2e-201, -1])
