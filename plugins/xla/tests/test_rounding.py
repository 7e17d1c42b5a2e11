"""Each operation rounds once, as IEEE says and NumPy does, whatever XLA and LLVM would make of several."""

from __future__ import annotations

import platform
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mgb import functional as F
from mgb.ops.bodies.division import floor_div, mod
from mgb.ops.primitives import fma, neg
from mgb_conformance.cases import pairs_of_any_bits
from xla_helpers import new_process, program

Function = Callable[..., Any]

#: The same text for Tensors and for NumPy: `c` makes a constant, `sqrt` a square root.
FORMULAS: dict[str, Callable[[Any, Any], Function]] = {
    "quotient by a row": lambda c, sqrt: lambda a, b, r: a / r,
    "quotient of a row": lambda c, sqrt: lambda a, b, r: r / a,
    "quotient by a formula of a row": lambda c, sqrt: lambda a, b, r: a / ((c(1) - r) * (c(1) + r)),
    "quotient by a constant": lambda c, sqrt: lambda a, b, r: a / c(3),
    "quotient of a constant": lambda c, sqrt: lambda a, b, r: c(3) / r + a,
    "inverse root": lambda c, sqrt: lambda a, b, r: c(1) / sqrt(a * a + c(1)),
    "quotient by a root of a row": lambda c, sqrt: lambda a, b, r: a / sqrt(r * r + c(1)),
    "product and sum": lambda c, sqrt: lambda a, b, r: a * b + r,
    "difference of products": lambda c, sqrt: lambda a, b, r: a * b - r * a,
    "descent": lambda c, sqrt: lambda a, b, r: a - b * c(0.1),
    "momentum": lambda c, sqrt: lambda a, b, r: a * c(0.9) + b * c(0.1) + r,
    "sum with a product that was reshaped": lambda c, sqrt: (
        lambda a, b, r: (a * b).reshape(-1) + (b * r).reshape(-1)
    ),
    "sum with a transposed product": lambda c, sqrt: lambda a, b, r: (a * b).reshape(60, 50).T + a,
    "sum with a product of rows": lambda c, sqrt: lambda a, b, r: a + r * r,
    "difference with a product that was negated": lambda c, sqrt: lambda a, b, r: r - (-(a * b)),
    "sums of two products": lambda c, sqrt: lambda a, b, r: (a * b).reshape(1500, 2).sum(axis=1),
    "sums of two products far apart": lambda c, sqrt: lambda a, b, r: (a * b).reshape(2, 1500).sum(axis=0),
    "sums of two products that were negated": lambda c, sqrt: (
        lambda a, b, r: (-(a * b)).reshape(1500, 2).sum(axis=1)
    ),
}

#: The same in words that are functions: `f` is this library or NumPy.
WORDS: dict[str, Callable[[Any, Any], Function]] = {
    "sum with one of two products": lambda c, f: lambda a, b, r: f.where(a > c(0), a * b, b * r) + r,
    "sum with one of three products": lambda c, f: (
        lambda a, b, r: f.where(a > c(0), f.where(b > c(0), a * b, b * r), b * c(3)) + r
    ),
    "sum with one of two negated products": lambda c, f: (
        lambda a, b, r: f.where(a > c(0), -(a * b), -(b * r)) + r
    ),
    "sums of two of two products": lambda c, f: (
        lambda a, b, r: f.where(a > c(0), a * b, b * r).reshape(1500, 2).sum(axis=1)
    ),
    "sum of numbers and products": lambda c, f: lambda a, b, r: f.stack([b, a * r]).sum(axis=0),
    "sum of squares and products": lambda c, f: lambda a, b, r: f.stack([a * a, b * r]).sum(axis=0),
    "sum with numbers and products": lambda c, f: (
        lambda a, b, r: f.concatenate([a, a * b]) + f.concatenate([b, b])
    ),
    "whole quotient by a constant": lambda c, f: lambda a, b, r: f.floor_divide(a, c(3e-17)),
    "whole quotient by a row": lambda c, f: lambda a, b, r: f.floor_divide(a, r * c(3e-17)),
    "whole quotient of a product": lambda c, f: lambda a, b, r: f.floor_divide(a * c(1e5), c(3e-12)),
    "whole quotient of a product by a row": lambda c, f: lambda a, b, r: f.floor_divide(a * b, r * c(3e-17)),
    "rest of a product by a product": lambda c, f: lambda a, b, r: f.mod(a * c(1e5), b * r),
    "rest by a constant": lambda c, f: lambda a, b, r: f.mod(a * c(1e20), c(0.3)) + b,
    "rest of a constant": lambda c, f: lambda a, b, r: f.mod(c(1e30), a),
    "rest by a row": lambda c, f: lambda a, b, r: f.mod(a, r * c(1e-17)),
}

OURS = SimpleNamespace(stack=F.stack, concatenate=F.concat, where=F.where, floor_divide=floor_div, mod=mod)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bits_match_numpy(dtype: str) -> None:
    kind = np.dtype(dtype).type
    draw = np.random.default_rng(0).standard_normal
    arrays = [draw(shape).astype(dtype) for shape in ((50, 60), (50, 60), (50, 1))]
    ours = {n: of(float, F.sqrt) for n, of in FORMULAS.items()} | {
        n: of(float, OURS) for n, of in WORDS.items()
    }
    numpys = [of(kind, np.sqrt) for of in FORMULAS.values()] + [of(kind, np) for of in WORDS.values()]
    functions = list(ours.values())
    alone = [program(f, *arrays).run(*arrays)[0] for f in functions]
    together = program(lambda *xs: [f(*xs) for f in functions], *arrays).run(*arrays)
    for name, numpys_own, *found in zip(ours, numpys, alone, together, strict=True):
        for got in found:
            np.testing.assert_array_equal(got, numpys_own(*arrays), err_msg=name, strict=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_product_overflows_before_the_addition(dtype: str) -> None:
    most = float(np.finfo(dtype).max)
    a = np.array([most, most, most, 0.0, -0.0, 1.0], dtype)
    b = np.array([2.0, 2.0, -2.0, -1.0, 1.0, np.nan], dtype)
    c = np.array([-np.inf, -most, most, -0.0, -0.0, 1.0], dtype)

    def formulas(a: Any, b: Any, c: Any, p: Any, q: Any, where: Any) -> list[Any]:
        sums = [(p * q).sum(axis=0), (p.T * q.T).sum(axis=1), (-(p * q)).sum(axis=0)]
        arms = [where(p[0] > p[1], a * b, c * b) + c, c - where(p[0] > p[1], a * b, c * b)]
        return [a * b + c, c - a * b, a * b + c * b, *sums, *arms]

    arrays = a, b, c, np.stack([a, c]), np.stack([b, b / 2])
    found = program(lambda *xs: formulas(*xs, F.where), *arrays).run(*arrays)
    with np.errstate(all="ignore"):
        wants = formulas(*arrays, np.where)
    for got, want in zip(found, wants, strict=True):
        np.testing.assert_array_equal(got, want)
        is_number = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[is_number], np.signbit(want)[is_number])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_squares_are_as_accurate_as_numpy(dtype: str) -> None:
    """XLA may leave their products as they are; NumPy rounds each, and the sum, by half a unit at most."""
    draw = np.random.default_rng(2).standard_normal
    x = draw((3000, 2)).astype(dtype)
    most = float(np.finfo(dtype).max)
    y = np.array([[most, 1.0], [1.0, most], [most, most], [np.nan, most], [np.inf, 2.0]], dtype)
    for sign in (1, -1):
        found = program(lambda x, s=sign: s * (x * x).sum(axis=1), x).run(x)[0]
        exact = [sign * (Fraction(float(a)) ** 2 + Fraction(float(b)) ** 2) for a, b in x]
        for got, want in zip(found, exact, strict=True):
            assert abs(Fraction(float(got)) - want) <= Fraction(3, 2) * Fraction(
                float(np.spacing(np.abs(got)))
            )
        (over,) = program(lambda y, s=sign: (s * (y * y)).sum(axis=1), y).run(y)
        np.testing.assert_array_equal(over, np.array([np.inf, np.inf, np.inf, np.nan, np.inf], dtype) * sign)


@pytest.mark.parametrize(("dtype", "count"), [("float32", 1 << 20), ("float64", 1 << 14)])
def test_mod_and_floor_div_of_any_float_bits(dtype: str, count: int) -> None:
    """Also next to multiples of the divisor, and the largest quotients.

    What is not normal is 0, and the sign of 0 is the divisor's.
    """
    least, most, random = np.finfo(dtype).tiny, np.finfo(dtype).max, np.random.default_rng(3)
    a, b = pairs_of_any_bits(dtype, count)
    some = b[: count // 4]
    large, small = most * random.uniform(0.1, 1, 1000), least * random.uniform(1, 9, 1000)
    with np.errstate(all="ignore"):
        near = (some * random.integers(1, 1 << 20, len(some))).astype(dtype)
        a = np.concatenate([a, near, np.nextafter(near, 0), large.astype(dtype)])
        b = np.concatenate([b, some, some, small.astype(dtype)])
        a, b = (np.where(np.abs(x) < least, np.copysign(0, x), x).astype(dtype) for x in (a, b))
        wanted, rest = (np.mod(a, b), np.floor_divide(a, b)), np.fmod(a, b)
    found = program(lambda a, b: [mod(a, b), floor_div(a, b)], a, b).run(a, b)
    is_judged = {"float32": True, "float64": (rest == 0) | ~(np.abs(rest) < least)}[dtype]
    for got, want in zip(found, wanted, strict=True):
        want = np.where((want != 0) & (np.abs(want) < least), np.copysign(0, want), want)
        np.testing.assert_array_equal(got[is_judged], want[is_judged])
        is_number = is_judged & ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[is_number], np.signbit(want)[is_number])


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="an option of x86-64 alone")
def test_mod_is_exact_without_fma_instructions(tmp_path: Path) -> None:
    """As on processors that have no instruction for both."""
    found = new_process(
        """
        from mgb.ops.bodies.division import mod
        from mgb_conformance.cases import pairs_of_any_bits

        least = np.finfo(np.float32).tiny
        a, b = (np.where(np.abs(x) < least, np.float32(0), x) for x in pairs_of_any_bits("float32", 1 << 18))
        with np.errstate(all="ignore"):
            want = np.mod(a, b)
        want[np.abs(want) < least] = 0
        (got,) = program(lambda a, b: [mod(a, b)], a, b).run(a, b)
        print((want != 0).sum() > 1 << 17, np.array_equal(got, want, equal_nan=True))
        """,
        tmp_path,
        XLA_FLAGS="--xla_cpu_max_isa=AVX",
    )
    assert found.split() == ["True", "True"]


def test_fma_recovers_the_rounding_error_of_a_product() -> None:
    """In float64 the product of two float32 is exact, and so is the rest of its rounding."""
    draw = np.random.default_rng(1).standard_normal
    a, b = (draw(4000).astype(np.float32) for _ in range(2))

    def rest(a: Any, b: Any) -> list[Any]:
        product = a * b
        return [product, fma(a, b, neg(product)), fma(a, b, neg(b * a)) + product]

    product, lost, _ = program(rest, a, b).run(a, b)
    np.testing.assert_array_equal(product, a * b)
    np.testing.assert_array_equal(lost, a.astype(np.float64) * b - a * b)
