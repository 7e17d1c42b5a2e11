"""Each operation rounds once, as IEEE says and NumPy does, whatever XLA and LLVM would make of several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mgb import functional as F
from mgb.ops.primitives import fma, neg
from xla_helpers import program

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
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_bits_are_those_of_numpy(dtype: str) -> None:
    kind = np.dtype(dtype).type
    draw = np.random.default_rng(0).standard_normal
    arrays = [draw(shape).astype(dtype) for shape in ((50, 60), (50, 60), (50, 1))]
    functions = [of(float, F.sqrt) for of in FORMULAS.values()]
    alone = [program(f, *arrays).run(*arrays)[0] for f in functions]
    together = program(lambda *xs: [f(*xs) for f in functions], *arrays).run(*arrays)
    for name, of, *found in zip(FORMULAS, FORMULAS.values(), alone, together):
        for got in found:
            np.testing.assert_array_equal(got, of(kind, np.sqrt)(*arrays), err_msg=name, strict=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_product_that_overflows_does_so_before_it_is_added(dtype: str) -> None:
    most = float(np.finfo(dtype).max)
    a = np.array([most, most, most, 0.0, -0.0, 1.0], dtype)
    b = np.array([2.0, 2.0, -2.0, -1.0, 1.0, np.nan], dtype)
    c = np.array([-np.inf, -most, most, -0.0, -0.0, 1.0], dtype)
    found = program(lambda a, b, c: [a * b + c, c - a * b, a * b + c * b], a, b, c).run(a, b, c)
    with np.errstate(all="ignore"):
        wants = [a * b + c, c - a * b, a * b + c * b]
    for got, want in zip(found, wants, strict=True):
        np.testing.assert_array_equal(got, want)
        is_number = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[is_number], np.signbit(want)[is_number])


def test_what_a_product_lost() -> None:
    """In float64 the product of two float32 is exact, and so is the rest of its rounding."""
    draw = np.random.default_rng(1).standard_normal
    a, b = (draw(4000).astype(np.float32) for _ in range(2))

    def rest(a: Any, b: Any) -> list[Any]:
        product = a * b
        return [product, fma(a, b, neg(product)), fma(a, b, neg(b * a)) + product]

    product, lost, _ = program(rest, a, b).run(a, b)
    np.testing.assert_array_equal(product, a * b)
    np.testing.assert_array_equal(lost, a.astype(np.float64) * b - a * b)
