"""Floating-point numbers by their bits: what the bodies of the transcendental words are built from.

A body is branch-free, so that it vectorises: every case is computed and `where` picks. Where an error term
matters, it does not depend on whether a compiler fuses a multiplication with an addition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np

from ...ir import dtypes
from ...tensor import Tensor
from ..declare import SELECT, composite
from ..primitives import (
    bit_and,
    bit_xor,
    bitcast,
    cast,
    fma,
    le,
    logical_and,
    logical_not,
    lt,
    shl,
    shr,
    sub,
    where,
)


@dataclass(frozen=True, slots=True)
class Format:
    """An IEEE 754 binary format.

    Attributes
    ----------
    integer : dtype
        The signed integers of the same width.
    digits : int
        Stored bits of the significand.
    bias : int
        Of the exponent.
    smallest : float
        The smallest normal number.
    """

    integer: np.dtype[Any]
    digits: int
    bias: int
    smallest: float

    @property
    def sign(self) -> int:
        """The sign bit, as a signed integer."""
        return int(np.iinfo(self.integer).min)

    def bits(self, value: float) -> int:
        """Return the bit pattern of a Python float in this format, as a signed integer."""
        return int(np.array(value, f"float{self.integer.itemsize * 8}").view(self.integer))


FORMATS = {
    dtypes.float32: Format(dtypes.int32, 23, 127, 2.0**-126),
    dtypes.float64: Format(dtypes.int64, 52, 1023, 2.0**-1022),
}

Body = Callable[..., Tensor]


@composite(SELECT, cheap=True, exact=True)
def unlikely(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return `a` where `condition` holds, else `b`; what only `a` needs may be computed only if one holds."""
    return where(condition, a, b)


def widen_halves(body: Body) -> Body:
    """Wrap `body`, which knows float32 and float64: compute 16-bit floats in float32 and round once."""

    @wraps(body)
    def widened(*xs: Tensor, **params: Any) -> Tensor:
        dtype = xs[0].dtype
        if dtype not in dtypes.HALVES:
            return body(*xs, **params)
        wide = (cast(x, dtype=dtypes.float32) if x.dtype == dtype else x for x in xs)
        out = body(*wide, **params)
        return cast(out, dtype=dtype) if out.dtype == dtypes.float32 else out

    return widened


def bits(x: Tensor) -> Tensor:
    """Return the bit pattern of `x` as signed integers."""
    return bitcast(x, dtype=FORMATS[x.dtype].integer)


def sign_bit(x: Tensor) -> Tensor:
    """Return the sign bit of `x` in its place, all other bits 0."""
    return bit_and(bits(x), FORMATS[x.dtype].sign)


def magnitude(x: Tensor) -> Tensor:
    """Return `x` without its sign; -0 becomes 0."""
    return bitcast(bit_and(bits(x), ~FORMATS[x.dtype].sign), dtype=x.dtype)


def flip_sign(x: Tensor, sign: Tensor) -> Tensor:
    """Return `x`, negated where the sign bit of the integer `sign` is set."""
    return bitcast(bit_xor(bits(x), sign), dtype=x.dtype)


def upper_half(x: Tensor) -> Tensor:
    """Return the leading half of the significand of `x`: products of two such numbers are exact."""
    form = FORMATS[x.dtype]
    return bitcast(bit_and(bits(x), -(1 << (form.digits // 2 + 1))), dtype=x.dtype)


def at_most(x: Tensor, highest: float) -> Tensor:
    """Return the smaller of `x` and a number; NaN stays NaN. One instruction, as only `x` may be NaN."""
    return where(lt(highest, x), highest, x)


def at_least(x: Tensor, lowest: float) -> Tensor:
    """Return the greater of `x` and a number; NaN stays NaN."""
    return where(lt(x, lowest), lowest, x)


def round_scaled(x: Tensor, factor: float, places: int, shift: int = 0) -> tuple[Tensor, Tensor]:
    """Return ``n = round(x * factor)``, and `n` as an exponent for `power` (`places` = 1) or for `scale` (2).

    A sum with ``1.5 * 2**digits`` has its last digit at 1: it is rounded there, and its bits end in the
    whole number, to which the bias of `places` exponents and `shift` are added beforehand. `n` is at most
    ``2**(digits - 2)``.
    """
    form = FORMATS[x.dtype]
    moved = fma(x, factor, 1.5 * 2.0**form.digits + (places * form.bias + shift))
    return moved - (1.5 * 2.0**form.digits + places * form.bias + shift), bits(moved)


def power(exponent: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """Return ``2**n`` for a normal number's biased `n`; only the last digits of `exponent` count."""
    return bitcast(shl(exponent, FORMATS[dtype].digits), dtype=dtype)


def scale(x: Tensor, exponent: Tensor) -> Tensor:
    """Return ``x * 2**n``, rounded once, for `n`, biased twice, up to twice the range."""
    half = shr(exponent, 1)
    return x * power(half, x.dtype) * power(exponent - half, x.dtype)


def split(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``n, m`` with ``x = m * 2**n``, `m` in [sqrt(1/2), sqrt(2)); for positive normal `x`."""
    return _split(bits(x), x.dtype)


def _split(pattern: Tensor, dtype: np.dtype[Any]) -> tuple[Tensor, Tensor]:
    form = FORMATS[dtype]
    n = shr(pattern - form.bits(0.5**0.5), form.digits)
    return cast(n, dtype=dtype), bitcast(pattern - shl(n, form.digits), dtype=dtype)


def decompose(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same for positive finite `x`, even denormal: by the bits of a number that is not."""
    form = FORMATS[x.dtype]
    up = form.digits + 2
    raised = bits(x * 2.0**up) - (up << form.digits)
    pattern = where(lt(x, form.smallest), raised, bits(x))
    return _split(unlikely(is_unusual(x), pattern, bits(x)), x.dtype)


def is_unusual(x: Tensor) -> Tensor:
    """Return whether `x` is another number than a positive, normal and finite one."""
    return logical_not(logical_and(le(FORMATS[x.dtype].smallest, x), lt(x, float("inf"))))


def polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Return ``c[0] + c[1] * x + c[2] * x**2 + ...`` by Horner's rule."""
    total = fma(x, coefficients[-1], coefficients[-2])
    for c in reversed(coefficients[:-2]):
        total = fma(total, x, c)
    return total


def fast_two_sum(a: Tensor | float, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``a + b`` rounded, and the rounding error; ``|a| >= |b|`` (Dekker 1971)."""
    total = a + b
    return total, sub(b, total - a)


def two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``a + b`` rounded, and the rounding error (Knuth)."""
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


def two_product(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``a * b`` rounded, and the rounding error to twice the precision (Dekker 1971; by masks)."""
    a1, b1 = upper_half(a), upper_half(b)
    a2, b2 = a - a1, b - b1
    product = a * b
    return product, ((a1 * b1 - product) + (a1 * b2 + a2 * b1)) + a2 * b2
