"""The transcendental words: exp log sin cos tanh erf atan2 pow.

NumPy is their eager code. Each has a body too, branch-free and within 2 ULP, for backends without a fast
version.
"""

from __future__ import annotations

import numpy as np

from ...ir import dtypes
from ...tensor import Tensor
from ..declare import ANALYTIC, FLOATING, PRECISE, SMOOTH, composite
from ..eager import erf as eager_erf
from ..primitives import eq, le, logical_and, logical_not, lt, neg, real, where
from . import circular as turn
from . import exponential as lower
from . import special

TWO_OVER_SQRT_PI = 1.1283791670955126

# fmt: off
exp  = composite(ANALYTIC, eager=np.exp,    name="exp",  grad=lambda g, y, _x: (g * y,))(lower.exp)
log  = composite(ANALYTIC, eager=np.log,    name="log",  grad=lambda g, _y, x: (g / x,))(lower.log)
sin  = composite(ANALYTIC, eager=np.sin,    name="sin",  grad=lambda g, _y, x: (sin_grad(g, x),),
                 signed_zero=True)(turn.sin)
cos  = composite(ANALYTIC, eager=np.cos,    name="cos",  grad=lambda g, _y, x: (cos_grad(g, x),))(turn.cos)
tanh = composite(SMOOTH,   eager=np.tanh,   name="tanh", grad=lambda g, y, _x: (g * (1 - y * y),),
                 signed_zero=True)(lower.tanh)
erf  = composite(FLOATING, eager=eager_erf, name="erf",  grad=lambda g, _y, x: (erf_grad(g, x),),
                 signed_zero=True)(special.erf)

atan2 = composite(PRECISE, eager=np.arctan2, name="atan2", grad=lambda g, _y, a, b: atan2_grad(g, a, b),
                  signed_zero=True)(turn.atan2)
pow   = composite(ANALYTIC, eager=np.power,   name="pow",   grad=lambda g, y, a, b: pow_grad(g, y, a, b))(
    lower.pow)
# fmt: on


def sin_grad(g: Tensor, x: Tensor) -> Tensor:
    """Return ``g * cos(x)``."""
    return g * cos(x)


def cos_grad(g: Tensor, x: Tensor) -> Tensor:
    """Return ``-g * sin(x)``."""
    return neg(g * sin(x))


def erf_grad(g: Tensor, x: Tensor) -> Tensor:
    """Return the density ``2 / sqrt(pi) * exp(-x**2)``."""
    return g * TWO_OVER_SQRT_PI * exp(neg(x * x))


def atan2_grad(g: Tensor, y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``x / (x**2 + y**2)`` and ``-y / (x**2 + y**2)``, without overflow of the squares."""
    steep = lt(x * x, y * y)
    small, large = where(steep, x, y), where(steep, y, x)
    ratio = small / large
    unit = g / (large + small * ratio)
    return where(steep, ratio * unit, unit), neg(where(steep, unit, ratio * unit))


def pow_grad(g: Tensor, z: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``y * x**(y - 1)``, 0 for ``x**0``, and ``z * log(x)``, 0 where the power is constant 0."""
    flat = logical_and(eq(x, 0), le(0, real(y) if y.dtype in dtypes.COMPLEX else y))
    # Next to 0 ``y / x`` is not finite, elsewhere its slope in `y` counts.
    # What is not chosen has finite slopes.
    tiny = eq(x, 0) if x.dtype in dtypes.COMPLEX else logical_not(lt(0, x * x))
    level = logical_and(eq(y, 0), tiny)
    by_base = where(level, 0, g * y * pow(where(level, 1, x), y - 1))
    return by_base, where(flat, 0, g * z * log(where(flat, 1, x)))
