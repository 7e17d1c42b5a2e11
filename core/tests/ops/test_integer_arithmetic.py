"""Integers stay integers and have NumPy's values: mixed dtypes, powers, shifts, sums."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import product
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb import Tensor, dtypes
from mgb.errors import ConversionError
from mgb.jit import trace
from mgb.module import Module

NAMES = [d.name for d in dtypes.INTEGERS]


def whole(values: Any, dtype: Any) -> Tensor:
    return Tensor(np.array(values, dtype), dtype=dtype)


def same(got: Tensor, want: Any) -> None:
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got.numpy(), want)


@pytest.fixture(params=["eager", "traced"])
def call(request: pytest.FixtureRequest) -> Callable[..., Tensor]:
    """Call a function, in a trace for the second time."""
    if request.param == "eager":
        return lambda function, *args: function(*args)

    def traced(function: Callable[..., Tensor], *args: Tensor) -> Tensor:
        run = trace(function, backend="eager")
        run(*args)
        return run(*args)

    return traced


# mixed dtypes


@pytest.mark.parametrize(("left", "right"), list(product([*NAMES, "bool"], NAMES)))
def test_mixed_integer_dtypes_promote_as_in_numpy(left: str, right: str) -> None:
    a, b = np.array([1, 0, 1], left), np.array([100, 3, 7], right)
    for operation in (np.add, np.multiply, np.maximum, np.bitwise_and, np.left_shift, np.less):
        want_dtype = np.result_type(a, b)
        if want_dtype.kind == "f" and operation in (np.bitwise_and, np.left_shift):
            with pytest.raises(ConversionError, match="no integer holds"):
                operation(whole(a, left), whole(b, right))
        else:
            same(operation(whole(a, left), whole(b, right)), operation(a, b))


def test_bool_with_float_promotes_to_the_float_dtype() -> None:
    for dtype in ("float16", "float32", "float64"):
        assert (Tensor([True]) * Tensor([2.0], dtype=dtype)).dtype == dtype


# powers


@settings(max_examples=100)
@given(st.sampled_from(NAMES), st.lists(st.integers(-128, 255), min_size=3, max_size=3), st.integers(0, 70))
def test_integer_power_wraps(dtype: str, values: list[int], exponent: int) -> None:
    x = np.array(values).astype(dtype)
    modulus, info = 1 << 8 * x.itemsize, np.iinfo(dtype)
    exact = [pow(int(v), exponent, modulus) for v in x]
    want = np.array([v - modulus if v > info.max else v for v in exact], dtype)
    same(whole(x, dtype) ** exponent, want)
    same(F.pow(whole(x, dtype), whole([exponent] * 3, dtype)), want)


def test_powers_match_numpy(call: Callable[..., Tensor]) -> None:
    x, e = whole([3, -2, 1, -1, 0], "int64"), whole([33, 5, 0, 3, 0], "int64")
    same(call(lambda a: a**33, x), x.numpy() ** 33)
    same(call(lambda a: a**0, x), x.numpy() ** 0)
    same(call(lambda a, b: a**b, x, e), x.numpy() ** e.numpy())
    same(call(lambda b: 2**b, e), 2 ** e.numpy())
    same(call(lambda a: np.power(a, [1, 2, 3, 4, 5]), x), np.power(x.numpy(), [1, 2, 3, 4, 5]))
    assert call(lambda a: a**0.5, x).dtype == call(lambda a: a**2.0, x).dtype == np.float32
    same(call(lambda a: a**2, Tensor([True, False])), np.array([1, 0], np.int32))


def test_negative_powers_of_integers(call: Callable[..., Tensor]) -> None:
    x, e = whole([3, -1, -1, 1, 0], "int32"), whole([-1, -3, -2, -7, -1], "int32")
    same(call(lambda a, b: a**b, x, e), np.array([0, -1, 1, 1, 0], np.int32))
    with pytest.raises(ConversionError, match="integers to the power -1 are not integers"):
        call(lambda a: a**-1, x)


# shifts


@pytest.mark.parametrize("dtype", NAMES)
def test_shifts_by_any_count_match_numpy(dtype: str) -> None:
    info, bits = np.iinfo(dtype), 8 * np.dtype(dtype).itemsize
    counts = [
        c for c in (0, 1, bits - 1, bits, bits + 1, -1, info.min, info.max) if info.min <= c <= info.max
    ]
    x = np.array([0, 1, 5, info.max, info.min, info.min // 2 + 3], dtype)
    grid = np.array(counts, dtype)[:, None]
    traced = trace(lambda a, b: (a << b, a >> b), backend="eager")
    for _ in range(2):
        left, right = traced(whole(x, dtype), whole(grid, dtype))
        same(left, x << grid)
        same(right, x >> grid)
    for count in counts:
        same(whole(x, dtype) << count, x << np.array(count, dtype))
        same(np.right_shift(whole(x, dtype), count), x >> np.array(count, dtype))
    same(F.left_shift(Tensor([1]), 32), np.array([0], np.int32))


# sums


@pytest.mark.parametrize("dtype", [*NAMES, "bool"])
def test_integer_sums_and_products_match_numpy(dtype: str, call: Callable[..., Tensor]) -> None:
    x = (np.arange(600).reshape(3, 200) % 120 + 1).astype(dtype)
    t = whole(x, dtype)
    for function in (np.sum, np.prod, np.cumsum, np.cumprod, np.trace, np.add.reduce, np.multiply.accumulate):
        same(call(function, t), function(x))
    same(call(lambda a: a.sum(axis=1, keepdims=True), t), x.sum(axis=1, keepdims=True))
    same(call(lambda a: F.sum(a, 0), t), x.sum(0))
    same(call(lambda a: F.cumprod(a, 1), t), x.cumprod(1))
    same(call(lambda a: np.sum(a, dtype="int8"), t), x.sum(dtype="int8"))
    same(call(lambda a: np.cumsum(a, 1, dtype="int16"), t), x.cumsum(1, dtype="int16"))
    np.testing.assert_allclose(call(np.mean, t).numpy(), x.mean(), rtol=1e-6)


def test_uint8_sum_does_not_overflow() -> None:
    assert Tensor(np.full(100, 200, np.uint8)).sum().item() == 20000


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16"])
def test_tril_and_triu_keep_the_dtype(dtype: str) -> None:
    x = np.ones((3, 3), dtype)
    for function in (np.tril, np.triu):
        same(function(Tensor(x, dtype=dtype), 1), function(x, 1))


@pytest.mark.parametrize("dtype", NAMES)
def test_comparison_accepts_out_of_range_integers(dtype: str, call: Callable[..., Tensor]) -> None:
    info = np.iinfo(dtype)
    x = np.array([info.min, 0, 1, info.max], dtype)
    for number in (info.max + 1, info.min - 1, 2**70, 10**400, -(10**400), info.max):
        for compare in (np.less, np.less_equal, np.equal, np.not_equal, np.greater, np.greater_equal):
            same(call(lambda t, c=compare, n=number: c(t, n), whole(x, dtype)), compare(x, number))
    same(call(lambda t: info.max + 1 > t, whole(x, dtype)), np.ones(4, bool))
    with pytest.raises(ConversionError, match="does not fit"):
        call(lambda t: t + (info.max + 1), whole(x, dtype))


COMPARISONS = (np.less, np.less_equal, np.equal, np.not_equal, np.greater, np.greater_equal)
EDGES = [-(2**63), -(2**53) - 1, -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1]
UNSIGNED = [0, 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]


@pytest.mark.parametrize("signed", ["int8", "int32", "int64"])
def test_signed_and_unsigned_compare_by_exact_value(signed: str, call: Callable[..., Tensor]) -> None:
    info = np.iinfo(signed)
    edges = [v for v in EDGES if info.min <= v <= info.max]
    a, b = np.array(edges, signed)[:, None], np.array(UNSIGNED, np.uint64)
    for compare in COMPARISONS:
        exact = getattr(operator, {np.less: "lt", np.less_equal: "le", np.equal: "eq", np.not_equal: "ne",
                                   np.greater: "gt", np.greater_equal: "ge"}[compare])  # fmt: skip
        want = np.array([[exact(v, w) for w in UNSIGNED] for v in edges])
        same(call(compare, whole(a, signed), whole(b, "uint64")), want)
        mirrored = np.array([[exact(w, v) for w in UNSIGNED] for v in edges])
        same(call(compare, whole(b, "uint64"), whole(a, signed)), mirrored)
    want = np.array([[v < w for w in UNSIGNED] for v in edges])
    same(call(lambda t: np.less(t, b), whole(a, signed)), want)
    same(call(lambda t: np.less(a, t), whole(b, "uint64")), want)


# in place


@pytest.mark.parametrize("name", ["iadd", "isub", "imul", "ifloordiv", "imod", "iand", "ior", "ixor"])
def test_in_place_operators_keep_integer_dtype(name: str, call: Callable[..., Tensor]) -> None:
    in_place = getattr(operator, name)

    def updated(a: Tensor, b: Tensor) -> Tensor:
        target = +a
        assert in_place(target, b) is target
        return target

    a, b = np.array([7, -8, 2**30], np.int32), np.array([3, 5, 2**33 + 1])
    want = in_place(a.copy(), b)
    assert want.dtype == np.int32
    same(call(updated, whole(a, "int32"), whole(b, "int64")), want)


def test_in_place_update_promoting_to_float64_raises() -> None:
    for other in (Tensor([1]), [1], np.array([1])):
        target = whole([5], "uint64")
        with pytest.raises(ConversionError, match="cast one of them with astype"):
            target += other
        same(target, np.array([5], np.uint64))
    target += 1
    same(target, np.array([6], np.uint64))


class Counting(Module):
    """Counts in an int32 Tensor what is above 0."""

    def __init__(self) -> None:
        super().__init__()
        self.count = Tensor([0])

    def forward(self, x: Tensor) -> Tensor:
        self.count += (x > 0).sum()
        return x * 2


@pytest.mark.parametrize("options", [None, {}, {"symbolic": True}, {"without_host": True}], ids=str)
def test_module_counts_in_an_int32_tensor(options: dict[str, Any] | None) -> None:
    module = Counting()
    run = module if options is None else trace(lambda x: module(x), backend="eager", **options)
    for calls in range(1, 4):
        run(Tensor([1.0, -1.0, 2.0]))
        same(module.count, np.array([2 * calls], np.int32))


@pytest.mark.parametrize("fold", [np.sum, np.prod, np.cumsum])
@pytest.mark.parametrize("dtype", [d.name for d in (dtypes.bool_, *dtypes.INTEGERS)])
def test_integer_reductions_widen_as_in_numpy(fold: Callable[..., Any], dtype: str) -> None:
    array = np.array([1, 0, 1], dtype)
    found, want = fold(Tensor(array, dtype=dtype)), fold(array)
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found.numpy(), want)


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize("integer", [d.name for d in dtypes.INTEGERS])
def test_integer_with_16_bit_float_promotes_to_float32(integer: str, half: str) -> None:
    """So 16 bits hold every int8, and 24 digits most others: the rule of MegEngine."""
    number, value = Tensor([3], dtype=integer), Tensor([0.5], dtype=half)
    for result in (number + value, value + number, number * value):
        assert result.dtype == np.float32
