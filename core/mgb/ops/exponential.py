"""Bodies of exp, log and what is made of them, for backends without fast versions of their own.

Range reductions are those of Cody and Waite (1980). Polynomials are minimax fits by the Remez exchange, made
for these ranges in 50 digits and rounded to the dtype.
"""

from __future__ import annotations

from .. import dtypes
from ..tensor import Tensor
from .floats import (
    decompose,
    fast_two_sum,
    flip_sign,
    integer,
    magnitude,
    polynomial,
    power_of_two,
    scale,
    sign_bit,
    two_product,
    two_sum,
    upper_half,
    widen_halves,
)
from .primitives import cast, eq, floor, logical_and, logical_or, lt, maximum, minimum, round, where

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
#: tanh is 1 above.
TANH_HIGHEST = {dtypes.float32: 9.5, dtypes.float64: 20.0}

# (expm1(r) - r) / r**2 for |r| <= ln(2) / 2
EXP = {
    dtypes.float32: (0.5, 0.16666667, 0.041666355, 0.008333273, 0.001394101, 0.00019914214),
    dtypes.float64: (
        0.5, 0.16666666666666677, 0.0416666666666667, 0.008333333333321615, 0.0013888888888866774,
        0.00019841269886159232, 2.480158736066143e-05, 2.755724418138819e-06, 2.7557242682700764e-07,
        2.51090450333682e-08, 2.0924463969165187e-09,
    ),
}  # fmt: skip
# (log(1 + f) / s - 2) / s**2 in s**2, s = f / (2 + f), 1 + f between sqrt(1/2) and sqrt(2)
LOG = {
    dtypes.float32: (0.6666666, 0.40000334, 0.28537303, 0.23582281),
    dtypes.float64: (
        0.6666666666666734, 0.39999999999414304, 0.28571428742475585, 0.22222198563598564,
        0.1818356485381651, 0.1531403629941129, 0.1479609973777067,
    ),
}  # fmt: skip
# what is left of atanh(s) = s + s**3 / 3 + s**5 * (...), in s**2
ATANH_TAIL = (
    0.1999999999999999, 0.14285714285722556, 0.11111111108768429, 0.09090909435135264,
    0.07692278436872366, 0.06668158661378736, 0.05837410143488171, 0.05994499825836362,
)  # fmt: skip


def expm1_reduced(r: Tensor) -> Tensor:
    """``exp(r) - 1`` for ``|r| <= ln(2) / 2``."""
    return r + r * r * polynomial(r, EXP[r.dtype])


def reduce_exponent(x: Tensor) -> tuple[Tensor, Tensor]:
    """``n, r`` with ``x = n * ln(2) + r`` and ``|r| <= ln(2) / 2``."""
    high, low = LN2[x.dtype]
    n = round(x * LOG2_E)
    return n, (x - n * high) - n * low


def exponential(x: Tensor, tail: Tensor | float = 0.0, shift: int = 0) -> Tensor:
    """``exp(x + tail) * 2**shift``; `tail` is an error term of `x`. It overflows only if the result does."""
    lowest, highest = EXP_RANGE[x.dtype]
    n, r = reduce_exponent(minimum(maximum(x, lowest), highest))
    if isinstance(tail, Tensor):
        r = r + tail
    return scale(1 + expm1_reduced(r), integer(n) + shift)


@widen_halves
def exp(x: Tensor) -> Tensor:
    """Within 1 ULP; underflow is gradual."""
    return exponential(x)


@widen_halves
def exp2(x: Tensor) -> Tensor:
    """Within 1 ULP, and exact at whole numbers."""
    lowest, highest = EXP_RANGE[x.dtype]
    x = minimum(maximum(x, lowest * LOG2_E), highest * LOG2_E)
    n = round(x)
    return scale(1 + expm1_reduced((x - n) * (1 / LOG2_E)), integer(n))


@widen_halves
def expm1(x: Tensor) -> Tensor:
    """Within 2 ULP."""
    lowest, highest = EXPM1_RANGE[x.dtype]
    n, r = reduce_exponent(minimum(maximum(x, lowest), highest))
    half = power_of_two(integer(n) - 1, x.dtype)
    return where(eq(x, 0), x, 2 * (half * expm1_reduced(r) + (half - 0.5)))


@widen_halves
def tanh(x: Tensor) -> Tensor:
    """``e / (e + 2)`` with ``e = expm1(2 * x)``; within 2 ULP."""
    e = expm1(2 * minimum(magnitude(x), TANH_HIGHEST[x.dtype]))
    return flip_sign(e / (e + 2), sign_bit(x))


def log_reduced(f: Tensor, tail: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
    """Two terms of decreasing size whose difference is ``log(1 + f)``, for `f` next to 0; `tail` is added."""
    s = f / (2 + f)
    z = s * s
    half = 0.5 * f * f
    return f, half - (s * (half + z * polynomial(z, LOG[f.dtype])) + tail)


def _log_at_its_ends(x: Tensor, inner: Tensor) -> Tensor:
    """`inner` where `x` is positive and finite, else what the logarithm of `x` is."""
    edge = where(eq(x, 0), -INF, where(lt(x, 0), NAN, x))
    return where(logical_and(lt(0, x), lt(x, INF)), inner, edge)


@widen_halves
def log(x: Tensor) -> Tensor:
    """Within 1 ULP, by the series in ``s = f / (2 + f)``."""
    high, low = LN2[x.dtype]
    n, m = decompose(x)
    f, rest = log_reduced(m - 1, n * low)
    return _log_at_its_ends(x, n * high - (rest - f))


@widen_halves
def log1p(x: Tensor) -> Tensor:
    """The logarithm of the rounded ``1 + x``, mended by what the rounding lost; within 1 ULP."""
    high, low = LN2[x.dtype]
    u = 1 + x
    lost = where(lt(1, x), 1 - (u - x), x - (u - 1)) / u
    n, m = decompose(u)
    f, rest = log_reduced(m - 1, n * low + lost)
    return where(eq(x, 0), x, _log_at_its_ends(u, n * high - (rest - f)))


@widen_halves
def log2(x: Tensor) -> Tensor:
    """Within 2 ULP, and exact at powers of two."""
    n, m = decompose(x)
    f, rest = log_reduced(m - 1)
    return _log_at_its_ends(x, n + (f - rest) * LOG2_E)


@widen_halves
def log10(x: Tensor) -> Tensor:
    """Within 2 ULP: the exponent's part is exact, 0.30103 being cut in two."""
    n, m = decompose(x)
    f, rest = log_reduced(m - 1)
    high, low = LOG10_2[x.dtype]
    return _log_at_its_ends(x, n * high + (n * low + (f - rest) * LOG10_E))


def _power_single(x: Tensor, y: Tensor) -> Tensor:
    """``x**y`` for ``x > 0``, through double precision."""
    wide_x, wide_y = cast(x, dtype=dtypes.float64), cast(y, dtype=dtypes.float64)
    return cast(exponential(wide_y * log(wide_x)), dtype=dtypes.float32)


def _log_extended(x: Tensor) -> tuple[Tensor, Tensor]:
    """``log(x)`` as an unevaluated sum, good to about 2**-63.

    Of ``log(m) = 2 * atanh(s)``, ``s = (m - 1) / (m + 1)``, two terms are taken in double-double.
    """
    n, m = decompose(x)
    f, g = m - 1, m + 1
    g_low = m - (g - 1)
    s = f / g
    product, error = two_product(s, g)
    s_low = (((f - product) - error) - s * g_low) / g
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
    """``x**y`` for ``x > 0``: the logarithm and its product with `y` carry nearly twice the digits."""
    high, low = _log_extended(x)
    product, error = two_product(high, y)
    return exponential(product, minimum(maximum(error + low * y, -0.25), 0.25))


@widen_halves
def pow(x: Tensor, y: Tensor) -> Tensor:
    """Within 1 ULP, with the special cases of C99 (annex F)."""
    a = magnitude(x)
    power = _power_single if x.dtype == dtypes.float32 else _power_double
    inner = power(a, minimum(maximum(y, -(2.0**70)), 2.0**70))
    rising = lt(0, y)
    inner = where(eq(a, 0), where(rising, 0.0, INF), where(eq(a, INF), where(rising, INF, 0.0), inner))
    whole = eq(floor(y), y)
    odd = logical_and(whole, lt(floor(0.5 * y), 0.5 * y))
    inner = where(odd, flip_sign(inner, sign_bit(x)), inner)
    finite_negative = logical_and(lt(x, 0), lt(-INF, x))
    undefined = logical_and(finite_negative, lt(floor(y), y))
    inner = where(undefined, NAN, where(logical_and(eq(x, x), eq(y, y)), inner, x + y))
    return where(logical_or(eq(y, 0), eq(x, 1)), 1.0, inner)
