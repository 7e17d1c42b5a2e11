"""The transcendental words: exp log sin cos tanh erf atan2 pow."""

from __future__ import annotations

import numpy as np

from .declare import FLOATING, primitive
from .eager import erf as eager_erf
from .primitives import neg, where

TWO_OVER_SQRT_PI = 1.1283791670955126

# fmt: off
exp   = primitive("exp",   np.exp,      FLOATING, lambda g, y, _x: (g * y,))
log   = primitive("log",   np.log,      FLOATING, lambda g, _y, x: (g / x,))
sin   = primitive("sin",   np.sin,      FLOATING, lambda g, _y, x: (g * cos(x),))
cos   = primitive("cos",   np.cos,      FLOATING, lambda g, _y, x: (neg(g * sin(x)),))
tanh  = primitive("tanh",  np.tanh,     FLOATING, lambda g, y, _x: (g * (1 - y * y),))
erf   = primitive("erf",   eager_erf,   FLOATING, lambda g, _y, x: (g * TWO_OVER_SQRT_PI * exp(neg(x * x)),))
atan2 = primitive("atan2", np.arctan2,  FLOATING, lambda g, _y, a, b: (g * b / (a * a + b * b), neg(g * a / (a * a + b * b))))
pow   = primitive("pow",   np.power,    FLOATING, lambda g, y, a, b: (
    g * b * pow(a, b - 1), g * where(a == 0, 0.0, y * log(a))))
# fmt: on
