"""Activations and their gradients.

The ``*_grad`` ops take what MegEngine's take: the input (tanh and sigmoid: the output), then a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir import dtypes
from ..runtime import memory
from ..tensor import Tensor
from .bodies.exponential import GATE, VANISHING, expm1_reduced, gate, reduce_exponent, vanish, vanishing_end
from .bodies.floats import at_least, magnitude, polynomial, widen_halves
from .bodies.special import NORMAL, damped, in_double, normal_magnitude, normal_ratio
from .bodies.transcendental import exp, tanh
from .declare import FLOATING, NUMERIC, PRECISE, composite
from .eager import where as chosen
from .elementwise import abs, clip, expm1, log1p, square
from .primitives import eq, fma, le, logical_and, logical_or, lt, maximum, minimum, neg, where

SQRT_HALF = 0.7071067811865476
SQRT_TWO_OVER_PI = 0.7978845608028654
ONE_OVER_SQRT_TWO_PI = 0.3989422804014327
SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
# (x - tanh(x)) / x**3 in x**2, for |x| <= 0.625; a minimax fit by the Remez exchange
TANHSHRINK = {
    dtypes.float32: (
        0.33333334, -0.13333333, 0.053967636, -0.021859866, 0.008790835, -0.0033058235, 0.0008618216,
    ),
    dtypes.float64: (
        0.3333333333333333, -0.1333333333333332, 0.05396825396823572, -0.02186948853512411,
        0.00886323549956454, -0.0035921275039528, 0.0014558283643987164, -0.0005899815896561473,
        0.0002388884850709263, -9.603839813490066e-05, 3.70762919929417e-05, -1.220506252757747e-05,
        2.4366726080751065e-06,
    ),
}  # fmt: skip
_BLOCK = 1 << 13  # elements
#: Keeps a factor finite where the other one is 0.
FINITE = 3e38


def _in_blocks(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Apply an eager rule to a block after the other: what it needs in between stays in the cache."""

    def call(*xs: Any) -> Any:
        if type(xs[0]) is not np.ndarray or xs[0].size <= _BLOCK or any(x.shape != xs[0].shape for x in xs):
            return rule(*xs)
        out, flat = memory.empty((xs[0].size,), xs[-1].dtype), [x.reshape(-1) for x in xs]
        for k in range(0, out.size, _BLOCK):
            out[k : k + _BLOCK] = rule(*(x[k : k + _BLOCK] for x in flat))
        return out.reshape(xs[0].shape)

    return call


@_in_blocks
def _eager_sigmoid(x: Any) -> Any:
    return np.exp(np.minimum(x, 0)) / (1 + np.exp(-np.abs(x)))


def _eager_gated(x: Any, z: Any) -> Any:
    half = np.exp(-np.abs(z.astype(np.float64)) / 2)  # whose square may have fewer digits
    small = np.where(z < GATE[z.dtype][1], 0, x) * half * half  # where the body has 0, too
    return (np.where(z < 0, small, x) / (1 + half * half)).astype(x.dtype)


def _eager_mish(x: Any) -> Any:
    half = np.exp(-np.abs(x) / 2)
    e = half * half
    small = np.where(half == 0, np.copysign(half, x), x) * half * half * ((e + 2) / (e * (e + 2) + 2))
    return np.where(x < 0, small, x * ((1 + 2 * e) / (1 + 2 * e * (1 + e))))


def _eager_normal_tail(x: Any) -> tuple[Any, Any, Any]:
    """Return ``|x|``, at most 1000, ``exp(-x**2 / 2)`` and the distribution of ``-|x|`` in float64."""
    a = np.minimum(np.abs(x), 1000).astype(np.float64)
    if x.dtype != np.float64:  # whose square is exact
        bell = np.exp(-0.5 * (a * a))
        return a, bell, _eager_ratio(a) * bell
    from scipy import special  # slow to import

    leading = a.astype(np.float32).astype(np.float64)  # its square is exact
    bell = np.exp(-0.5 * leading * leading) * np.exp(0.5 * (leading - a) * (leading + a))
    return a, bell, 0.5 * special.erfcx(SQRT_HALF * a) * bell


def _eager_ratio(a: Any) -> Any:
    """Return the distribution of ``-a`` over ``exp(-a**2 / 2)``, to the digits of float32.

    What is small beside the constant is computed in float32, in place: NumPy is three times as fast.
    """
    centre, middle, (constant, *slopes) = NORMAL[dtypes.float32]
    inverse = np.reciprocal(a + centre)
    s = a * inverse
    s -= middle
    single = s.astype(np.float32)
    slope = single * np.float32(slopes[-1])
    for coefficient in slopes[-2:0:-1]:
        slope += coefficient
        slope *= single
    slope += slopes[0]
    s *= slope
    s += constant
    s *= inverse
    return s


@_in_blocks
def _eager_gelu(x: Any) -> Any:
    a, _, below = _eager_normal_tail(x)
    a *= below
    return np.maximum(x, 0) - a.astype(x.dtype)  # rounded first: what is too small to be held is 0, not -0


@_in_blocks
def _eager_gelu_grad(x: Any, d: Any) -> Any:
    a, bell, below = _eager_normal_tail(x)
    a *= ONE_OVER_SQRT_TWO_PI
    a *= bell
    below = -(a - below).astype(d.dtype)  # far out it is -0
    return d * chosen(x < 0, below, 1 - below)


# rectifiers


@composite(NUMERIC, grad=lambda g, y, _x: (where(le(y, 0), 0, g),), cheap=True, exact=True)
def relu(x: Tensor) -> Tensor:
    """Return ``max(x, 0)``; NaN stays NaN."""
    return maximum(x, 0)


@composite(NUMERIC, grad=lambda g, _y, x: (relu6_grad(x, g),))
def relu6(x: Tensor) -> Tensor:
    """Return `x` within [0, 6].

    Examples
    --------
    >>> F.relu6(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([0., 0., 2.], device=xpux:0)
    """
    return clip(x, 0, 6)


@composite(NUMERIC, grad=lambda g, _y, x, _d: (None, relu6_grad(x, g)))
def relu6_grad(x: Tensor, d: Tensor) -> Tensor:
    """Return `d` where `x` is within (0, 6) or NaN, else 0."""
    return where(logical_or(le(x, 0), le(6, x)), 0, d)


@composite(NUMERIC, grad=lambda g, _y, x, w: (where(lt(0, x), g, g * w), where(lt(x, 0), g * x, 0)))
def prelu(x: Tensor, w: Tensor) -> Tensor:
    """Return `x` where it is positive, else ``w * x``."""
    return where(lt(0, x), x, w * x)


@composite(NUMERIC)
def prelu_grad(x: Tensor, d: Tensor, w: Tensor) -> Tensor:
    """Return `d` where ``x >= 0``, else ``w * d``: MegEngine's mode of this name, where 0 counts as positive.

    The gradient of `prelu` takes `w` there.
    """
    return where(le(0, x), d, d * w)


@composite(FLOATING, grad=lambda g, _y, x, negative_slope=0.01: (where(lt(0, x), g, g * negative_slope),))
def leaky_relu(x: Tensor, *, negative_slope: float = 0.01) -> Tensor:
    """Return `x` where it is positive, else ``negative_slope * x``."""
    return where(lt(0, x), x, negative_slope * x)


@composite(
    FLOATING,
    grad=lambda g, _y, x, low=-1.0, high=1.0: (where(logical_or(le(x, low), le(high, x)), 0, g),),
)
def hardtanh(x: Tensor, *, low: float = -1.0, high: float = 1.0) -> Tensor:
    """Return `x` within [`low`, `high`].

    Examples
    --------
    >>> F.hardtanh(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([-1.,  0.,  1.], device=xpux:0)
    """
    return clip(x, low, high)


# exponential units: `expm1` sees no positive numbers, so that what is not chosen has a finite gradient


@composite(FLOATING)
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """Return `x` where it is positive, else ``alpha * (exp(x) - 1)``.

    Examples
    --------
    >>> F.elu(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([-0.63212055,  0.        ,  2.        ], device=xpux:0)
    """
    return where(le(x, 0), alpha * expm1(minimum(x, 0)), x)


@composite(FLOATING)
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """Return `x` where it is positive, else ``alpha * (exp(x / alpha) - 1)``.

    Examples
    --------
    >>> F.celu(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([-0.63212055,  0.        ,  2.        ], device=xpux:0)
    """
    return where(le(x, 0), alpha * expm1(minimum(x, 0) / alpha), x)


@composite(FLOATING)
def selu(x: Tensor) -> Tensor:
    """Return `elu` with the scale and the `alpha` of Klambauer et al. (2017).

    Examples
    --------
    >>> F.selu(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([-1.1113307,  0.       ,  2.101402 ], device=xpux:0)
    """
    return where(le(x, 0), SELU_SCALE * SELU_ALPHA * expm1(minimum(x, 0)), SELU_SCALE * x)


# the sigmoid and what is made of it


@composite(FLOATING, eager=_eager_sigmoid, grad=lambda g, y, _x: (sigmoid_grad(y, g),))
@widen_halves
def sigmoid(x: Tensor) -> Tensor:
    """Return ``1 / (1 + exp(-x))``; small results keep their digits. Within 2 ULP."""
    return gate(1.0, x) * 2.0 ** -GATE[x.dtype][0]


@composite(NUMERIC)
def sigmoid_grad(y: Tensor, d: Tensor) -> Tensor:
    """Return ``y * (1 - y) * d``, where `y` is the output of `sigmoid`."""
    return y * (1 - y) * d


@composite(FLOATING, eager=_eager_gated, grad=lambda g, y, x, z: _gated_grad(g, x, z))
@widen_halves
def gated(x: Tensor, z: Tensor) -> Tensor:
    """Return ``x * sigmoid(z)``, rounded less often than the product of the two."""
    shift, _, highest = GATE[z.dtype]
    small = lt(magnitude(x), 1)  # then the result is made smaller; a large `x` is before, which is exact
    y = gate(where(small, x, x * 2.0**-shift), z)
    return where(lt(highest, z), x, where(small, y * 2.0**-shift, y))


def _gated_grad(g: Tensor, x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    s = sigmoid(z)
    return g * s, g * clip(x, -FINITE, FINITE) * s * sigmoid(neg(z))


@composite(FLOATING, eager=lambda x: _eager_gated(x, x), grad=lambda g, _y, x: (silu_grad(x, g),))
@widen_halves
def silu(x: Tensor) -> Tensor:
    """Return ``x * sigmoid(x)``, within 2 ULP.

    Examples
    --------
    >>> F.silu(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([-0.26894143,  0.        ,  1.7615942 ], device=xpux:0)
    """
    shift, _, highest = GATE[x.dtype]
    return where(lt(highest, x), x, gate(x, x) * 2.0**-shift)


@composite(FLOATING)
def silu_grad(x: Tensor, d: Tensor) -> Tensor:
    """Return `d` times the derivative of `silu` at `x`."""
    s = sigmoid(x)
    return d * s * (1 + clip(x, -FINITE, FINITE) * sigmoid(neg(x)))


@composite(PRECISE, grad=lambda g, _y, x: (softplus_grad(x, g),))
def softplus(x: Tensor) -> Tensor:
    """Return ``log(1 + exp(x))`` without overflow.

    Examples
    --------
    >>> F.softplus(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([0.31326163, 0.6931472 , 2.126928  ], device=xpux:0)
    """
    return log1p(exp(neg(abs(x)))) + maximum(x, 0)


@composite(FLOATING)
def softplus_grad(x: Tensor, d: Tensor) -> Tensor:
    """Return ``d * sigmoid(x)``."""
    return d * sigmoid(x)


@composite(PRECISE, grad=lambda g, _y, x: (softplus_grad(neg(x), g),))
def logsigmoid(x: Tensor) -> Tensor:
    """Return ``log(sigmoid(x))`` without overflow.

    Examples
    --------
    >>> F.logsigmoid(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([-1.3132616, -0.6931472, -0.126928 ], device=xpux:0)
    """
    return minimum(x, 0) - log1p(exp(neg(abs(x))))


@composite(FLOATING, eager=_eager_mish, grad=lambda g, _y, x: (mish_grad(x, g),), signed_zero=True)
@in_double
def mish(x: Tensor) -> Tensor:
    """Return ``x * tanh(softplus(x))`` from one exponential ``e = exp(-|x|)``; within 2 ULP.

    It is ``x * (1 - e**2 / d)`` with ``d = e * (e + 1) + 1 / 2`` for positive `x`, and ``x * e`` times
    ``1 - e * (e + 1) / d`` with ``d = e * (e + 2) + 2`` for negative ones.

    Examples
    --------
    >>> F.mish(mgb.tensor([0.0, 1.0]))
    Tensor([0.       , 0.8650984], device=xpux:0)
    """
    _, lowest, highest = GATE[x.dtype]
    negative = lt(x, 0)
    a = magnitude(x)
    r, exponent = reduce_exponent(neg(where(lt(-lowest, a), -vanishing_end(x.dtype), a)), 1, VANISHING)
    p = expm1_reduced(r)
    fraction = 1 + p
    e = vanish(fraction, exponent)
    u = where(negative, e + 1, e)
    v = e * u / where(negative, fma(e, u + 1, 2), fma(e, u + 1, 0.5))
    x_finite = at_least(x, -FINITE)
    y = fma(x_finite, where(negative, fma(neg(v), fraction, p), neg(v)), x_finite)
    return where(negative, vanish(y, exponent), where(logical_or(lt(highest, x), eq(x, 0)), x, y))


@composite(FLOATING)
def mish_grad(x: Tensor, d: Tensor) -> Tensor:
    """Return `d` times the derivative of `mish`.

    In ``q = sigmoid(-x)``, as ``tanh(softplus(x))`` is ``(1 - q**2) / (1 + q**2)``: nothing cancels.
    """
    s, q = sigmoid(x), sigmoid(neg(x))
    inverse = 1 / (1 + q * q)
    slope = square(2 * q * inverse)
    return d * (s * (1 + q) * inverse + clip(x, -FINITE, FINITE) * s * slope)


# piecewise linear stand-ins


@composite(PRECISE, grad=lambda g, _y, x: (hsigmoid_grad(x, g),))
def hsigmoid(x: Tensor) -> Tensor:
    """Return ``x + 3`` within [0, 6], over 6.

    Examples
    --------
    >>> F.hsigmoid(mgb.tensor([-3.0, 0.0, 3.0]))
    Tensor([0. , 0.5, 1. ], device=xpux:0)
    """
    return clip(x + 3, 0, 6) / 6


@composite(FLOATING)
def hsigmoid_grad(x: Tensor, d: Tensor) -> Tensor:
    """Return ``d / 6`` where `x` is within (-3, 3), else 0."""
    return where(logical_and(lt(-3, x), lt(x, 3)), d / 6, 0)


@composite(FLOATING, grad=lambda g, _y, x: (hswish_grad(x, g),))
def hswish(x: Tensor) -> Tensor:
    """Return ``x * hsigmoid(x)``.

    Examples
    --------
    >>> F.hswish(mgb.tensor([-3.0, 0.0, 3.0]))
    Tensor([-0.,  0.,  3.], device=xpux:0)
    """
    return at_least(x, -FINITE) * (clip(x + 3, 0, 6) / 6)


@composite(FLOATING)
def hswish_grad(x: Tensor, d: Tensor) -> Tensor:
    """Return `d` times the derivative of `hswish`, which is -1/2 at -3 and 3/2 at 3."""
    return where(lt(x, -3), 0, where(lt(3, x), d, (2 * x + 3) / 6 * d))


# with the normal distribution


@composite(FLOATING, eager=_eager_gelu, grad=lambda g, _y, x: (gelu_grad(x, g),))
@widen_halves
def gelu(x: Tensor) -> Tensor:
    """Return `x` times the normal distribution function of `x`, not the formula with tanh; within 2 ULP.

    Examples
    --------
    >>> F.gelu(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([-0.15865526,  0.        ,  1.9544997 ], device=xpux:0)
    """
    a = normal_magnitude(x)
    part, part_low, ratio, ratio_low = normal_ratio(a)
    y = part * ratio
    low = fma(part_low, ratio, fma(part, ratio_low, fma(part, ratio, neg(y))))
    return maximum(x, 0) - damped(y, low, a)


def _gelu_curve(g: Tensor, _y: Any, x: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    near = clip(x, -40, 40)  # beyond, the density is 0
    bell = ONE_OVER_SQRT_TWO_PI * exp(-0.5 * near * near)
    return g * d * bell * (2 - near * near), gelu_grad(x, g)


@composite(FLOATING, eager=_eager_gelu_grad, grad=_gelu_curve)
@widen_halves
def gelu_grad(x: Tensor, d: Tensor) -> Tensor:
    """Return `d` times the normal distribution function plus `x` times its density.

    Right to the last digits of the larger one.
    """
    a = normal_magnitude(x)
    part, _, ratio, _ = normal_ratio(a)
    below = damped(ratio * (1 - part) / NORMAL[a.dtype][0] - ONE_OVER_SQRT_TWO_PI * a, 0.0, a)
    return d * where(lt(x, 0), below, 1 - below)


@composite(FLOATING)
def gelu_tanh(x: Tensor) -> Tensor:
    """Return `gelu` as ``x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x**3))``, often written with tanh.

    Examples
    --------
    >>> F.gelu_tanh(mgb.tensor([0.0]))
    Tensor([0.], device=xpux:0)
    """
    inner = 2 * SQRT_TWO_OVER_PI * x * (1 + 0.044715 * x * x)
    return gated(x, inner)


# the rest


@composite(NUMERIC)
def tanh_grad(y: Tensor, d: Tensor) -> Tensor:
    """Return ``(1 - y * y) * d``, where `y` is the output of `tanh`."""
    return (1 - y * y) * d


@composite(FLOATING, grad=lambda g, _y, x: (fast_tanh_grad(x, g),))
def fast_tanh(x: Tensor) -> Tensor:
    """Return ``x * (27 + x**2) / (27 + 9 * x**2)``: near tanh for small `x`, beyond 1 for large ones."""
    return x * (27 + x * x) / (27 + 9 * x * x)


@composite(FLOATING)
def fast_tanh_grad(x: Tensor, d: Tensor) -> Tensor:
    """Return `d` times the derivative of `fast_tanh` at `x`."""
    z = x * x
    return d * (-48 * z / (3 + z) + 27 + z) / (9 * (3 + z))


@composite(FLOATING, grad=lambda g, _y, x: (g * square(tanh(x)),))
@widen_halves
def tanhshrink(x: Tensor) -> Tensor:
    """Return ``x - tanh(x)``; next to 0 by a polynomial, where the difference has no digits left.

    Examples
    --------
    >>> F.tanhshrink(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([-0.23840582,  0.        ,  1.0359724 ], device=xpux:0)
    """
    z = x * x
    return where(lt(abs(x), 0.625), x * z * polynomial(z, TANHSHRINK[x.dtype]), x - tanh(x))


@composite(FLOATING, grad=lambda g, _y, x: (g / ((1 + abs(x)) * (1 + abs(x))),))
def softsign(x: Tensor) -> Tensor:
    """Return ``x / (1 + |x|)``.

    Examples
    --------
    >>> F.softsign(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([-0.5      ,  0.       ,  0.6666667], device=xpux:0)
    """
    return clip(x, -FINITE, FINITE) / (1 + abs(clip(x, -FINITE, FINITE)))
