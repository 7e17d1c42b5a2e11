"""Comparisons, signs, rounding, powers and logarithms: the sentences that are plain arithmetic.

Rows read: dtypes, NumPy where one call does it, gradient ``(g, y, *inputs)``. Of a name with a leading
underscore only the spec is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import ConversionError
from ..ir import dtypes
from ..tensor import Tensor
from .bodies import exponential as lower
from .bodies import floats
from .bodies.transcendental import exp, log
from .declare import (
    ALIKE,
    ANALYTIC,
    COMPARE,
    EQUAL,
    FIELD,
    FLOATING,
    INTEGER,
    LOGICAL,
    MAGNITUDE,
    NUMERIC,
    PRECISE,
    PREDICATE,
    SAME,
    SMOOTH,
    Dtypes,
    Typing,
    composite,
)
from .eager import clip as clip_eager
from .primitives import (
    bit_or,
    bit_xor,
    bitcast,
    cast,
    complex,
    eq,
    floor,
    imag,
    le,
    logical_and,
    logical_not,
    logical_or,
    lt,
    maximum,
    minimum,
    neg,
    real,
    shr,
    sqrt,
    where,
)

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "elementwise"}

INF = float("inf")
LN2, LN10 = 0.6931471805599453, 2.302585092994046


# comparisons and classes


@composite(COMPARE, eager=np.greater, differentiable=False, cheap=True)
def gt(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a > b``; False if one is NaN."""
    return lt(b, a)


@composite(COMPARE, eager=np.greater_equal, differentiable=False, cheap=True)
def ge(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a >= b``; False if one is NaN."""
    return le(b, a)


@composite(EQUAL, eager=np.not_equal, differentiable=False, cheap=True)
def ne(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a != b``; True if one is NaN."""
    return logical_not(eq(a, b))


@composite(EQUAL, eager=np.isnan, differentiable=False)
def isnan(x: Tensor) -> Tensor:
    """Return whether `x` is NaN."""
    return logical_not(eq(x, x))


@composite(EQUAL, eager=np.isinf, differentiable=False)
def isinf(x: Tensor) -> Tensor:
    """Return whether `x` is infinite."""
    return logical_or(eq(x, INF), eq(x, -INF))


@composite(EQUAL, eager=np.isfinite, differentiable=False)
def isfinite(x: Tensor) -> Tensor:
    """Return whether `x` is neither infinite nor NaN."""
    return logical_and(lt(x, INF), lt(-INF, x))


@composite(LOGICAL, eager=np.logical_xor, differentiable=False)
def logical_xor(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a != b`` of bools."""
    return logical_not(eq(a, b))


@composite(INTEGER, eager=np.invert, differentiable=False)
def bit_not(x: Tensor) -> Tensor:
    """Return ``~x``, bit by bit; of bools ``not x``."""
    if x.dtype == dtypes.bool_:
        return logical_not(x)
    return bit_xor(x, -1 if x.dtype in dtypes.SIGNED else int(np.iinfo(x.dtype).max))


# signs


def _abs_grad(g: Tensor, y: Tensor, x: Tensor) -> tuple[Tensor]:
    if x.dtype in dtypes.COMPLEX:
        return (conj(x) * where(eq(y, 0), 0, g / where(eq(y, 0), 1, y)),)
    return (where(lt(0, x), g, where(lt(x, 0), neg(g), 0)),)


@composite(SMOOTH, eager=np.conjugate, grad=lambda g, _y, _x: (conj(g),))
def conj(x: Tensor) -> Tensor:
    """Return the conjugate; a real number is its own."""
    return complex(real(x), neg(imag(x))) if x.dtype in dtypes.COMPLEX else cast(x, dtype=x.dtype)


def squared_magnitude(x: Tensor) -> Tensor:
    """Return ``abs(x)**2``."""
    return square(real(x)) + square(imag(x)) if x.dtype in dtypes.COMPLEX else square(x)


@composite(MAGNITUDE, eager=np.abs, grad=_abs_grad, cheap=True, exact=True, signed_zero=True)
@floats.widen_halves
def abs(x: Tensor) -> Tensor:
    """Return ``|x|``; -0 gives 0, and the least integer is itself."""
    if x.dtype in dtypes.COMPLEX:
        return hypot(real(x), imag(x))
    return floats.magnitude(x) if x.dtype in dtypes.FLOATS else where(lt(x, 0), neg(x), x)


@composite(NUMERIC, grad=lambda g, _y, x, _d: (None, abs_grad(x, g)))
def abs_grad(x: Tensor, d: Tensor) -> Tensor:
    """Return `d` where `x` is positive, else ``-d``, as MegEngine's mode of this name; 0 is negative.

    The gradient of `abs` is 0 there.
    """
    return where(lt(0, x), d, neg(d))


@composite(NUMERIC, eager=np.sign, differentiable=False, exact=True, signed_zero=True)
def sign(x: Tensor) -> Tensor:
    """Return -1, 0 or 1, and NaN of NaN; of -0 it is 0."""
    if x.dtype in dtypes.UNSIGNED:
        return minimum(x, 1)
    rest = abs(x) if x.dtype in dtypes.FLOATS else x
    return where(lt(x, 0), -1, where(lt(0, x), 1, rest))


def direction(x: Tensor) -> Tensor:
    """Return `sign`; of complex numbers ``x / abs(x)``, and 0 of 0."""
    if x.dtype not in dtypes.COMPLEX:
        return sign(x)
    size = abs(x)
    return x / where(eq(size, 0), 1, size)


@composite(PREDICATE, eager=np.signbit, differentiable=False)
@floats.widen_halves
def signbit(x: Tensor) -> Tensor:
    """Return whether `x` has a minus. -0.0 has one."""
    return lt(floats.sign_bit(x) if x.dtype in dtypes.FLOATS else x, 0)


@composite(
    FLOATING,
    eager=np.copysign,
    grad=lambda g, _y, x, s: (where(eq(signbit(x), signbit(s)), g, neg(g)), None),
    exact=True,
    signed_zero=True,
)
@floats.widen_halves
def copysign(x: Tensor, s: Tensor) -> Tensor:
    """Return the magnitude of `x` with the sign of `s`."""
    return floats.flip_sign(floats.magnitude(x), floats.sign_bit(s))


def _exact_floats(operands: Sequence[dtypes.Operand]) -> Dtypes:
    given = FLOATING.promote(operands)
    if given[0] in dtypes.HALVES:
        raise ConversionError(f"needs float32 or float64, got {given[0]}, which is computed in float32")
    return given


@composite(Typing(_exact_floats, FLOATING.result), eager=np.nextafter, differentiable=False)
def nextafter(x: Tensor, towards: Tensor) -> Tensor:
    """Return the number next to `x` on the way to `towards`: the bit pattern that is greater or less by 1."""
    away = eq(lt(x, towards), lt(0, x))
    first = bit_or(floats.sign_bit(towards), 1)
    moved = bitcast(where(eq(x, 0), first, floats.bits(x) + where(away, 1, -1)), dtype=x.dtype)
    known = logical_and(eq(x, x), eq(towards, towards))
    return where(eq(x, towards), towards, where(known, moved, x + towards))


# rounding


@composite(FLOATING, eager=np.ceil, differentiable=False, exact=True, signed_zero=True)
def ceil(x: Tensor) -> Tensor:
    """Return the least whole number from `x` on; the sign stays."""
    return neg(floor(neg(x)))


@composite(FLOATING, eager=np.trunc, differentiable=False, exact=True, signed_zero=True)
def trunc(x: Tensor) -> Tensor:
    """Return the whole number next to `x` towards 0; the sign stays."""
    return where(lt(x, 0), ceil(x), floor(x))


@composite(FLOATING, differentiable=False, exact=True)
def round_away(x: Tensor) -> Tensor:
    """Round to the nearest integer, ties away from 0: ``x - whole`` is exact, ``x + 0.5`` is not."""
    whole = trunc(x)
    return where(le(0.5, abs(x - whole)), whole + copysign(1, x), whole)


@composite(
    SAME,
    eager=clip_eager,
    grad=lambda g, _y, x, low, high: (
        where(logical_and(le(low, x), le(x, high)), g, 0),
        where(le(x, low), g, 0),
        where(le(high, x), g, 0),
    ),
    cheap=True,
    exact=True,
)
def clip(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return `x` within [`low`, `high`]; NaN stays NaN."""
    return where(le(x, low), low, where(lt(high, x), high, x))


# powers and logarithms


@composite(FIELD, eager=np.square, grad=lambda g, _y, x: (2 * g * x,), cheap=True)
def square(x: Tensor) -> Tensor:
    """Return ``x * x``; integers wrap."""
    return x * x


@composite(ANALYTIC, grad=lambda g, y, _x: (neg(g * y * y),))
def reciprocal(x: Tensor) -> Tensor:
    """Return ``1 / x``."""
    return 1 / x


@composite(ANALYTIC, grad=lambda g, y, x: (-0.5 * g * y / x,))
def rsqrt(x: Tensor) -> Tensor:
    """Return ``1 / sqrt(x)``."""
    return 1 / sqrt(x)


@composite(FLOATING, eager=np.cbrt, grad=lambda g, y, _x: (g / (3 * y * y),), signed_zero=True)
@floats.widen_halves
def cbrt(x: Tensor) -> Tensor:
    """Return the cube root: ``exp(log(x) / 3)`` and one step of Newton; within 2 ULP."""
    form = floats.FORMATS[x.dtype]
    a = floats.magnitude(x)
    tiny = lt(a, form.smallest)
    a = where(tiny, a * 2.0**54, a)
    root = exp(log(a) / 3)
    root = root - (root - a / (root * root)) / 3
    root = where(tiny, root * 2.0**-18, root)
    return where(logical_or(eq(x, 0), logical_not(isfinite(x))), x, copysign(root, x))


def _exp_share_grad(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    slope = g * y * exp_share(b, a)
    return slope, neg(slope)


@composite(PRECISE, grad=_exp_share_grad)
def exp_share(a: Tensor, b: Tensor) -> Tensor:
    """Return ``exp(a) / (exp(a) + exp(b))`` without overflow."""
    e = exp(neg(abs(a - b)))
    return where(lt(a, b), e, 1) / (1 + e)


@composite(PRECISE, grad=lambda g, _y, a, b: (g * exp_share(a, b), g * exp_share(b, a)), eager=np.logaddexp)
def logaddexp(a: Tensor, b: Tensor) -> Tensor:
    """Return ``log(exp(a) + exp(b))`` without overflow."""
    high, low = maximum(a, b), minimum(a, b)
    return high + where(eq(high, low), LN2, log1p(exp(low - high)))


@composite(FLOATING, eager=np.hypot, grad=lambda g, y, a, b: (g * _part(a, y), g * _part(b, y)))
def hypot(a: Tensor, b: Tensor) -> Tensor:
    """Return ``sqrt(a**2 + b**2)`` without overflow; infinite when one of them is, whatever the other."""
    a, b = abs(a), abs(b)
    high, low = maximum(a, b), minimum(a, b)
    ratio = where(eq(high, 0), 0, low / high)
    return where(logical_or(eq(a, INF), eq(b, INF)), INF, high * sqrt(1 + ratio * ratio))


def _part(a: Tensor, whole: Tensor) -> Tensor:
    return where(eq(whole, 0), 0, a / whole)


# fmt: off
exp2  = composite(ANALYTIC, eager=np.exp2,  name="exp2",  grad=lambda g, y, _x: (g * y * LN2,))(lower.exp2)
expm1 = composite(ANALYTIC, eager=np.expm1, name="expm1", grad=lambda g, _y, x: (g * exp(x),),
                  signed_zero=True)(lower.expm1)
log2  = composite(ANALYTIC, eager=np.log2,  name="log2",  grad=lambda g, _y, x: (g / x / LN2,))(lower.log2)
log10 = composite(ANALYTIC, eager=np.log10, name="log10", grad=lambda g, _y, x: (g / x / LN10,))(lower.log10)
log1p = composite(ANALYTIC, eager=np.log1p, name="log1p", grad=lambda g, _y, x: (g / (1 + x),),
                  signed_zero=True)(lower.log1p)
# fmt: on


# multiply-adds and selections


@composite(FIELD)
def fma3(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Return ``a * b + c``."""
    return a * b + c


@composite(FIELD)
def fma4(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """Return ``a * b + c * d``."""
    return a * b + c * d


@composite(FLOATING)
def lerp(a: Tensor, b: Tensor, t: Tensor) -> Tensor:
    """Interpolate from `a` at 0 to `b` at 1; exact at both ends."""
    return where(lt(t, 0.5), a + t * (b - a), b - (1 - t) * (b - a))


@composite(NUMERIC, grad=lambda g, _y, x, _v: (None, switch_gt0(x, g)))
def switch_gt0(x: Tensor, v: Tensor) -> Tensor:
    """Return `v` where `x` is positive, else 0."""
    return where(lt(0, x), v, 0)


@composite(NUMERIC, grad=lambda g, _y, a, b, _v: (None, None, cond_le_mov(a, b, g)))
def cond_le_mov(a: Tensor, b: Tensor, v: Tensor) -> Tensor:
    """Return `v` where ``a <= b``, else 0."""
    return where(le(a, b), v, 0)


@composite(NUMERIC, grad=lambda g, _y, a, b, _v: (None, None, cond_lt_mov(a, b, g)))
def cond_lt_mov(a: Tensor, b: Tensor, v: Tensor) -> Tensor:
    """Return `v` where ``a < b``, else 0."""
    return where(lt(a, b), v, 0)


@composite(ALIKE, eager=np.isclose, differentiable=False)
def isclose(
    a: Tensor, b: Tensor, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Return ``|a - b| <= atol + rtol * |b|``; infinities are close to themselves."""
    if a.dtype in dtypes.INTEGERS:  # whose difference may not fit
        a, b = cast(a, dtype=dtypes.float64), cast(b, dtype=dtypes.float64)
    near = logical_and(isfinite(b), le(abs(a - b), atol + rtol * abs(b)))
    close = logical_or(eq(a, b), near)
    return logical_or(close, logical_and(isnan(a), isnan(b))) if equal_nan else close


def _fractions(operands: Sequence[dtypes.Operand]) -> Dtypes:
    given = INTEGER.promote(operands)
    if given[0].itemsize == 8 or given[0] == dtypes.bool_:
        raise ConversionError(f"needs integers of at most 32 bits, got {given[0]}: cast with astype")
    return given


@composite(Typing(_fractions, INTEGER.result), differentiable=False)
def rmulh(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of two fixed-point fractions, halfway cases rounded upwards.

    -1 times -1 saturates.
    """
    signed = a.dtype in dtypes.SIGNED
    digits = a.dtype.itemsize * 8 - signed
    wide = np.dtype(f"{'int' if signed else 'uint'}{a.dtype.itemsize * 16}")
    product = shr(cast(a, dtype=wide) * cast(b, dtype=wide) + (1 << (digits - 1)), digits)
    return cast(minimum(product, int(np.iinfo(a.dtype).max)), dtype=a.dtype)
