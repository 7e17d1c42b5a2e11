"""All 86 modes against formulas in NumPy float64: values, gradients, dtypes, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from mgb.autodiff import GradManager
from mgb.errors import ConversionError
from mgb.ops.modes import MODES, Elemwise
from oracle import tensors
from scipy import special

IDS = """
RELU ABS ACOS ASIN CEIL COS EXP EXPM1 FLOOR LOG LOG1P NEGATE SIGMOID SIN TANH ABS_GRAD ADD FLOOR_DIV MAX
MIN MOD MUL POW SIGMOID_GRAD SUB SWITCH_GT0 TANH_GRAD TRUE_DIV LOG_SUM_EXP LT LEQ EQ SHL SHR COND_LEQ_MOV
FUSE_MUL_ADD3 FUSE_MUL_ADD4 FUSE_ADD_RELU FUSE_ADD_SIGMOID FUSE_ADD_TANH FAST_TANH FAST_TANH_GRAD ROUND
RMULH ATAN2 ERF ERFINV ERFC ERFCINV H_SWISH H_SWISH_GRAD FUSE_ADD_H_SWISH NOT AND OR XOR SILU SILU_GRAD
GELU GELU_GRAD COND_LT_MOV NEQ ISNAN ISINF SINH COSH ASINH ACOSH ATANH TAN ASINH_GRAD ACOSH_GRAD
ATANH_GRAD PRELU CLIP PRELU_GRAD SOFTPLUS SOFTPLUS_GRAD RELU6 RELU6_GRAD HSIGMOID HSIGMOID_GRAD
LOGSIGMOID SQRT SQUARE SIGN
""".split()

A = np.array([-3.7, -3.0, -1.5, -0.4, 0.0, 0.3, 0.8, 1.0, 2.5, 3.0, 6.0, 7.2])
B = np.array([0.7, 2.0, -1.5, 0.9, 0.6, -0.8, 0.8, 2.0, -2.5, 3.5, 1.0, 0.45])
C = np.array([1.5, -0.2, 0.3, 2.2, -1.1, 0.1, 0.9, -2.0, 1.2, 0.4, -0.7, 3.0])
D = C[::-1] + 0.1
UNIT, POSITIVE = A / 8, abs(A) + 0.2
I = np.array([-7, -1, 0, 3, 12, 100, -128, 127], np.int32)
J = np.array([3, -2, 5, -4, 7, 1, 2, 3], np.int32)
T, F = np.array([True, True, False, False]), np.array([True, False, True, False])


def sig(x):
    return 1 / (1 + np.exp(-x))


def sigmoid_slope(x):
    return sig(x) * (1 - sig(x))


def density(x):
    return np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


def hswish(x):
    return x * np.minimum(np.maximum(x + 3, 0), 6) / 6


def hswish_slope(x):
    return np.where(x < -3, 0, np.where(x > 3, 1, (2 * x + 3) / 6))


def fast_tanh_slope(x):
    return ((-48 * x * x) / (3 + x * x) + 27 + x * x) / (9 * (3 + x * x))


def erf_slope(x):
    return 2 / np.sqrt(np.pi) * np.exp(-x * x)


def between(x, low, high):
    return np.where((low <= x) & (x <= high), 1, 0)


# mode: inputs, value, then the slope for each input (None: it has none, "": not checked here)
TABLE = {
    "RELU": ([A], lambda x: np.where(x <= 0, 0, x), lambda x: x > 0),
    "ABS": ([A], np.abs, np.sign),
    "ACOS": ([UNIT], np.arccos, lambda x: -1 / np.sqrt(1 - x * x)),
    "ASIN": ([UNIT], np.arcsin, lambda x: 1 / np.sqrt(1 - x * x)),
    "CEIL": ([A], np.ceil, None),
    "COS": ([A], np.cos, lambda x: -np.sin(x)),
    "EXP": ([A], np.exp, np.exp),
    "EXPM1": ([A], np.expm1, np.exp),
    "FLOOR": ([A], np.floor, None),
    "LOG": ([POSITIVE], np.log, lambda x: 1 / x),
    "LOG1P": ([POSITIVE], np.log1p, lambda x: 1 / (x + 1)),
    "NEGATE": ([A], np.negative, lambda x: -np.ones_like(x)),
    "SIGMOID": ([A], sig, sigmoid_slope),
    "SIN": ([A], np.sin, np.cos),
    "TANH": ([A], np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    "ABS_GRAD": ([A, B], lambda x, y: np.where(x > 0, y, -y), None, lambda x, y: np.where(x > 0, 1, -1)),
    "ADD": ([A, B], np.add, lambda x, y: 1 + 0 * x, lambda x, y: 1 + 0 * x),
    "FLOOR_DIV": ([A, B], lambda x, y: np.floor(x / y), None, None),
    "MAX": ([A, B], lambda x, y: np.where(x > y, x, y), lambda x, y: y <= x, lambda x, y: x < y),
    "MIN": ([A, B], lambda x, y: np.where(x < y, x, y), lambda x, y: x <= y, lambda x, y: y < x),
    "MOD": ([A, B], lambda x, y: x - y * np.trunc(x / y), lambda x, y: 1 + 0 * x, ""),
    "MUL": ([A, B], np.multiply, lambda x, y: y, lambda x, y: x),
    "POW": ([POSITIVE, B], np.power, lambda x, y: y * x ** (y - 1), lambda x, y: x**y * np.log(x)),
    "SIGMOID_GRAD": (
        [A, B],
        lambda x, y: x * (1 - x) * y,
        lambda x, y: (1 - 2 * x) * y,
        lambda x, y: x * (1 - x),
    ),
    "SUB": ([A, B], np.subtract, lambda x, y: 1 + 0 * x, lambda x, y: 0 * x - 1),
    "SWITCH_GT0": ([A, B], lambda x, y: np.where(x > 0, y, 0), None, lambda x, y: x > 0),
    "TANH_GRAD": ([A, B], lambda x, y: (1 - x * x) * y, lambda x, y: -2 * x * y, lambda x, y: 1 - x * x),
    "TRUE_DIV": ([A, B], np.divide, lambda x, y: 1 / y, lambda x, y: -x / y**2),
    "LOG_SUM_EXP": (
        [A, B],
        lambda x, y: np.log(np.exp(x) + np.exp(y)),
        lambda x, y: sig(x - y),
        lambda x, y: sig(y - x),
    ),
    "LT": ([A, B], lambda x, y: 1.0 * (x < y), None, None),
    "LEQ": ([A, B], lambda x, y: 1.0 * (x <= y), None, None),
    "EQ": ([A, B], lambda x, y: 1.0 * (x == y), None, None),
    "SHL": ([I, abs(J)], np.left_shift, None, None),
    "SHR": ([I, abs(J)], np.right_shift, None, None),
    "COND_LEQ_MOV": ([A, B, C], lambda x, y, z: np.where(x <= y, z, 0), None, None, lambda x, y, z: x <= y),
    "FUSE_MUL_ADD3": (
        [A, B, C],
        lambda x, y, z: x * y + z,
        lambda x, y, z: y,
        lambda x, y, z: x,
        lambda x, y, z: 1 + 0 * x,
    ),
    "FUSE_MUL_ADD4": (
        [A, B, C, D],
        lambda x, y, z, w: x * y + z * w,
        lambda x, y, z, w: y,
        lambda x, y, z, w: x,
        lambda x, y, z, w: w,
        lambda x, y, z, w: z,
    ),
    "FUSE_ADD_RELU": ([A, B], lambda x, y: np.maximum(x + y, 0), *2 * [lambda x, y: x + y > 0]),
    "FUSE_ADD_SIGMOID": ([A, B], lambda x, y: sig(x + y), *2 * [lambda x, y: sigmoid_slope(x + y)]),
    "FUSE_ADD_TANH": ([A, B], lambda x, y: np.tanh(x + y), *2 * [lambda x, y: 1 - np.tanh(x + y) ** 2]),
    "FAST_TANH": ([A], lambda x: x * (27 + x * x) / (27 + 9 * x * x), fast_tanh_slope),
    "FAST_TANH_GRAD": ([A, B], lambda x, y: y * fast_tanh_slope(x), "", lambda x, y: fast_tanh_slope(x)),
    "ROUND": ([A], lambda x: np.sign(x) * np.floor(abs(x) + 0.5), None),
    "RMULH": ([I << 20, J << 20], lambda x, y: (x.astype(np.int64) * y + (1 << 30)) >> 31, None, None),
    "ATAN2": ([A, B], np.arctan2, lambda x, y: y / (x * x + y * y), lambda x, y: -x / (x * x + y * y)),
    "ERF": ([A], special.erf, erf_slope),
    "ERFINV": ([UNIT], special.erfinv, lambda x: np.exp(special.erfinv(x) ** 2) * np.sqrt(np.pi) / 2),
    "ERFC": ([A], special.erfc, lambda x: -erf_slope(x)),
    "ERFCINV": ([1 + UNIT], special.erfcinv, lambda x: -np.exp(special.erfcinv(x) ** 2) * np.sqrt(np.pi) / 2),
    "H_SWISH": ([A], hswish, hswish_slope),
    "H_SWISH_GRAD": ([A, B], lambda x, y: y * hswish_slope(x), "", lambda x, y: hswish_slope(x)),
    "FUSE_ADD_H_SWISH": ([A, B], lambda x, y: hswish(x + y), *2 * [lambda x, y: hswish_slope(x + y)]),
    "NOT": ([T], np.logical_not, None),
    "AND": ([T, F], np.logical_and, None, None),
    "OR": ([T, F], np.logical_or, None, None),
    "XOR": ([T, F], np.logical_xor, None, None),
    "SILU": ([A], lambda x: x * sig(x), lambda x: sig(x) * (1 + x * (1 - sig(x)))),
    "SILU_GRAD": ([A, B], lambda x, y: y * sig(x) * (1 + x * (1 - sig(x))), "", ""),
    "GELU": ([A], lambda x: x * special.ndtr(x), lambda x: special.ndtr(x) + x * density(x)),
    "GELU_GRAD": ([A, B], lambda x, y: y * (special.ndtr(x) + x * density(x)), "", ""),
    "COND_LT_MOV": ([A, B, C], lambda x, y, z: np.where(x < y, z, 0), None, None, lambda x, y, z: x < y),
    "NEQ": ([A, B], np.not_equal, None, None),
    "ISNAN": ([np.where(A > 0, np.nan, A)], np.isnan, None),
    "ISINF": ([np.where(A > 0, -np.inf, A)], np.isinf, None),
    "SINH": ([A], np.sinh, np.cosh),
    "COSH": ([A], np.cosh, np.sinh),
    "ASINH": ([A], np.arcsinh, lambda x: 1 / np.sqrt(x * x + 1)),
    "ACOSH": ([1 + POSITIVE], np.arccosh, lambda x: 1 / np.sqrt(x * x - 1)),
    "ATANH": ([UNIT], np.arctanh, lambda x: 1 / (1 - x * x)),
    "TAN": ([A], np.tan, lambda x: 1 / np.cos(x) ** 2),
    "ASINH_GRAD": ([A, B], lambda x, y: y / np.sqrt(x * x + 1), "", lambda x, y: 1 / np.sqrt(x * x + 1)),
    "ACOSH_GRAD": (
        [1 + POSITIVE, B],
        lambda x, y: y / np.sqrt(x * x - 1),
        "",
        lambda x, y: 1 / np.sqrt(x * x - 1),
    ),
    "ATANH_GRAD": ([UNIT, B], lambda x, y: y / (1 - x * x), "", lambda x, y: 1 / (1 - x * x)),
    "PRELU": (
        [A, B],
        lambda x, y: np.where(x > 0, x, x * y),
        lambda x, y: np.where(x > 0, 1, y),
        lambda x, y: np.where(-x > 0, x, 0),
    ),
    "CLIP": (
        [A, np.full(12, -1.0), np.full(12, 3.0)],
        lambda x, y, z: np.where(x <= y, y, np.where(x <= z, x, z)),
        between,
        lambda x, y, z: x <= y,
        lambda x, y, z: z <= x,
    ),
    "PRELU_GRAD": ([A, B, C], lambda x, y, z: np.where(x >= 0, y, y * z), "", "", ""),
    "SOFTPLUS": ([A], lambda x: np.log1p(np.exp(-abs(x))) + np.maximum(x, 0), sig),
    "SOFTPLUS_GRAD": ([A, B], lambda x, y: y * sig(x), "", lambda x, y: sig(x)),
    "RELU6": ([A], lambda x: np.clip(x, 0, 6), lambda x: (x > 0) & (x < 6)),
    "RELU6_GRAD": (
        [A, B],
        lambda x, y: np.where((x <= 0) | (x >= 6), 0, y),
        None,
        lambda x, y: (x > 0) & (x < 6),
    ),
    "HSIGMOID": ([A], lambda x: np.clip((x + 3) / 6, 0, 1), lambda x: ((x > -3) & (x < 3)) / 6),
    "HSIGMOID_GRAD": (
        [A, B],
        lambda x, y: np.where(abs(x) >= 3, 0, y / 6),
        "",
        lambda x, y: np.where(abs(x) >= 3, 0, 1 / 6),
    ),
    "LOGSIGMOID": ([A], lambda x: np.log(sig(x)), lambda x: sig(-x)),
    "SQRT": ([POSITIVE], np.sqrt, lambda x: 0.5 / np.sqrt(x)),
    "SQUARE": ([A], np.square, lambda x: 2 * x),
    "SIGN": ([A], np.sign, None),
}

BOOLEAN = {"NEQ", "ISNAN", "ISINF", "NOT", "AND", "OR", "XOR"}


def test_mode_list_is_complete_and_in_id_order():
    assert list(MODES) == IDS and len(IDS) == 86 and set(TABLE) == set(IDS)
    assert [Elemwise(name).id for name in ("RELU", "SIGN")] == [0, 85]


@pytest.mark.parametrize("name", IDS)
def test_value_and_dtype(name):
    arrays, formula, *grads = TABLE[name]
    assert len(arrays) == len(grads) == MODES[name].arity
    out = Elemwise(mode=name)(*tensors(*arrays)).numpy()
    assert out.dtype == (np.bool_ if name in BOOLEAN else arrays[0].dtype)
    np.testing.assert_allclose(out, formula(*arrays), rtol=1e-12, atol=1e-15)
    if arrays[0].dtype == np.float64:
        single = Elemwise(mode=name)(*tensors(*arrays, dtype="float32")).numpy()
        assert single.dtype == (np.bool_ if name in BOOLEAN else np.float32)


@pytest.mark.parametrize("name", [n for n in IDS if TABLE[n][0][0].dtype == np.float64])
def test_gradients(name):
    arrays, _, *formulas = TABLE[name]
    inputs = tensors(*arrays)
    with GradManager().attach(inputs) as manager:
        out = Elemwise(name)(*inputs)
        if all(f is None for f in formulas):
            assert not out._tape
            return
        manager.backward(out, tensors(np.full(out.shape, 2.0))[0])
    for x, formula in zip(inputs, formulas, strict=True):
        if formula is None:
            assert x.grad is None or not x.grad.numpy().any()
        elif formula != "":
            np.testing.assert_allclose(x.grad.numpy(), 2 * formula(*arrays), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("name", [n for n, m in MODES.items() if "I" in m.takes])
def test_integer_inputs_match_numpy(name):
    arity = MODES[name].arity
    arrays = [I, J, I[::-1].copy(), J[::-1].copy()][:arity]
    if name in ("SHL", "SHR"):
        arrays[1] = abs(arrays[1])
    want = {
        "MOD": lambda x, y: x % y,
        "FLOOR_DIV": lambda x, y: x // y,
        "RMULH": lambda x, y: (x.astype(np.int64) * y + (1 << 30)) >> 31,
        "CEIL": lambda x: x,
        "FLOOR": lambda x: x,
        "ROUND": lambda x: x,
    }.get(name, TABLE[name][1])
    out = Elemwise(name)(*tensors(*arrays)).numpy()
    assert out.dtype == (np.bool_ if name in BOOLEAN else np.int32)
    np.testing.assert_array_equal(out, want(*arrays))


@pytest.mark.parametrize("name", [n for n, m in MODES.items() if "i" in m.takes])
def test_integers_become_float32(name):
    arrays = [np.array([0, 1, 1], np.int32), np.array([1, 1, 2], np.int32)][: MODES[name].arity]
    with np.errstate(all="ignore"):
        want = TABLE[name][1](*(a.astype(np.float64) for a in arrays))
    out = Elemwise(name)(*tensors(*arrays)).numpy()
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, want, rtol=1e-6)


@pytest.mark.parametrize("name", [n for n, m in MODES.items() if "B" in m.takes])
def test_bool_inputs_match_numpy(name):
    arrays = [T, F, ~T, F][: MODES[name].arity]
    out = Elemwise(name)(*tensors(*arrays)).numpy()
    want = {"FUSE_MUL_ADD3": (T & F) | ~T, "FUSE_MUL_ADD4": (T & F) | (~T & F)}
    np.testing.assert_array_equal(out, want[name] if name in want else TABLE[name][1](*arrays))
    assert out.dtype == np.bool_


def test_nan_infinity_and_extreme_inputs():
    nan, inf = np.nan, np.inf
    x = tensors(np.array([nan, -inf, inf, -0.0]))[0]
    np.testing.assert_array_equal(Elemwise("SIGN")(x).numpy(), [0, -1, 1, 0])
    np.testing.assert_array_equal(Elemwise("RELU")(x).numpy(), [nan, 0, inf, 0])
    np.testing.assert_array_equal(Elemwise("MAX")(x, 1.0).numpy(), [nan, 1, inf, 1])
    np.testing.assert_array_equal(
        Elemwise("SWITCH_GT0")(tensors(np.array([-1.0, 1]))[0], nan).numpy(), [0, nan]
    )
    low = tensors(np.array([-(2**31)], np.int32))[0]
    assert Elemwise("RMULH")(low, low).numpy() == 2**31 - 1


def test_broadcasting_and_scalars():
    column, row = tensors(np.ones((3, 1), np.float32), np.ones((1, 4), np.float32))
    out = Elemwise("fuse_mul_add3")(column, row, 0.5)
    assert out.shape == (3, 4) and out.dtype == np.float32 and (out.numpy() == 1.5).all()
    assert Elemwise("ADD")(column, [1.0]).shape == (3, 1)
    assert Elemwise("MOD")(7, tensors(np.array([3], np.int32))[0]).numpy() == [1]


def test_mode_names_are_case_insensitive():
    add = Elemwise(mode="add")
    assert add == "ADD" and add == Elemwise("ADD") and add.mode == "ADD" and hash(add) == hash("ADD")
    assert add != "SUB" and add != 3 and Elemwise(add) == add and repr(add) == "Elemwise(mode='ADD')"
    with pytest.raises(ValueError, match=r"did you mean .*RELU"):
        Elemwise("RELLU")


def test_invalid_inputs_raise():
    x, i, b = tensors(np.ones(2), np.ones(2, np.int32), np.ones(2, bool))
    with pytest.raises(TypeError, match="ADD expects 2 inputs; got 1 actually"):
        Elemwise("ADD")(x)
    with pytest.raises(ConversionError, match="unsupport mode SIGMOID for int"):
        Elemwise("SIGMOID")(i)
    with pytest.raises(ConversionError, match="unsupport mode ADD for bool"):
        Elemwise("ADD")(b, b)
    with pytest.raises(ConversionError, match="unsupport mode AND for float"):
        Elemwise("AND")(x, x)
    with pytest.raises(ConversionError, match="elemwise mode SHL does not allow float input"):
        Elemwise("SHL")(x, x)
    with pytest.raises(ValueError, match="bad input shape for polyadic operator"):
        Elemwise("ADD")(x, tensors(np.ones(3))[0])
