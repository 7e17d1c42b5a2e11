"""Every element-wise sentence against NumPy, SciPy or mpmath; gradients by finite differences."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mgb import dtypes
from mgb.errors import ConversionError
from mgb.ir import Kind, Spec
from mgb.ops import activations as act
from mgb.ops import elementwise as el
from mgb.ops import primitives
from mgb.ops.bodies import division
from mgb.ops.bodies import hyperbolic as hyp
from mgb.ops.bodies.integers import mulhi
from mgb.ops.bodies.rounding import round_to_odd
from mgb.ops.declare import OPS, arity, op_of
from mgb.tensor import Tensor
from mgb.tensor.apply import evaluate
from mgb.tensor.tracing import graph_of
from oracle import DTYPES, assert_same, check_gradient, gradients, in_words, sample, tensors, ulps
from scipy import special

INF, NAN = float("inf"), float("nan")
M = mpmath
X = np.array([-4.5, -2.5, -1.25, -0.6, -0.1, 0.2, 0.7, 1.3, 2.75, 3.5, 6.5])
EDGES = [0.0, -0.0, INF, -INF, NAN, 1, -1, 0.5, -0.5, 1.5, -2.5, 3, 7, 1e30, -1e-30]


@pytest.fixture(autouse=True)
def _quiet():
    with mpmath.workprec(300), np.errstate(all="ignore"):
        yield


def _both(function, *arrays, **params):
    """What the eager rule and what the body in primitives gives."""
    xs = tensors(*arrays)
    return function(*xs, **params).numpy(), in_words(op_of(function), *xs, **params).numpy()


# against mpmath


def _inside(low, high, function):
    return lambda x: function(x) if low <= x <= high else None


def _sigmoid(x):
    return 1 / (1 + M.exp(-x))


def _phi(x):
    return M.erfc(-x / M.sqrt(2)) / 2


def _atanh(x):
    return None if abs(x) > 1 else M.sign(x) * M.inf if abs(x) == 1 else M.atanh(x)


# function, truth, range, ULPs
UNARY = [
    (el.cbrt, lambda x: M.sign(x) * M.cbrt(abs(x)), (-INF, INF), 1),
    (el.rsqrt, lambda x: 1 / M.sqrt(x), (1e-45, INF), 1.5),
    (hyp.tan, M.tan, (-1e4, 1e4), 2),
    (hyp.asin, _inside(-1, 1, M.asin), (-2, 2), 2),
    (hyp.acos, _inside(-1, 1, M.acos), (-2, 2), 2),
    (hyp.atan, M.atan, (-INF, INF), 2),
    (hyp.sinh, M.sinh, (-720, 720), 2),
    (hyp.cosh, M.cosh, (-720, 720), 2),
    (hyp.asinh, M.asinh, (-INF, INF), 2),
    (hyp.acosh, _inside(1, M.inf, M.acosh), (-INF, INF), 2),
    (hyp.atanh, _atanh, (-2, 2), 2),
    (act.sigmoid, _sigmoid, (-800, 800), 2),
    (act.softplus, lambda x: M.log1p(M.exp(x)), (-800, 800), 2),
    (act.logsigmoid, lambda x: -M.log1p(M.exp(-x)), (-800, 800), 2),
    (act.silu, lambda x: x * _sigmoid(x), (-800, 800), 2),
    (act.mish, lambda x: x * M.tanh(M.log1p(M.exp(x))), (-800, 800), 2),
    (act.gelu, lambda x: x * _phi(x), (-39, 80), 2),
    (act.elu, lambda x: x if x > 0 else M.expm1(x), (-INF, INF), 2),
    (act.softsign, lambda x: x / (1 + abs(x)), (-1e30, 1e30), 2),
    (act.tanhshrink, lambda x: x - M.tanh(x), (-100, 100), 9),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("function", "truth", "interval", "bound"), UNARY)
def test_body_against_mpmath(function, truth, interval, bound, dtype):
    x = sample(dtype, *interval)
    x = x[np.isfinite(x)]
    got = in_words(op_of(function), *tensors(x)).numpy()
    with mpmath.workprec(4000 if function is act.tanhshrink else 700):
        error, where = ulps(got, truth, x)
    assert error <= bound, (error, where)


@pytest.mark.parametrize("dtype", DTYPES)
def test_inverse_error_functions(dtype):
    random = np.random.default_rng(0)
    x = np.concatenate([random.uniform(-1, 1, 99), 1 - 10.0 ** random.uniform(-15, -1, 99)]).astype(dtype)
    x = x[abs(x) < 1]

    def erfinv(v):
        y = M.mpf(float(special.erfinv(float(v))))
        for _ in range(5):
            y -= (M.erf(y) - v) * M.sqrt(M.pi) / 2 * M.exp(y * y)
        return y

    error, where = ulps(in_words(op_of(hyp.erfinv), *tensors(x)).numpy(), erfinv, x)
    assert error <= 2, (error, where)
    tiny = -44 if dtype == np.float32 else -305
    q = np.concatenate([random.uniform(0.01, 1.99, 99), 10.0 ** random.uniform(tiny, 0, 99)]).astype(dtype)

    def erfcinv(v):
        y = M.mpf(float(special.erfcinv(float(v))))
        for _ in range(6):
            y += (M.erfc(y) - v) * M.sqrt(M.pi) / 2 * M.exp(y * y)
        return y

    error, where = ulps(in_words(op_of(hyp.erfcinv), *tensors(q)).numpy(), erfcinv, q)
    assert error <= 2, (error, where)
    ends = np.array([0, 1, 2, -1, 3, NAN], dtype)
    np.testing.assert_array_equal(in_words(op_of(hyp.erfcinv), *tensors(ends)).numpy(), special.erfcinv(ends))
    ends = np.array([0, 1, -1, 2, NAN], dtype)
    np.testing.assert_array_equal(in_words(op_of(hyp.erfinv), *tensors(ends)).numpy(), special.erfinv(ends))


def _density(x):
    return M.exp(-x * x / 2) / M.sqrt(2 * M.pi)


def _softplus_tanh(x):
    return M.tanh(M.log1p(M.exp(x)))


# gradient, the terms of its derivative
GRADIENTS = [
    (act.silu_grad, lambda x: (_sigmoid(x), x * _sigmoid(x) * _sigmoid(-x))),
    (act.gelu_grad, lambda x: (_phi(x), x * _density(x))),
    (act.mish_grad, lambda x: (_softplus_tanh(x), x * _sigmoid(x) * (1 - _softplus_tanh(x) ** 2))),
    (lambda x, d: op_of(act.gated).grad(d, None, *tensors(0.7 * np.ones_like(x.numpy())), x)[1],
     lambda x: (0, M.mpf(0.7) * _sigmoid(x) * _sigmoid(-x))),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("gradient", "terms"), GRADIENTS, ids=["silu", "gelu", "mish", "gated"])
def test_gradients_against_mpmath(gradient, terms, dtype):
    """A gradient that crosses 0 is right to the last digits of its larger term."""
    x = sample(dtype, -90, 90)
    tiny = M.mpf(float(np.finfo(dtype).tiny))
    for at, value in zip(x, gradient(*tensors(x, np.ones_like(x))).numpy(), strict=True):
        first, second = terms(M.mpf(float(at)))
        size = max(abs(first), abs(second), tiny)
        assert abs(M.mpf(float(value)) - first - second) <= 8 * float(np.finfo(dtype).eps) * size, at


# against NumPy, special numbers included

NUMPY = [
    (el.gt, np.greater), (el.ge, np.greater_equal), (el.ne, np.not_equal), (el.isnan, np.isnan),
    (el.sign, np.sign),
    (el.isinf, np.isinf), (el.isfinite, np.isfinite), (el.abs, np.abs), (el.signbit, np.signbit),
    (el.ceil, np.ceil), (el.trunc, np.trunc), (el.square, np.square), (el.reciprocal, np.reciprocal),
    (el.logaddexp, np.logaddexp), (el.copysign, np.copysign), (el.hypot, np.hypot), (division.fmod, np.fmod),
    (el.cbrt, np.cbrt), (hyp.tan, np.tan), (hyp.asin, np.arcsin), (hyp.acos, np.arccos),
    (hyp.atan, np.arctan), (hyp.sinh, np.sinh), (hyp.cosh, np.cosh), (hyp.asinh, np.arcsinh),
    (hyp.acosh, np.arccosh), (hyp.atanh, np.arctanh), (act.sigmoid, special.expit),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("function", "truth"), NUMPY)
def test_special_numbers(function, truth, dtype):
    arrays = [np.array(EDGES, dtype)]
    if arity(op_of(function)) == 2:
        arrays = [v.ravel() for v in np.meshgrid(*2 * arrays)]
    want = truth(*arrays)
    for got in _both(function, *arrays):
        assert got.dtype == want.dtype
        assert_same(got, want, 1e-6 if dtype == np.float32 else 1e-14)


# limits at infinity, where a product of 0 and infinity lurks
LIMITS = [
    (act.relu, 0, INF), (act.relu6, 0, 6), (act.elu, -1, INF), (act.celu, -1, INF), (act.sigmoid, 0, 1),
    (act.selu, -1.7580993408473766, INF), (act.silu, 0, INF), (act.gelu, 0, INF), (act.gelu_tanh, 0, INF),
    (act.mish, 0, INF), (act.softplus, 0, INF), (act.logsigmoid, -INF, 0), (act.hsigmoid, 0, 1),
    (act.hswish, 0, INF), (act.softsign, -1, 1), (act.hardtanh, -1, 1), (act.tanhshrink, -INF, INF),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("function", "low", "high"), LIMITS)
def test_limits_of_activations(function, low, high, dtype):
    for got in _both(function, np.array([-INF, INF, NAN], dtype)):
        np.testing.assert_allclose(got, [low, high, NAN], rtol=1e-6)


@pytest.mark.parametrize(("function", "low", "high"), [(act.silu_grad, 0, 1), (act.gelu_grad, 0, 1)])
def test_limits_of_gradients(function, low, high):
    np.testing.assert_allclose(function(*tensors(np.array([-INF, INF])), 1.0).numpy(), [low, high])


def _round_away(x):
    return np.sign(x) * np.floor(abs(x) + 0.5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "truth"),
    [("expm1", np.expm1), ("log1p", np.log1p), ("sinh", np.sinh), ("tanh", np.tanh), ("sin", np.sin)],
)
def test_functions_near_zero_return_their_argument(name, truth, dtype):
    least = np.finfo(dtype).smallest_subnormal
    x = np.array([least, -least, 3 * least, np.finfo(dtype).tiny, -0.0, 1e-30], dtype)
    got = in_words(OPS[name], *tensors(x)).numpy()
    np.testing.assert_array_equal(got, truth(x))
    np.testing.assert_array_equal(np.signbit(got), np.signbit(x))


def test_round_away():
    x = np.array([0.5, -0.5, 1.5, 2.5, -2.5, 0.3, -7.7, 0])
    for got in _both(el.round_away, x):
        np.testing.assert_array_equal(got, _round_away(x))
    hard = np.array([0.49999997, 8388609, -16777215, INF, -INF, NAN], np.float32)
    for got in _both(el.round_away, hard):
        np.testing.assert_array_equal(got, [0, 8388609, -16777215, INF, -INF, NAN])


def test_clip():
    x = np.array([-2, 0.5, 3, NAN, -INF])
    for got in _both(el.clip, x, np.array(-1.0), np.array(1.0)):
        np.testing.assert_array_equal(got, [-1, 0.5, 1, NAN, -1])
    assert el.clip(*tensors(np.array([-3, 9])), 0, 5).numpy().tolist() == [0, 5]


@pytest.mark.parametrize("low", [-1.0, -0.0, 0.0, 2.0, NAN, -INF, INF])
@pytest.mark.parametrize("high", [-1.0, -0.0, 0.0, 1.0, NAN, INF])
def test_eager_clip_matches_its_body_including_signed_zeros(low, high):
    op, x = op_of(el.clip), np.array([-0.0, 0.0, NAN, -NAN, INF, -INF, 0.5, -3, 1e-45], np.float32)
    bounds = [np.array(bound, np.float32) for bound in (low, high)]
    x = np.tile(x, 8)  # vectors of every size, and what they leave over
    found, spelt = op.eager(x, *bounds), op.body(*map(Tensor, (x, *bounds))).numpy()
    np.testing.assert_array_equal(found, spelt)
    known = ~np.isnan(spelt)
    np.testing.assert_array_equal(np.signbit(found)[known], np.signbit(spelt)[known])
    assert not np.shares_memory(found, x)


@pytest.mark.parametrize("factor", [0, 1, 10, 2**32 - 1, 2**32, 2**64 - 1])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 20000)])
def test_mulhi_of_64_bit_integers(shape, factor):
    x = np.random.default_rng(0).integers(0, 2**64, shape, np.uint64)
    found = mulhi(*tensors(x), Tensor(np.uint64(factor), dtype="uint64")).numpy()
    np.testing.assert_array_equal(found.ravel(), np.array([int(n) * factor >> 64 for n in x.flat], np.uint64))
    assert found.shape == shape and found.dtype == np.uint64


@pytest.mark.parametrize("dtype", [d.name for d in dtypes.INTEGERS])
def test_high_half_of_a_product(dtype):
    bounds, rng = np.iinfo(dtype), np.random.default_rng(0)
    some = [bounds.min, bounds.min + 1, -1 % 2**bounds.bits if bounds.min == 0 else -1, 0, 1, 2, bounds.max]
    some += [int(n) for n in rng.integers(bounds.min, bounds.max, 200, dtype, endpoint=True)]
    a, b = (np.array(x, dtype) for x in (some * len(some), [n for n in some for _ in some]))
    high = np.array([x * y >> bounds.bits for x, y in zip(a.tolist(), b.tolist(), strict=True)], dtype)
    op = op_of(mulhi)
    np.testing.assert_array_equal(op.eager(a, b), high)
    np.testing.assert_array_equal(op.body(*tensors(a, b)).numpy(), high)


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_fmod_of_integers_has_the_sign_of_the_dividend(a, b):
    if b == 0:
        return
    want = abs(a) % abs(b) * (-1 if a < 0 else 1)
    for got in _both(division.fmod, np.array(a, np.int32), np.array(b, np.int32)):
        assert got == want


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "uint8", "uint16"])
def test_rmulh(name):
    info = np.iinfo(name)
    digits = info.bits - (info.min < 0)
    random = np.random.default_rng(0)
    a, b = random.integers(info.min, info.max, (2, 200), endpoint=True, dtype=name)
    a[:2], b[:2] = info.min, (info.min, info.max)
    want = [min((int(x) * int(y) + (1 << digits - 1)) >> digits, info.max) for x, y in zip(a, b, strict=True)]
    for got in _both(el.rmulh, a, b):
        assert got.dtype == name
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", [n for n, op in OPS.items() if op.kind is Kind.ELEMENTWISE])
def test_eager_result_does_not_alias_its_operands(name):
    """The plan of a program counts on it: an operand may be overwritten while the result is still read."""
    op, ran = OPS[name], 0
    retypes = name in ("cast", "bitcast")
    for dtype in dtypes.DTYPES:
        params = {"dtype": dtype} if retypes else {}
        for shape in ((), (3,), (2, 3)):
            try:
                given = op.promote([dtype] * arity(op)) if op.promote else [dtype]
                arrays = [np.ones(shape, d) for d in given]
                result = evaluate(op, arrays, params)
            except ConversionError:
                continue
            ran += 1
            assert not any(np.shares_memory(result, a) for a in arrays), (dtype, shape)
    assert ran


@pytest.mark.parametrize("dtype", ["int64", "bool"])
def test_rmulh_rejects_64_bits_and_bool(dtype):
    with pytest.raises(ConversionError, match="at most 32 bits"):
        el.rmulh(*tensors(np.array(1), np.array(2), dtype=dtype))


@pytest.mark.parametrize("name", ["int8", "int32", "uint8", "uint32"])
def test_integers(name):
    low = 0 if name.startswith("u") else -5
    x = np.array([low, 0, 3, 100], name)
    truths = {el.abs: np.abs, el.sign: np.sign, el.bit_not: np.invert, el.signbit: np.signbit}
    for function, truth in truths.items():
        for got in _both(function, x):
            np.testing.assert_array_equal(got, truth(x))
            assert got.dtype == truth(x).dtype


def test_logic():
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    for got in _both(el.logical_xor, a, b):
        np.testing.assert_array_equal(got, a ^ b)
    for got in _both(el.bit_not, a):
        np.testing.assert_array_equal(got, ~a)


def test_isclose():
    a, b = np.array([1, 1, INF, INF, NAN]), np.array([1 + 1e-6, 1.1, INF, 1, NAN])
    for equal_nan in (False, True):
        for got in _both(el.isclose, a, b, equal_nan=equal_nan):
            np.testing.assert_array_equal(got, np.isclose(a, b, equal_nan=equal_nan))


def test_lerp_is_exact_at_both_ends():
    a, b = np.array([0.1, 1e16, -3]), np.array([0.7, -1, 1e-9])
    for t, want in ((0.0, a), (1.0, b)):
        for got in _both(el.lerp, a, b, np.array(t)):
            np.testing.assert_array_equal(got, want)


SIGMOID = special.expit
FORMULAS = [
    (act.relu, lambda x: np.maximum(x, 0), {}),
    (act.relu6, lambda x: np.clip(x, 0, 6), {}),
    (act.leaky_relu, lambda x: np.where(x > 0, x, 0.1 * x), {"negative_slope": 0.1}),
    (act.hardtanh, lambda x: np.clip(x, -2, 3), {"low": -2.0, "high": 3.0}),
    (act.elu, lambda x: np.where(x > 0, x, 1.5 * np.expm1(x)), {"alpha": 1.5}),
    (act.celu, lambda x: np.where(x > 0, x, 1.5 * np.expm1(x / 1.5)), {"alpha": 1.5}),
    (act.selu, lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)), {}),
    (act.hsigmoid, lambda x: np.clip(x + 3, 0, 6) / 6, {}),
    (act.hswish, lambda x: x * np.clip(x + 3, 0, 6) / 6, {}),
    (act.silu, lambda x: x * SIGMOID(x), {}),
    (act.gelu, lambda x: x * special.ndtr(x), {}),
    (act.gelu_tanh, lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))), {}),
    (act.softplus, lambda x: np.log1p(np.exp(x)), {}),
    (act.logsigmoid, lambda x: -np.log1p(np.exp(-x)), {}),
    (act.mish, lambda x: x * np.tanh(np.log1p(np.exp(x))), {}),
    (act.softsign, lambda x: x / (1 + abs(x)), {}),
    (act.fast_tanh, lambda x: x * (27 + x**2) / (27 + 9 * x**2), {}),
    (act.tanhshrink, lambda x: x - np.tanh(x), {}),
]


@pytest.mark.parametrize(("function", "formula", "params"), FORMULAS)
def test_activations_and_their_gradients(function, formula, params):
    for got in _both(function, X, **params):
        np.testing.assert_allclose(got, formula(X), rtol=1e-12, atol=1e-16)  # 1 + tanh(x) cancels there
    assert check_gradient(op_of(function), X, **params) == 1


SMOOTH = [
    (el.abs, [X]), (el.square, [X]), (el.reciprocal, [X]), (el.rsqrt, [abs(X)]), (el.cbrt, [X]),
    (el.hypot, [X, X[::-1]]), (el.logaddexp, [X, X[::-1] + 0.3]), (el.copysign, [X, X[::-1]]),
    (el.fma3, [X, X + 1, X - 1]), (el.lerp, [X, X + 1, X / 3]), (el.fma4, [X, X + 1, X - 1, X * 2]),
    (el.clip, [X, np.array(-1.0), np.array(2.0)]), (division.fmod, [X, np.array(0.97)]),
    (el.switch_gt0, [X, X]), (el.abs_grad, [X, X]), (el.cond_le_mov, [X, X[::-1], X]),
    (el.cond_lt_mov, [X, X[::-1], X]), (hyp.tan, [X]), (hyp.asin, [X / 7]), (hyp.acos, [X / 7]),
    (hyp.atan, [X]), (hyp.sinh, [X]), (hyp.cosh, [X]), (hyp.asinh, [X]), (hyp.acosh, [1.1 + abs(X)]),
    (hyp.atanh, [X / 7]), (hyp.erfinv, [X / 7]), (hyp.erfcinv, [1 + X / 7]), (hyp.asinh_grad, [X, X]),
    (hyp.acosh_grad, [2 + abs(X), X]), (hyp.atanh_grad, [X / 7, X]), (act.prelu, [X, np.array(0.2)]),
    (act.prelu_grad, [X, X + 1, X / 3]), (act.sigmoid, [X]), (act.sigmoid_grad, [X, X]),
    (act.tanh_grad, [X, X]), (act.silu_grad, [X, X]), (act.gelu_grad, [X, X]),
    (act.softplus_grad, [X, X]), (act.gated, [X, X[::-1]]), (act.mish_grad, [X, X]),
    (act.hswish_grad, [X, X]), (act.hsigmoid_grad, [X, X]),
    (act.relu6_grad, [X, X]), (act.fast_tanh_grad, [X, X]),
]  # fmt: skip


@pytest.mark.parametrize(("function", "inputs"), SMOOTH)
def test_gradients(function, inputs):
    assert check_gradient(op_of(function), *inputs) >= 1


def test_gradients_of_large_inputs_do_not_vanish():
    x, d = tensors(np.array([3e30], np.float32), np.ones(1, np.float32))
    for function in (hyp.asinh_grad, hyp.acosh_grad):
        np.testing.assert_allclose(function(x, d).numpy(), [1 / 3e30], rtol=1e-6)


def test_gradients_at_corners():
    zero, one = tensors(np.zeros(1), np.ones(1))
    corners = [(act.relu, 0), (el.abs, 0), (act.hsigmoid, 1 / 6), (act.hswish, 0.5), (act.leaky_relu, 0.01)]
    for function, want in corners:
        assert gradients(op_of(function), [zero], one)[0].numpy() == [want]


def test_relu_gradient_needs_only_its_result():
    op = op_of(act.relu)
    y, g = tensors(np.array([0.0, 2]), np.ones(2))
    assert op.grad(g, y, y.spec)[0].numpy().tolist() == [0, 1]


def _composites(dtype):
    """Every op with a body whose operands may have `dtype`, and the dtypes that they then get; no casts."""
    for op in list(OPS.values()):
        if op.kind is not Kind.ELEMENTWISE or op.body is None or op is op_of(round_to_odd):
            continue
        try:
            promoted = op.promote([dtype] * arity(op))
        except ConversionError:
            continue
        if dtype in promoted or (dtypes.float32 in promoted and dtype.kind in "iu"):
            yield op, promoted


def test_bodies_of_float64_compute_in_float64():
    """Two Python floats alone are float32: ``where(c, 3.08, 5.35)`` would lose half of their digits."""
    for op, promoted in _composites(dtypes.float64):
        graph = graph_of(op.body, *(Spec((2,), d) for d in promoted))
        assert not [node for node in graph.nodes if node.spec.dtype == dtypes.float32], op


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float64", "int32", "uint8"])
def test_every_composite_has_a_dtype(name):
    for op, promoted in _composites(getattr(dtypes, name)):
        out = op.infer(*(Spec((2,), d) for d in promoted)).dtype
        assert out in (promoted[-1], dtypes.bool_), (op, out)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("turned", [False, True])
def test_gelu_of_many_elements_is_that_of_each(dtype, turned):
    """Eagerly they are computed in blocks."""
    rng = np.random.default_rng(0)
    x, g = (rng.uniform(-40, 40, (150, 143)).astype(dtype) for _ in range(2))
    x = x.T.copy().T if turned else x
    many = act.gelu(Tensor(x)).numpy(), act.gelu_grad(Tensor(x), Tensor(g)).numpy()
    for row in range(0, 150, 29):
        np.testing.assert_array_equal(many[0][row], act.gelu(Tensor(x[row])).numpy())
        np.testing.assert_array_equal(many[1][row], act.gelu_grad(Tensor(x[row]), Tensor(g[row])).numpy())
    if dtype == np.float32:  # float64 is compared with mpmath
        np.testing.assert_allclose(many[0], x * special.ndtr(x.astype(float)), rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint64", "int16", "bool"])
@pytest.mark.parametrize("turned", [False, True])
def test_choices_among_many_elements_keep_every_bit(dtype, turned):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 256, (150, 143, 8), np.uint8).view(np.uint64)[..., 0] for _ in range(2))
    a, b = ((v & 1).astype(bool) if dtype == "bool" else v.astype(f"u{np.dtype(dtype).itemsize}").view(dtype)
            for v in (a, b))  # fmt: skip
    chosen = rng.random(a.shape) < 0.5
    a, chosen = (a.T.copy().T, chosen.T.copy().T) if turned else (a, chosen)
    one = a[3, 4:5].reshape(())
    for first, second in ((a, b), (a, one), (one, b), (a, b[:1])):
        wanted = np.where(chosen, first, second)
        found = primitives.where(Tensor(chosen), Tensor(first, dtype), Tensor(second, dtype)).numpy()
        assert found.dtype == dtype and found.tobytes() == wanted.tobytes()
