"""Circular and hyperbolic functions, their inverses, and the error function's relatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..tensor import Tensor
from . import floats, special
from .declare import FLOATING, composite
from .elementwise import LN2, expm1, hypot, log1p
from .exponential import exponential
from .primitives import lt, neg, sqrt, where
from .transcendental import atan2, cos, erf_grad, exp, log, sin

#: Above, ``sqrt(x**2 + 1)`` is `x`.
LARGE = 2.0**28
HALF_SQRT_PI = 0.886226925452758


def _leg(x: Tensor) -> Tensor:
    """``sqrt(1 - x**2)`` without cancellation next to 1."""
    return sqrt((1 - x) * (1 + x))


@composite(FLOATING, eager=np.tan, grad=lambda g, y, _x: (g * (1 + y * y),))
def tan(x: Tensor) -> Tensor:
    return sin(x) / cos(x)


@composite(FLOATING, eager=np.arcsin, grad=lambda g, _y, x: (g / _leg(x),))
def asin(x: Tensor) -> Tensor:
    return atan2(x, _leg(x))


@composite(FLOATING, eager=np.arccos, grad=lambda g, _y, x: (neg(g / _leg(x)),))
def acos(x: Tensor) -> Tensor:
    return atan2(_leg(x), x)


@composite(FLOATING, eager=np.arctan, grad=lambda g, _y, x: (g / (1 + x * x),))
def atan(x: Tensor) -> Tensor:
    return atan2(x, 1)


@composite(FLOATING, eager=np.sinh, grad=lambda g, _y, x: (g * cosh(x),))
@floats.widen_halves
def sinh(x: Tensor) -> Tensor:
    """From expm1 next to 0, from exp further out; it overflows only if the result does."""
    a = floats.magnitude(x)
    e = expm1(a)
    half = exponential(a, shift=-1)
    y = where(lt(a, 1), 0.5 * (e + e / (e + 1)), half - 0.25 / half)
    return floats.flip_sign(y, floats.sign_bit(x))


@composite(FLOATING, eager=np.cosh, grad=lambda g, _y, x: (g * sinh(x),))
@floats.widen_halves
def cosh(x: Tensor) -> Tensor:
    half = exponential(floats.magnitude(x), shift=-1)
    return half + 0.25 / half


@composite(FLOATING, eager=np.arcsinh, grad=lambda g, _y, x: (asinh_grad(x, g),))
@floats.widen_halves
def asinh(x: Tensor) -> Tensor:
    a = floats.magnitude(x)
    near = log1p(a + a * a / (1 + sqrt(a * a + 1)))
    return floats.flip_sign(where(lt(a, LARGE), near, log(a) + LN2), floats.sign_bit(x))


@composite(FLOATING, eager=np.arccosh, grad=lambda g, _y, x: (acosh_grad(x, g),))
def acosh(x: Tensor) -> Tensor:
    t = x - 1
    return where(lt(x, LARGE), log1p(t + sqrt(t) * sqrt(t + 2)), log(x) + LN2)


@composite(FLOATING, eager=np.arctanh, grad=lambda g, _y, x: (atanh_grad(x, g),))
@floats.widen_halves
def atanh(x: Tensor) -> Tensor:
    a = floats.magnitude(x)
    return floats.flip_sign(0.5 * log1p(2 * a / (1 - a)), floats.sign_bit(x))


@composite(FLOATING)
def asinh_grad(x: Tensor, d: Tensor) -> Tensor:
    return d / hypot(x, 1)


@composite(FLOATING)
def acosh_grad(x: Tensor, d: Tensor) -> Tensor:
    return d / (sqrt(x - 1) * sqrt(x + 1))


@composite(FLOATING)
def atanh_grad(x: Tensor, d: Tensor) -> Tensor:
    return d / ((1 - x) * (1 + x))


def _scipy(name: str) -> Callable[[Any], Any]:
    """A function of ``scipy.special``, which is imported when it is first called."""

    def call(x: Any) -> Any:
        from scipy import special as scipy_special

        return getattr(scipy_special, name)(x)

    return call


def _eager_erfc(x: Any) -> Any:
    """SciPy's in float32; in float64 that is up to 100 units off, so the C library's."""
    if x.dtype == np.float64:
        return np.asarray(np.frompyfunc(math.erfc, 1, 1)(x), np.float64)
    return _scipy("erfc")(x)


def _erfinv_grad(g: Tensor, y: Tensor) -> Tensor:
    return g * HALF_SQRT_PI * exp(y * y)


# fmt: off
erfc    = composite(FLOATING, eager=_eager_erfc,        name="erfc",
                    grad=lambda g, _y, x: (neg(erf_grad(g, x)),))(special.erfc)
erfinv  = composite(FLOATING, eager=_scipy("erfinv"),  name="erfinv",
                    grad=lambda g, y, _x: (_erfinv_grad(g, y),))(special.erfinv)
erfcinv = composite(FLOATING, eager=_scipy("erfcinv"), name="erfcinv",
                    grad=lambda g, y, _x: (neg(_erfinv_grad(g, y)),))(special.erfcinv)
# fmt: on
