"""Every word on every dtype, on the values where implementations differ, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cpu_numba_helpers import run
from mgb.ops import primitives as ops
from mgb.ops import reduce
from mgb.ops.bodies.division import floor_div, mod
from mgb.ops.declare import OPS
from mgb.tensor import Tensor
from mgb.tensor.apply import apply
from mgb_conformance.cases import pairs_of_any_bits

INTEGERS = [f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = ["bool", *INTEGERS, "float16", BFLOAT16, "float32", "float64"]


def integers(dtype: str) -> tuple[Any, Any]:
    info = np.iinfo(dtype)
    edge = [info.min, info.min + 1, -7, -2, -1, 0, 1, 2, 3, 7, info.max - 1, info.max]
    values = np.array([e for e in edge if info.min <= e], dtype)
    a, b = np.meshgrid(values, values)
    return a.ravel(), b.ravel()


def floats(dtype: Any) -> tuple[Any, Any]:
    edge = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        2.5,
        -2.5,
        0.1,
        -0.3,
        3.0,
        7.25,
        1e30,
        1e-30,
        np.inf,
        -np.inf,
        np.nan,
    ]
    with np.errstate(over="ignore"):
        values = np.array(edge).astype(dtype)
    a, b = np.meshgrid(values, values)
    return a.ravel(), b.ravel()


def same(got: Any, want: Any) -> None:
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
    if got.dtype.kind == "f":
        zeros = want == 0
        np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(want[zeros]))


def high_half(a: Any, b: Any) -> list[int]:
    bits = a.dtype.itemsize * 8
    return [(int(x) * int(y)) >> bits for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_and_never_trap(dtype: str) -> None:
    a, b = integers(dtype)
    words = ["add", "sub", "mul", "floor_div", "mod", "maximum", "minimum", "bit_and", "bit_or", "bit_xor"]
    words += ["lt", "le", "eq", "shl", "shr", "mulhi"]
    got = run(
        lambda a, b: [*(apply(OPS[w], a, b) for w in words), ops.neg(a), ops.where(ops.lt(a, b), a, b)],
        a,
        b,
    )
    bits = a.dtype.itemsize * 8
    count = b.astype(object) % bits
    with np.errstate(all="ignore"):
        want = [np.add(a, b), a - b, a * b, a // b, a % b, np.maximum(a, b), np.minimum(a, b),
                a & b, a | b, a ^ b,
                a < b, a <= b, a == b, wrapped(a.astype(object) * 2**count, dtype),
                wrapped(a.astype(object) // 2**count, dtype), wrapped(high_half(a, b), dtype), -a,
                np.where(a < b, a, b)]  # fmt: skip
    for g, w in zip(got, want, strict=True):
        same(g, w)


def wrapped(values: Any, dtype: str) -> Any:
    """Exact integers modulo the width of `dtype`."""
    bits = np.dtype(dtype).itemsize * 8
    return np.array([int(v) % 2**bits for v in values], f"uint{bits}").view(dtype)


def test_mod_and_floor_div_of_any_float_bits() -> None:
    """A million of them, and each special number by each other."""
    a, b = pairs_of_any_bits("float32", 1 << 20)
    with np.errstate(all="ignore"):
        wanted = np.mod(a, b), np.floor_divide(a, b)
    for g, w in zip(run(lambda a, b: (mod(a, b), floor_div(a, b)), a, b), wanted, strict=True):
        same(g, w)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float_ops_match_numpy(dtype: str) -> None:
    a, b = floats(dtype)
    words = ["add", "sub", "mul", "div", "floor_div", "mod", "lt", "le", "eq"]
    unary = ["neg", "floor", "round", "sqrt"]
    got = run(
        lambda a, b: [*(apply(OPS[w], a, b) for w in words), *(getattr(ops, w)(a) for w in unary)], a, b
    )
    with np.errstate(all="ignore"):
        want = [
            a + b,
            a - b,
            a * b,
            a / b,
            a // b,
            a % b,
            a < b,
            a <= b,
            a == b,
            -a,
            np.floor(a),
            np.rint(a),
            np.sqrt(a),
        ]
    for g, w in zip(got, want, strict=True):
        same(g, w)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_maximum_and_minimum_propagate_nan(dtype: str) -> None:
    a, b = floats(dtype)
    got = run(lambda a, b: [ops.maximum(a, b), ops.minimum(a, b), ops.fma(a, b, a)], a, b)
    np.testing.assert_array_equal(got[0], np.maximum(a, b))
    np.testing.assert_array_equal(got[1], np.minimum(a, b))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(got[2], a * b + a, rtol=1e-6)


def test_boolean_ops_match_numpy() -> None:
    a, b = (x.ravel() for x in np.meshgrid([False, True], [False, True]))
    names = [
        "logical_and",
        "logical_or",
        "maximum",
        "minimum",
        "bit_and",
        "bit_or",
        "bit_xor",
        "lt",
        "le",
        "eq",
    ]
    got = run(lambda a, b: [*(getattr(ops, n)(a, b) for n in names), ops.logical_not(a)], a, b)
    want = [a & b, a | b, a | b, a & b, a & b, a | b, a ^ b, a < b, a <= b, a == b, ~a]
    for g, w in zip(got, want, strict=True):
        same(g, w)


@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_casts_match_numpy(source: Any) -> None:
    source = np.dtype(source)
    a = np.arange(-8, 120).astype(source) if source.kind in "iu" else np.linspace(0, 100, 128).astype(source)
    targets = [np.dtype(d) for d in DTYPES]
    got = run(lambda a: [ops.cast(a, dtype=t) for t in targets if t != source], a)
    for g, t in zip(got, [t for t in targets if t != source], strict=True):
        same(g, a.astype(t))


@pytest.mark.parametrize("target", ["float16", BFLOAT16], ids=str)
def test_float64_to_16_bit_cast_rounds_once(target: Any) -> None:
    half = np.arange(0, 2**16, dtype=np.uint16).view(target).astype(np.float64)
    half = np.sort(half[np.isfinite(half)])
    middle = (half[1:] + half[:-1]) / 2
    a = np.concatenate([half, middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)])
    got = run(lambda a: ops.cast(a, dtype=np.dtype(target)), a)[0].astype(np.float64)
    distance = np.abs(got - a)
    index = np.clip(np.searchsorted(half, a), 1, len(half) - 1)
    nearest = np.minimum(np.abs(half[index] - a), np.abs(half[index - 1] - a))
    np.testing.assert_array_equal(distance, nearest)
    ties = a[len(half) : len(half) + len(middle)]
    bits = got[len(half) : len(half) + len(ties)].astype(target).view(np.uint16)
    assert np.all((bits & 1) == 0)


@pytest.mark.parametrize("dtype", ["float16", BFLOAT16], ids=str)
def test_16_bit_floats_survive_load_and_store(dtype: Any) -> None:
    a = np.arange(0, 2**16, dtype=np.uint16).view(dtype)
    (got,) = run(
        lambda a: ops.where(ops.cast(ops.cast(a, dtype=np.dtype("f4")), dtype=np.dtype("?")), a, a), a
    )
    nan = np.isnan(a.astype(np.float32))
    np.testing.assert_array_equal(got.view(np.uint16)[~nan], a.view(np.uint16)[~nan])
    assert np.isnan(got.astype(np.float32)[nan]).all()


def test_bitcasts_preserve_bits() -> None:
    f4, i4 = np.dtype("f4"), np.dtype("i4")
    a = np.array([0.0, -0.0, 1.5, np.inf], "f4")
    bits, back = run(lambda a: [ops.bitcast(a, dtype=i4), ops.bitcast(ops.bitcast(a, dtype=i4), dtype=f4)], a)
    same(bits, a.view("i4"))
    same(back, a)


@pytest.mark.parametrize("axis", [(0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", BFLOAT16, "float32"], ids=str)
def test_reductions_match_numpy(dtype: Any, axis: tuple[int, ...]) -> None:
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, (6, 37)).astype(dtype)
    names = ["reduce_max", "reduce_min"] if dtype.kind == "b" else ["reduce_max", "reduce_min", "reduce_sum"]
    (*got,) = run(lambda x: [getattr(reduce, n)(x, axis=axis) for n in names], x)
    wide = x.astype("f8")
    want = [wide.max(axis, keepdims=True), wide.min(axis, keepdims=True), wide.sum(axis, keepdims=True)]
    for g, w in zip(got, want, strict=False):
        same(g, w.astype(dtype))


def test_reductions_of_an_empty_axis() -> None:
    x = np.zeros((3, 0), "f4")
    got = run(
        lambda x: [getattr(reduce, f"reduce_{n}")(x, axis=(1,)) for n in ("sum", "prod", "max", "min")], x
    )
    assert [g[0, 0] for g in got] == [0, 1, -np.inf, np.inf]
    got = run(
        lambda x: [getattr(reduce, f"reduce_{n}")(x, axis=(0,)) for n in ("sum", "prod", "max", "min")], x.T
    )
    assert [g[0, 0] for g in got] == [0, 1, -np.inf, np.inf]


def test_constants_keep_their_type_and_bits() -> None:
    x = np.zeros(3, "f4")
    values = [np.nan, np.inf, -np.inf, -0.0, 0.1]
    got = run(lambda x: [ops.where(ops.lt(x, 1.0), v, x) for v in values], x)
    for g, v in zip(got, values, strict=True):
        same(g, np.full(3, v, "f4"))
    i = np.zeros(2, "i8")
    (got,) = run(lambda i: i + Tensor(2**62 + 1, dtype="int64"), i)
    assert got[0] == 2**62 + 1
