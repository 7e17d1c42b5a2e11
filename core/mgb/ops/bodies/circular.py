"""Bodies of sin, cos, tan, atan and atan2, for backends without fast versions of their own.

Polynomials are minimax fits by the Remez exchange (``docs/minimax.py``).
"""

from __future__ import annotations

from typing import Any

from ...ir import dtypes
from ...tensor import Tensor
from ...tensor.apply import literal
from ..primitives import (
    bit_and,
    bit_or,
    bit_xor,
    bitcast,
    cast,
    eq,
    floor,
    fma,
    le,
    logical_and,
    logical_not,
    logical_or,
    lt,
    maximum,
    minimum,
    neg,
    round,
    shl,
    shr,
    where,
)
from .floats import (
    FORMATS,
    fast_two_sum,
    flip_sign,
    magnitude,
    polynomial,
    round_scaled,
    sign_bit,
    two_product,
    unlikely,
    upper_half,
    widen_halves,
)
from .integers import mulhi

#: A quadrant, modulo 4 at least, and the rest of a non-negative number as an unevaluated sum.
Reduced = tuple[Tensor, Tensor, Tensor]
#: A value as an unevaluated sum.
Terms = tuple[Tensor, Tensor]

INF, NAN = float("inf"), float("nan")
#: pi / 2 in float64, and the rest.
HALF_PI, HALF_PI_REST = 1.5707963267948966, 6.123233995736766e-17
#: From here on quotients by pi / 2 have more than 11 digits in float32, 20 in float64.
FAR = {dtypes.float32: 3072.0, dtypes.float64: 2.0**20}
#: pi / 2 in four parts. The first three have so few digits that their products with such a quotient are
#: exact, and the first two end where the last digit of a number above 1/2 may be.
HALF_PI_PARTS = {
    dtypes.float32: (1.57080078125, -4.470348358154297e-06, 1.5894329408183694e-08, -1.074634630414406e-12),
    dtypes.float64: (
        1.5707963267341256, 6.077105485502443e-11, -4.9789962502207207e-17, -2.940788670387328e-27,
    ),
}  # fmt: skip
#: pi / 4 with so few digits that a small multiple of it is exact, and the rest.
QUARTER_PI_HIGH, QUARTER_PI_LOW = 0.7853981633974483, 3.061616997868383e-17
QUARTER_PI_SINGLE = 0.785398006439209, 1.5695823932524066e-07

# (sin(r) / r - 1) / r**2 and (cos(r) - 1 + r**2 / 2) / r**4, in r**2, for |r| <= pi / 4
SIN = {
    dtypes.float32: (
        -0.16666655, 0.008332189, -0.00019518292,
    ),
    dtypes.float64: (
        -0.16666666666666632, 0.00833333333332237, -0.00019841269829771368, 2.755731367871716e-06,
        -2.505075596836213e-08, 1.589666689147556e-10,
    ),
}  # fmt: skip
COS = {
    dtypes.float32: (0.041666646, -0.0013887316, 2.4433155e-05),
    dtypes.float64: (
        0.0416666666666666, -0.0013888888888874066, 2.4801587289443722e-05, -2.755731434072621e-07,
        2.087572163261153e-09, -1.1359559787513337e-11,
    ),
}  # fmt: skip
# (atan(t) / t - 1) / t**2 in t**2, for |t| <= 5/8, and for |t| <= 1/2
ATAN_SINGLE = (
    -0.3333327, 0.19996665, -0.1422771, 0.10636348, -0.07029687, 0.027515247,
)  # fmt: skip
ATAN_DOUBLE = (
    -0.3333333333333333, 0.1999999999999954, -0.14285714285654977, 0.11111111107246827,
    -0.09090908941306593, 0.0769230393287444, -0.06666601967239158, 0.0588156462330025,
    -0.0525622419979674, 0.047174920527777935, -0.04140759135160553, 0.03303801612263676,
    -0.0204418469550854, 0.006933591198846458,
)  # fmt: skip

#: For each range of magnitudes: its end, a scale that makes whole numbers of at most 2**50 of it, and what
#: that scale leaves of 2 / pi, modulo 4, in parts of 29, 29 and 53 digits.
TWO_OVER_PI_BY_RANGE = (
    (2.0**50, 1.0, 0.6366197690367699, 3.3308114738561656e-09, 2.276010073078396e-18),
    (2.0**76, 2.0**-26, 1.72352696955204, 4.8093533183690695e-09, 5.1651711996897015e-18),
    (2.0**102, 2.0**-52, 1.3227502331137657, 5.003241640433309e-09, 4.220776518111768e-18),
    (INF, 2.0**-78, 1.8357618600130081, 3.0772192294303835e-09, 1.1744408199816128e-17),
)
#: Below, sines are their arguments, whose powers may be subnormal, which is slow.
STRAIGHT = {dtypes.float32: 2.0**-13, dtypes.float64: 2.0**-28}
#: The same for arcs, whose curve is stronger.
STRAIGHT_ARC = 2.0**-16
#: What the bits of a number are taken from to make those of its inverse, to within an eighth.
INVERSE = {dtypes.float32: 0x7EF311C7, dtypes.float64: 0x7FDE623822FC16E6}
#: Masks the last 32 digits.
LOWER = 0xFFFFFFFF
#: The first 1216 binary digits of 2 / pi.
TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424d"
    "d2e006492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639"
    "835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f46"
    "3f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6bab",
    16,
)
#: The same in words of 64, after one word of zeros.
TWO_OVER_PI_WORDS = tuple(TWO_OVER_PI >> 64 * (18 - i) & 0xFFFFFFFFFFFFFFFF for i in range(-1, 19))


def _by_range(a: Tensor, column: int) -> Tensor:
    """Return the entry of `TWO_OVER_PI_BY_RANGE` for the range of `a`."""
    chosen = literal(TWO_OVER_PI_BY_RANGE[-1][column], a.dtype, a.device)
    for row in reversed(TWO_OVER_PI_BY_RANGE[:-1]):
        chosen = where(lt(a, row[0]), row[column], chosen)
    return chosen


def _reduce_near(a: Tensor) -> Reduced:
    """Reduce a number below `FAR` by Cody and Waite (1980).

    What the first two parts of pi / 2 leave is exact, and a multiple of the last digit of their product with
    a part that follows: the error of the next difference is a difference too (Dekker 1971).
    """
    first, second, third, fourth = HALF_PI_PARTS[a.dtype]
    n, quadrant = round_scaled(a, 1 / HALF_PI, 0)
    rest = fma(n, -second, fma(n, -first, a))
    r = fma(n, -third, rest)
    return quadrant, r, fma(n, -fourth, fma(n, -third, rest - r))


def _reduce_single(a: Tensor) -> Reduced:
    """Reduce a float32 in double precision.

    Payne and Hanek (1983): multiples of 4 in ``2 / pi * 2**k`` cannot be seen in the result, so each range of
    magnitudes has its own 111 digits of it, in parts whose products with 24 digits are exact.
    """
    wide = cast(a, dtype=dtypes.float64)
    x = wide * _by_range(wide, 1)
    first, second = x * _by_range(wide, 2), x * _by_range(wide, 3)
    n1, n2 = round(first), round(second)
    fraction = (first - n1) + (second - n2)
    n3 = round(fraction)
    n = n1 + n2 + n3
    rest = ((fraction - n3) + x * _by_range(wide, 4)) * HALF_PI
    r = cast(rest, dtype=dtypes.float32)
    tail = cast(rest - cast(r, dtype=dtypes.float64), dtype=dtypes.float32)
    return cast(n - 4 * floor(0.25 * n), dtype=dtypes.int32), r, tail


def _pick_words(index: Tensor) -> list[Any]:
    """Return four words of 2 / pi from `index` on, by halving: no table is read from memory."""
    words: list[Any] = list(TWO_OVER_PI_WORDS)
    for step, count in ((16, 4), (8, 11), (4, 7), (2, 5), (1, 4)):
        mask = 0 - bit_and(shr(index, step.bit_length() - 1), 1)
        words[:count] = [_blend(mask, words[i + step], words[i]) for i in range(count)]
    return words[:4]


def _blend(mask: Tensor, a: Any, b: Any) -> Tensor:
    """Return `a` where the bits of `mask` are set, else `b`."""
    return bit_xor(bit_and(mask, a ^ b), b)


def _window(a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the significand of `a`, and 192 digits of ``2 / pi * 2**exponent`` from weight 2 downwards."""
    pattern = bitcast(a, dtype=dtypes.uint64)
    significand = bit_or(bit_and(pattern, (1 << 52) - 1), 1 << 52)
    place = shr(pattern, 52) - (1075 - 62)
    index, count = shr(place, 6), bit_and(place, 63)
    w = _pick_words(index)
    top, middle, bottom = (bit_or(shl(w[i], count), shr(shr(w[i + 1], 1), 63 - count)) for i in range(3))
    return significand, top, middle, bottom


def _reduce_double(a: Tensor) -> Reduced:
    """Reduce a float64.

    Payne and Hanek (1983) in integers: ``2 / pi * significand * 2**exponent`` modulo 4 with 126 digits after
    the point. No double is so near to a multiple of pi / 2 that fewer than 64 of them are left.
    """
    m, top, middle, bottom = _window(a)
    carried = mulhi(m, bottom)
    low = m * middle + carried
    high = m * top + mulhi(m, middle) + cast(lt(low, carried), dtype=dtypes.uint64)
    quadrant = shr(high + (1 << 61), 62)
    high = high - shl(quadrant, 62)
    below = 0 - shr(high, 63)
    low = bit_xor(low, below) - below
    high = bit_xor(high, below) + bit_and(below, cast(eq(low, 0), dtype=dtypes.uint64))
    parts = (shr(high, 32), bit_and(high, LOWER), shr(low, 32), bit_and(low, LOWER))
    p1, p2, p3, p4 = (cast(p, dtype=dtypes.float64) * 2.0 ** (2 - 32 * i) for i, p in enumerate(parts, 1))
    turns, rest = fast_two_sum(p1, p2)
    turns, rest = fast_two_sum(turns, rest + (p3 + p4))
    r, tail = two_product(turns, literal(HALF_PI, a.dtype, a.device))
    r, tail = fast_two_sum(r, tail + (turns * HALF_PI_REST + rest * HALF_PI))
    sign = bitcast(shl(below, 63), dtype=dtypes.int64)
    return bitcast(quadrant, dtype=dtypes.int64), flip_sign(r, sign), flip_sign(tail, sign)


def _reduce(a: Tensor) -> Reduced:
    """Reduce any `a`; infinity and NaN to NaN."""
    far, finite = logical_not(lt(a, FAR[a.dtype])), lt(a, INF)
    inside = where(finite, a, 0.0)
    quadrant, r, tail = (_reduce_single if a.dtype == dtypes.float32 else _reduce_double)(inside)
    beyond = quadrant, where(finite, r, NAN), tail
    quadrant, r, tail = (unlikely(far, x, y) for x, y in zip(beyond, _reduce_near(a), strict=True))
    return quadrant, r, tail


def _terms(a: Tensor) -> tuple[Tensor, Terms, Terms]:
    """Return the quadrant of `a`, and two terms of the sine and of the cosine of what is left."""
    n, r, tail = _reduce(a)
    curved = where(lt(a, STRAIGHT[a.dtype]), 0.0, r)
    z = curved * curved
    half = 0.5 * z
    w = 1 - half
    sine = r, fma(curved * z, polynomial(z, SIN[a.dtype]), tail)
    return n, sine, (w, fma(z * polynomial(z, COS[a.dtype]), z, fma(neg(r), tail, (1 - w) - half)))


def _circular(x: Tensor, turn: int) -> tuple[Tensor, Tensor]:
    """Return ``sin(|x| + turn * pi / 2)`` without its sign, and the sign bit."""
    n, (r, r_rest), (w, w_rest) = _terms(magnitude(x))
    n = n + turn
    y = where(eq(bit_and(n, 1), 0), r + r_rest, w + w_rest)
    return y, shl(bit_and(n, 2), 8 * x.dtype.itemsize - 2)


@widen_halves
def sin(x: Tensor) -> Tensor:
    """Return ``sin(x)``; within 1 ULP for every float32 and float64, however large, and NaN of infinity."""
    y, sign = _circular(x, 0)
    return flip_sign(y, bit_xor(sign, sign_bit(x)))


@widen_halves
def cos(x: Tensor) -> Tensor:
    """Return ``cos(x)``; within 1 ULP for every float32 and float64, however large, and NaN of infinity."""
    return flip_sign(*_circular(x, 1))


@widen_halves
def tan(x: Tensor) -> Tensor:
    """Return ``tan(x)``; within 2 ULP for every float32 and float64, however large, and NaN of infinity."""
    n, sine, cosine = _terms(magnitude(x))
    even = eq(bit_and(n, 1), 0)
    ends = zip(fast_two_sum(*sine), fast_two_sum(*cosine), strict=True)
    (a, b), (a_low, b_low) = ((where(even, s, c), where(even, c, s)) for s, c in ends)
    t = a / b
    y = t + fma(neg(t), b_low, a_low) * _rough_inverse(b)
    return flip_sign(y, bit_xor(sign_bit(x), shl(n, 8 * x.dtype.itemsize - 1)))


def _rough_inverse(x: Tensor) -> Tensor:
    """Return ``1 / x`` to within an eighth, by its bits."""
    return bitcast(INVERSE[x.dtype] - bitcast(x, dtype=FORMATS[x.dtype].integer), dtype=x.dtype)


def _quotient(small: Tensor, large: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tangent of an angle, folded into ``|t| <= 1/2``; from there on, ``q - 1`` is exact."""
    q = where(eq(large, 0), 0.0, where(eq(small, INF), 1.0, small / large))
    beyond = le(0.5, q)
    return where(beyond, (q - 1) / (q + 1), q), beyond


def _angle_double(y: Tensor, x: Tensor) -> Tensor:
    up, right = magnitude(y), magnitude(x)
    t, beyond = _quotient(minimum(up, right), maximum(up, right))
    z = t * t
    angle = fma(t * z, polynomial(z, ATAN_DOUBLE), t)
    eighths = cast(beyond, dtype=dtypes.float64)
    steep, left = lt(right, up), lt(sign_bit(x), 0)
    eighths, angle = where(steep, 2 - eighths, eighths), where(steep, neg(angle), angle)
    eighths, angle = where(left, 4 - eighths, eighths), where(left, neg(angle), angle)
    return flip_sign(eighths * QUARTER_PI_HIGH + (eighths * QUARTER_PI_LOW + angle), sign_bit(y))


def _turned(eighths: Tensor, t: Tensor, rest: Tensor | float = 0.0) -> Tensor:
    """Return ``eighths * pi / 4 + atan(t + rest)`` of float32, ``|t| <= 5/8``.

    `rest` is an error term of `t`, of which it needs few digits.
    """
    straight = lt(magnitude(t), STRAIGHT_ARC)
    bent = where(straight, 0.0, t)
    z = bent * bent
    if isinstance(rest, Tensor):
        rest = where(straight, 0.0, rest) * (1 - z)  # times nearly 1 / (1 + z)
    high, low = QUARTER_PI_SINGLE
    first, lost = fast_two_sum(eighths * high, t)
    return first + (lost + fma(bent * z, polynomial(z, ATAN_SINGLE), fma(eighths, low, rest)))


def _of_common_size(small: Tensor, large: Tensor) -> tuple[Tensor, Tensor]:
    """Return two float32 with the same quotient, 0 for that of zeros and 1 for that of infinities.

    The inverse of the second one is a normal number.
    """
    strange = logical_not(logical_and(lt(2.0**-60, large), lt(large, 2.0**100)))
    infinite = eq(large, INF)
    factor = where(infinite, 0.0, where(lt(large, 1), 2.0**64, literal(2.0**-64, large.dtype, large.device)))
    other_small = where(eq(small, INF), 1.0, small * factor)
    other_large = where(logical_or(infinite, eq(large, 0)), 1.0, large * factor)
    return unlikely(strange, other_small, small), unlikely(strange, other_large, large)


def _rest_of_quotient(t: Tensor, a: Tensor, b: Tensor, b_low: Tensor) -> Tensor:
    """Return what ``t = a / b`` is less than ``a / (b + b_low)``, of which an eighth may be missing."""
    t1, b1 = upper_half(t), upper_half(b)
    t2, b2 = neg(t - t1), b - b1
    t1 = neg(t1)
    left = fma(t2, b2, fma(t2, b1, fma(t1, b2, fma(t1, b1, a)))) - t * b_low
    return left * _rough_inverse(b)


def _angle_single(y: Tensor, x: Tensor) -> Tensor:
    zero, up, right = literal(0.0, x.dtype, x.device), magnitude(y), magnitude(x)
    steep, left = lt(right, up), lt(sign_bit(x), 0)
    small, large = _of_common_size(where(steep, right, up), where(steep, up, right))
    beyond = lt(0.625 * large, small)
    b, b_low = fast_two_sum(large, where(beyond, small, 0.0))
    down = where(steep, FORMATS[x.dtype].sign, 0)
    a = flip_sign(small - where(beyond, large, 0.0), bit_xor(down, sign_bit(x)))
    eighths = where(steep, 2.0, zero) + flip_sign(where(beyond, 1.0, zero), down)
    eighths = where(left, 4.0, zero) + flip_sign(eighths, sign_bit(x))
    t = a / b
    return flip_sign(_turned(eighths, t, _rest_of_quotient(t, a, b, b_low)), sign_bit(y))


@widen_halves
def atan2(y: Tensor, x: Tensor) -> Tensor:
    """Return the angle of the point (x, y), in (-pi, pi], by the signs of zeros too (C99, annex F).

    Within 1 ULP in float32, 2 ULP in float64.
    """
    return (_angle_single if x.dtype == dtypes.float32 else _angle_double)(y, x)


@widen_halves
def atan(x: Tensor) -> Tensor:
    """Return ``atan(x)``; within 1 ULP in float32, 2 ULP in float64."""
    if x.dtype == dtypes.float64:
        return _angle_double(x, literal(1.0, x.dtype, x.device))
    a = magnitude(x)
    beyond, steep = lt(0.625, a), lt(2, a)
    first, second = (where(end, literal(1.0, x.dtype, x.device), 0.0) for end in (beyond, steep))
    t = where(steep, -1.0, a - first) / (where(beyond, a, 0.0) + (1 - second))
    return flip_sign(_turned(first + second, t), sign_bit(x))
