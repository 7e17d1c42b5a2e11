"""Circular and hyperbolic functions, their inverses, and the error function's relatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir import dtypes
from ...tensor import Tensor
from ..declare import ANALYTIC, FLOATING, SMOOTH, composite
from ..elementwise import LN2, hypot, log1p
from ..primitives import fma, lt, neg, sqrt, where
from . import circular, floats, special
from .exponential import exponential, log_of_sum, one_plus
from .transcendental import erf_grad, exp, log

#: Above, ``sqrt(x**2 + 1)`` is `x`.
LARGE = 2.0**28
NAN = float("nan")
HALF_SQRT_PI = 0.886226925452758
# (sinh(x) / x - 1) / x**2 in x**2, for |x| <= 1
SINH = {
    dtypes.float32: (
        0.16666667, 0.00833335, 0.0001983616, 2.816951e-06,
    ),
    dtypes.float64: (
        0.16666666666666666, 0.008333333333333333, 0.000198412698412696, 2.755731922411629e-06,
        2.5052108346509227e-08, 1.6059050601252047e-10, 7.646482894621316e-13, 2.8482330895722938e-15,
    ),
}  # fmt: skip
# (asin(x) / x - 1) / x**2 in x**2, for |x| <= 1/2
ASIN = {
    dtypes.float32: (
        0.1666666, 0.07500504, 0.044516988, 0.031807475, 0.014439378, 0.037515532,
    ),
    dtypes.float64: (
        0.1666666666666676, 0.07499999999970801, 0.04464285717461138, 0.030381942707793857,
        0.02237221498728145, 0.01735161202580828, 0.013980820312831226, 0.011398914902070395,
        0.010780233764246633, 0.0037064944921722486, 0.021707207736463667, -0.020998684611290543,
        0.032628365532829294,
    ),
}  # fmt: skip
#: pi / 2 in float32 and float64, and the rest.
HALF_PI = {
    dtypes.float32: (1.5707963705062866, -4.371139000186241e-08),
    dtypes.float64: (1.5707963267948966, 6.123233995736766e-17),
}


def _leg(x: Tensor) -> Tensor:
    """Return ``sqrt(1 - x**2)`` without cancellation next to 1."""
    return sqrt((1 - x) * (1 + x))


def _arc(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return two terms of ``asin(a)``, but of ``acos(a) / 2`` from 1/2 on, for ``a >= 0``.

    And where ``a < 1/2``.
    """
    near = lt(a, 0.5)
    z = where(near, a * a, fma(-0.5, a, 0.5))
    s = where(near, a, sqrt(z))
    return s, s * z * floats.polynomial(z, ASIN[a.dtype]), near


@composite(ANALYTIC, eager=np.arcsin, grad=lambda g, _y, x: (g / _leg(x),), signed_zero=True)
@floats.widen_halves
def asin(x: Tensor) -> Tensor:
    """Return ``asin(x)``; NaN beyond 1."""
    first, rest, near = _arc(floats.magnitude(x))
    high, low = HALF_PI[x.dtype]
    far = (high - 1) + (fma(-2, first, 1) - fma(2, rest, -low))  # no term is larger than the sum
    return floats.flip_sign(where(near, first + rest, far), floats.sign_bit(x))


@composite(ANALYTIC, eager=np.arccos, grad=lambda g, _y, x: (neg(g / _leg(x)),))
@floats.widen_halves
def acos(x: Tensor) -> Tensor:
    """Return ``acos(x)``; NaN beyond 1."""
    first, rest, near = _arc(floats.magnitude(x))
    arc = first + rest
    high, low = HALF_PI[x.dtype]
    middle = high - (floats.flip_sign(arc, floats.sign_bit(x)) - low)
    outer = where(lt(x, 0), 2 * high - fma(2, arc, -2 * low), 2 * arc)
    return where(near, middle, outer)


@composite(ANALYTIC, eager=np.sinh, grad=lambda g, _y, x: (g * cosh(x),), signed_zero=True)
@floats.widen_halves
def sinh(x: Tensor) -> Tensor:
    """Return ``sinh(x)``: a polynomial next to 0, else from exp; it overflows only if the result does."""
    a = floats.magnitude(x)
    z = a * a
    near = fma(a * z, floats.polynomial(z, SINH[x.dtype]), a)
    half = exponential(a, shift=-1)
    return floats.flip_sign(where(lt(a, 1), near, half - 0.25 / half), floats.sign_bit(x))


@composite(ANALYTIC, eager=np.cosh, grad=lambda g, _y, x: (g * sinh(x),))
@floats.widen_halves
def cosh(x: Tensor) -> Tensor:
    """Return ``cosh(x)``."""
    half = exponential(floats.magnitude(x), shift=-1)
    return half + 0.25 / half


@composite(ANALYTIC, eager=np.arcsinh, grad=lambda g, _y, x: (asinh_grad(x, g),), signed_zero=True)
@floats.widen_halves
def asinh(x: Tensor) -> Tensor:
    """Return ``asinh(x)``."""
    a = floats.magnitude(x)
    near = log1p(a + a * a / (1 + sqrt(a * a + 1)))
    return floats.flip_sign(where(lt(a, LARGE), near, log(a) + LN2), floats.sign_bit(x))


@composite(ANALYTIC, eager=np.arccosh, grad=lambda g, _y, x: (acosh_grad(x, g),))
@floats.widen_halves
def acosh(x: Tensor) -> Tensor:
    """Return ``acosh(x)``; NaN below 1."""
    t = x - 1
    s, s_tail = floats.fast_two_sum(sqrt(fma(t, t, 2 * t)), t)
    u, u_tail = one_plus(s)
    near = log_of_sum(u, u_tail + s_tail)
    return where(lt(x, 1), NAN, where(lt(x, LARGE), near, log(x) + LN2))


@composite(ANALYTIC, eager=np.arctanh, grad=lambda g, _y, x: (atanh_grad(x, g),), signed_zero=True)
@floats.widen_halves
def atanh(x: Tensor) -> Tensor:
    """Return ``atanh(x)``; infinite at 1 and -1, NaN beyond."""
    a = floats.magnitude(x)
    y = 0.5 * log1p(fma(2 * a, a / (1 - a), 2 * a))
    return floats.flip_sign(where(lt(1, a), NAN, y), floats.sign_bit(x))


@composite(SMOOTH)
def asinh_grad(x: Tensor, d: Tensor) -> Tensor:
    """Return ``d / sqrt(x * x + 1)``."""
    return d / (sqrt(x * x + 1) if x.dtype in dtypes.COMPLEX else hypot(x, 1))


@composite(SMOOTH)
def acosh_grad(x: Tensor, d: Tensor) -> Tensor:
    """Return ``d / sqrt(x * x - 1)``."""
    return d / (sqrt(x - 1) * sqrt(x + 1))


@composite(SMOOTH)
def atanh_grad(x: Tensor, d: Tensor) -> Tensor:
    """Return ``d / (1 - x * x)``."""
    return d / ((1 - x) * (1 + x))


def _scipy(name: str) -> Callable[[Any], Any]:
    """Return a function of ``scipy.special``, which is imported when it is first called."""

    def call(x: Any) -> Any:
        from scipy import special as scipy_special

        return getattr(scipy_special, name)(x)

    return call


def _eager_erfc(x: Any) -> Any:
    """Call SciPy in float32, the C library in float64, where SciPy is 100 units off; a GPU has its own."""
    if x.dtype == np.float64 and isinstance(x, np.ndarray | np.generic):
        return np.asarray(np.frompyfunc(math.erfc, 1, 1)(x), np.float64)
    return _scipy("erfc")(x)


def _eager_erfinv(x: Any) -> Any:
    """Call SciPy, but keep the sign of -0, which it loses."""
    return np.copysign(_scipy("erfinv")(x), x)


def _eager_erfcinv(x: Any) -> Any:
    """Call SciPy, but fix its -0 at 1 and its infinities for subnormals, by the logarithm."""
    y: Any = _scipy("erfcinv")(x) + 0
    of_numpy = isinstance(x, np.ndarray | np.generic)
    if x.dtype != np.float64 or not of_numpy:
        return y
    subnormal = (x > 0) & (x < np.finfo(np.float64).smallest_normal)
    if not subnormal.any():
        return y
    logarithms = np.log(np.where(subnormal, x, 1)) - math.log(2)
    return np.where(subnormal, -math.sqrt(0.5) * _scipy("ndtri_exp")(logarithms), y)


def _erfinv_grad(g: Tensor, y: Tensor) -> Tensor:
    return g * HALF_SQRT_PI * exp(y * y)


# fmt: off
tan     = composite(ANALYTIC, eager=np.tan,    name="tan",  signed_zero=True,
                    grad=lambda g, y, _x: (g * (1 + y * y),))(circular.tan)
atan    = composite(ANALYTIC, eager=np.arctan, name="atan", signed_zero=True,
                    grad=lambda g, _y, x: (g / (1 + x * x),))(circular.atan)
erfc    = composite(FLOATING, eager=_eager_erfc,        name="erfc",
                    grad=lambda g, _y, x: (neg(erf_grad(g, x)),))(special.erfc)
erfinv  = composite(FLOATING, eager=_eager_erfinv,     name="erfinv", signed_zero=True,
                    grad=lambda g, y, _x: (_erfinv_grad(g, y),))(special.erfinv)
erfcinv = composite(FLOATING, eager=_eager_erfcinv,    name="erfcinv", signed_zero=True,
                    grad=lambda g, y, _x: (neg(_erfinv_grad(g, y)),))(special.erfcinv)
# fmt: on
