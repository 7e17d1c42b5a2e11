"""Bodies of exp, log and what is made of them, for backends without fast versions of their own.

Range reductions are those of Cody and Waite (1980). Polynomials are minimax fits by the Remez exchange
(``docs/minimax.py``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir import dtypes
from ...tensor import Tensor
from ..primitives import cast, eq, floor, fma, logical_and, logical_not, logical_or, lt, neg, where
from .floats import (
    FORMATS,
    at_least,
    at_most,
    decompose,
    fast_two_sum,
    flip_sign,
    is_unusual,
    magnitude,
    polynomial,
    power,
    round_scaled,
    scale,
    sign_bit,
    split,
    two_product,
    two_sum,
    unlikely,
    upper_half,
    widen_halves,
)

LOG2_E, LOG10_E = 1.4426950408889634, 0.4342944819032518
INF, NAN = float("inf"), float("nan")

#: ln 2 in two parts: the first has so few digits that its product with an exponent is exact.
LN2 = {
    dtypes.float32: (0.693359375, -0.00021219444005469057),
    dtypes.float64: (0.6931471803691238, 1.9082149292705877e-10),
}
LOG10_2 = {
    dtypes.float32: (0.301025390625, 4.605038981195214e-06),
    dtypes.float64: (0.3010299955494702, 1.1451100898021838e-10),
}
#: Beyond these, exp has overflowed or underflowed to 0.
EXP_RANGE = {dtypes.float32: (-104.0, 90.0), dtypes.float64: (-746.0, 711.0)}
#: expm1 is -1 below, infinite above.
EXPM1_RANGE = {dtypes.float32: (-20.0, 89.0), dtypes.float64: (-40.0, 710.0)}
#: What a tiny result is too large by until it is scaled: its exponent is then a normal one.
VANISHING = 100
#: Of `gate`: by what power of two ``1 + exp(-z)`` is smaller, so that it is finite; below which `z` the
#: result is 0; above which it is the factor.
GATE = {dtypes.float32: (32, -109.0, 20.0), dtypes.float64: (64, -753.0, 40.0)}
#: tanh is 1 above.
TANH_HIGHEST = {dtypes.float32: 9.5, dtypes.float64: 20.0}

# (expm1(r) - r) / r**2 for |r| <= ln(2) / 2
EXP = {
    dtypes.float32: (0.5, 0.16666518, 0.041666206, 0.008368883, 0.0013950566),
    dtypes.float64: (
        0.5000000000000012, 0.166666666666667, 0.041666666666515514, 0.008333333333307128,
        0.0013888888946986936, 0.00019841269917556488, 2.4801489974754165e-05, 2.7557216142903836e-06,
        2.7631267927199863e-07, 2.5117911248285135e-08,
    ),
}  # fmt: skip
# (log(1 + f) - f) / f**2 for 1 + f between sqrt(1/2) and sqrt(2)
LOG_SINGLE = (
    -0.49999988, 0.33333325, -0.25001583, 0.20001976, -0.16609079, 0.141818, -0.13243, 0.1290454,
    -0.07621825,
)  # fmt: skip
# (log(1 + f) / s - 2) / s**2 in s**2, s = f / (2 + f), for the same f
LOG_DOUBLE = (
    0.6666666666666734, 0.39999999999414304, 0.28571428742475585, 0.22222198563598564,
    0.1818356485381651, 0.1531403629941129, 0.1479609973777067,
)  # fmt: skip
# the same, for less than double precision
LOG_WIDE = (
    0.6666666667580108, 0.39999995621870243, 0.2857210913201951, 0.221761908669602, 0.19584105016705047,
)  # fmt: skip
# (tanh(x) / x - 1) / x**2 in x**2, for |x| <= 0.55
TANH = {
    dtypes.float32: (
        -0.33333316, 0.13332586, -0.0538523, 0.021071639, -0.006274182,
    ),
    dtypes.float64: (
        -0.333333333333333, 0.1333333333332662, -0.053968253963759524, 0.021869488385827137,
        -0.008863232601007517, 0.0035920920263768663, -0.0014555428214060653, 0.0005884443923931364,
        -0.0002333813405563508, 8.3316142715544e-05, -1.949450879631821e-05,
    ),
}  # fmt: skip
# what is left of atanh(s) = s + s**3 / 3 + s**5 * (...), in s**2
ATANH_TAIL = (
    0.1999999999999999, 0.14285714285722556, 0.11111111108768429, 0.09090909435135264,
    0.07692278436872366, 0.06668158661378736, 0.05837410143488171, 0.05994499825836362,
)  # fmt: skip


def reduce_exponent(x: Tensor, places: int, shift: int = 0) -> tuple[Tensor, Tensor]:
    """Return ``r, n`` with ``x = n * ln(2) + r``, ``|r| <= ln(2) / 2``; `n` as in `floats.round_scaled`."""
    high, low = LN2[x.dtype]
    n, exponent = round_scaled(x, LOG2_E, places, shift)
    return fma(n, -low, fma(n, -high, x)), exponent


def expm1_reduced(r: Tensor) -> Tensor:
    """Return ``exp(r) - 1`` for ``|r| <= ln(2) / 2``."""
    return fma(r * r, polynomial(r, EXP[r.dtype]), r)


def _exp_reduced(r: Tensor) -> Tensor:
    return polynomial(r, (1.0, 1.0, *EXP[r.dtype]))


def exponential(x: Tensor, tail: Tensor | float = 0.0, shift: int = 0) -> Tensor:
    """Return ``exp(x + tail) * 2**shift``; `tail` is an error term of `x`. Only the result may overflow."""
    lowest, highest = EXP_RANGE[x.dtype]
    vanishes = lt(x, lowest)  # as most of what a mask adds to: a product that underflows is slow
    r, n = reduce_exponent(at_most(where(vanishes, 0.0, x), highest), 2, shift)
    if isinstance(tail, Tensor):
        r = r + tail
    return where(vanishes, 0.0, scale(_exp_reduced(r), n))


def times_exponential(factor: Tensor, low: Tensor, x: Tensor, tail: Tensor) -> Tensor:
    """Return ``(factor + low) * exp(x + tail)`` for ``x <= 0``, rounded less often than that product."""
    high_digits, low_digits = LN2[x.dtype]
    vanishes = lt(x, EXP_RANGE[x.dtype][0])
    x = where(vanishes, 0.0, x)
    n, exponent = round_scaled(x, LOG2_E, 2)
    r = fma(n, -high_digits, x) + fma(n, -low_digits, tail)
    rest = r * r * polynomial(r, EXP[r.dtype])  # of exp(r), after 1 + r
    rest = fma(factor, rest, fma(low, r + rest, low))
    return where(vanishes, 0.0, scale(factor + fma(factor, r, rest), exponent))


def vanish(x: Tensor, exponent: Tensor) -> Tensor:
    """Return ``x * 2**n``, ``n <= 0``; `exponent` is ``n + VANISHING``, biased once. Underflow is gradual."""
    return x * power(exponent, x.dtype) * 2.0**-VANISHING


def vanishing_end(dtype: np.dtype[Any]) -> float:
    """Return the logarithm of what `vanish` takes for 0.

    Nothing underflows on the way, which would be slow.
    """
    return -(FORMATS[dtype].bias + VANISHING) * float(np.log(2))


def gate(factor: Tensor | float, z: Tensor) -> Tensor:
    """Return ``factor / (1 + exp(-z))``, larger by the power of two in `GATE`.

    The one division is where tiny results are made, so that none of their digits is lost before it. What
    the sum of 1 and the power of two cannot hold is added to the rest.
    """
    shift, lowest, highest = GATE[z.dtype]
    one, (high, low) = 2.0**-shift, LN2[z.dtype]
    vanishes = lt(z, lowest)
    z = at_most(at_least(z, lowest), highest)
    n, exponent = round_scaled(z, -LOG2_E, 1, -shift)
    r = neg(fma(n, low, fma(n, high, z)))
    size = power(exponent, z.dtype)
    whole = size + one
    rest = fma(size, expm1_reduced(r), one - (whole - size))
    return where(vanishes, 0.0, factor / (whole + rest))


@widen_halves
def exp(x: Tensor) -> Tensor:
    """Return ``exp(x)``; within 1 ULP, and underflow is gradual."""
    return exponential(x)


@widen_halves
def exp2(x: Tensor) -> Tensor:
    """Return ``2**x``; within 1 ULP, and exact at whole numbers."""
    lowest, highest = EXP_RANGE[x.dtype]
    vanishes = lt(x, lowest * LOG2_E)
    x = at_most(where(vanishes, 0.0, x), highest * LOG2_E)
    whole, n = round_scaled(x, 1.0, 2)
    return where(vanishes, 0.0, scale(_exp_reduced((x - whole) * (1 / LOG2_E)), n))


@widen_halves
def expm1(x: Tensor) -> Tensor:
    """Return ``exp(x) - 1``; within 2 ULP: `x` itself next to 0, where its half may have no digits."""
    lowest, highest = EXPM1_RANGE[x.dtype]
    r, n = reduce_exponent(at_most(at_least(x, lowest), highest), 1, -1)
    half = power(n, x.dtype)
    next_to_0 = lt(magnitude(x), 2.0 ** -(FORMATS[x.dtype].digits + 1))
    return where(next_to_0, x, 2 * fma(half, expm1_reduced(r), half - 0.5))


@widen_halves
def tanh(x: Tensor) -> Tensor:
    """Return ``tanh(x)``, as ``1 - 2 / (exp(2 * |x|) + 1)``, next to 0 a polynomial; within 2 ULP."""
    a = magnitude(x)
    z = a * a
    near = fma(a * z, polynomial(z, TANH[x.dtype]), a)
    r, n = reduce_exponent(2 * at_most(a, TANH_HIGHEST[x.dtype]), 1)
    far = 1 - 2 / fma(power(n, x.dtype), _exp_reduced(r), 1)
    return flip_sign(where(lt(a, 0.55), near, far), sign_bit(x))


def _log_reduced(f: Tensor) -> tuple[Tensor, Tensor]:
    """Return two terms of decreasing size whose sum is ``log(1 + f)``, for `f` next to 0."""
    if f.dtype == dtypes.float32:  # a division costs more than the digits that it saves
        return f, f * f * polynomial(f, LOG_SINGLE)
    s = f / (2 + f)
    z = s * s
    half = 0.5 * f * f
    return f, s * fma(z, polynomial(z, LOG_DOUBLE), half) - half


def _log_at_its_ends(x: Tensor, inner: Tensor) -> Tensor:
    """Return `inner` where `x` is positive and finite, else what the logarithm of `x` is."""
    end = where(eq(x, 0), -INF, where(lt(0, x), where(lt(x, INF), inner, x), NAN))
    return unlikely(is_unusual(x), end, inner)


@widen_halves
def log(x: Tensor) -> Tensor:
    """Return ``log(x)``: of 0 and -0 -infinity, of less NaN; within 1 ULP."""
    high, low = LN2[x.dtype]
    n, m = decompose(x)
    f, rest = _log_reduced(m - 1)
    return _log_at_its_ends(x, fma(n, high, f + fma(n, low, rest)))


def one_plus(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``1 + x`` rounded, and the rounding error."""
    total = 1 + x
    return total, where(lt(1, x), 1 - (total - x), x - (total - 1))


def log_of_sum(x: Tensor, tail: Tensor) -> Tensor:
    """Return ``log(x + tail)``; `tail` is an error term of `x`."""
    high, low = LN2[x.dtype]
    n, m = decompose(x)
    f, rest = _log_reduced(m - 1)
    return _log_at_its_ends(x, fma(n, high, f + (rest + fma(n, low, tail / x))))


@widen_halves
def log1p(x: Tensor) -> Tensor:
    """Return ``log(1 + x)``; within 2 ULP."""
    return where(eq(x, 0), x, log_of_sum(*one_plus(x)))


@widen_halves
def log2(x: Tensor) -> Tensor:
    """Return ``log(x) / log(2)``; within 2 ULP, and exact at powers of two."""
    n, m = decompose(x)
    return _log_at_its_ends(x, n + _log_in_base(m - 1, LOG2_E))


@widen_halves
def log10(x: Tensor) -> Tensor:
    """Return ``log(x) / log(10)``; within 2 ULP: the exponent's part is exact, 0.30103 being cut in two."""
    high, low = LOG10_2[x.dtype]
    n, m = decompose(x)
    return _log_at_its_ends(x, fma(n, high, fma(n, low, _log_in_base(m - 1, LOG10_E))))


def _log_in_base(f: Tensor, factor: float) -> Tensor:
    """Return ``log(1 + f) * factor``; the large term gets the digits of `factor` that the dtype lacks."""
    f, rest = _log_reduced(f)
    low = factor - float(np.array(factor, f.dtype))
    return fma(f, factor, fma(rest, factor, f * low))


def exp_wide(x: Tensor) -> Tensor:
    """Return ``exp(x)`` of a float64 with the digits and the range of float32, beyond it 0 or infinity."""
    lowest, highest = EXP_RANGE[dtypes.float32]
    r, n = reduce_exponent(at_most(at_least(x, lowest), highest), 1)
    return polynomial(r, (1.0, 1.0, *EXP[dtypes.float32])) * power(n, x.dtype)


def _log_wide(x: Tensor) -> Tensor:
    """Return ``log(x)`` of a positive normal float64, to 38 digits."""
    n, m = split(x)
    s = (m - 1) / (m + 1)
    z = s * s
    return fma(n, sum(LN2[x.dtype]), s * fma(z, polynomial(z, LOG_WIDE), 2))


def _power_single(x: Tensor, y: Tensor) -> Tensor:
    """Return ``x**y`` for ``x > 0``, through double precision."""
    wide_x, wide_y = cast(x, dtype=dtypes.float64), cast(y, dtype=dtypes.float64)
    return cast(exp_wide(wide_y * _log_wide(wide_x)), dtype=dtypes.float32)


def _log_extended(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``log(x)`` as an unevaluated sum, good to about 2**-63.

    Of ``log(m) = 2 * atanh(s)``, ``s = (m - 1) / (m + 1)``, two terms are taken in double-double.
    """
    n, m = decompose(x)
    f, g = m - 1, m + 1
    g_low = m - (g - 1)
    inverse = 1 / g
    s = f * inverse
    product, error = two_product(s, g)
    s_low = (((f - product) - error) - s * g_low) * inverse
    z, z_error = two_product(s, s)
    z_error = z_error + 2 * s * s_low
    cube, cube_error = two_product(z, s)
    cube_error = cube_error + z * s_low + z_error * s
    third = cube * (1 / 3)
    third_high = upper_half(third)
    third_low = (((cube - 3 * third_high) - 3 * (third - third_high)) + cube_error) * (1 / 3)
    rest = cube * z * polynomial(z, ATANH_TAIL)
    high, low = fast_two_sum(s, third)
    low = low + (s_low + third_low + rest)
    base, base_low = LN2[x.dtype]
    total, error = two_sum(n * base, 2 * high)
    return fast_two_sum(total, error + (2 * low + n * base_low))


def _power_double(x: Tensor, y: Tensor) -> Tensor:
    """Return ``x**y`` for ``x > 0``: the logarithm and its product with `y` carry nearly twice the digits."""
    high, low = _log_extended(x)
    product, error = two_product(high, y)
    return exponential(product, at_most(at_least(error + low * y, -0.25), 0.25))


def _power_at_its_ends(x: Tensor, y: Tensor, inner: Tensor) -> Tensor:
    """Return ``x**y`` of any numbers; `inner` is that of ``|x|`` where it is positive and finite."""
    a, rising = magnitude(x), lt(0, y)
    inner = where(eq(a, 0), where(rising, a, INF), where(eq(a, INF), where(rising, a, 0.0), inner))
    whole = eq(floor(y), y)
    odd = logical_and(whole, lt(floor(0.5 * y), 0.5 * y))
    inner = where(odd, flip_sign(inner, sign_bit(x)), inner)
    finite_negative = logical_and(lt(x, 0), lt(-INF, x))
    undefined = logical_and(finite_negative, lt(floor(y), y))
    inner = where(undefined, NAN, where(logical_and(eq(x, x), eq(y, y)), inner, x + y))
    return where(logical_or(eq(y, 0), eq(x, 1)), 1.0, inner)


@widen_halves
def pow(x: Tensor, y: Tensor) -> Tensor:
    """Return ``x**y``; within 1 ULP, with the special cases of C99 (annex F)."""
    power = _power_single if x.dtype == dtypes.float32 else _power_double
    inner = power(magnitude(x), at_most(at_least(y, -(2.0**70)), 2.0**70))
    usual = logical_and(logical_and(lt(0, x), lt(x, INF)), eq(y, y))
    return unlikely(logical_not(usual), _power_at_its_ends(x, y, inner), inner)
