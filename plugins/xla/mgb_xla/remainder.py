"""The exact remainder of floats, in float64: there it is not lost where float32 reads subnormal numbers as 0.

XLA's own calls ``fmod``, which takes a turn for each bit of the quotient. Here float32 numbers are divided in
float64, 28 bits of the quotient at a time: a step takes from the rest the nearest multiple of the divisor and
a power of two. That multiple has the 24 bits of the divisor and 28 at most, so it is exact, whether or not
LLVM makes one rounding of product and difference. The quotient comes from the reciprocal, so what is left is
half of the divisor times that power, and a little, without a digit below the last one of both numbers: it is
exact, too.
"""

from __future__ import annotations

import numpy as np
from jax import lax

from .shapes import Value, like

#: What remainders are of.
WIDE = np.dtype(np.float64)

#: Bits of the quotient that a step finds, and steps for the largest quotient, of 277 bits.
_BITS, _STEPS = 28, 10

#: What an infinite divisor is taken for: of it no float32 has the half.
_FAR = 2.0**200


def remainder(a: Value, b: Value) -> Value:
    """Compute ``fmod``, but in float64, and the sign of 0 is any."""
    if a.dtype == WIDE:
        return lax.rem(a, b)
    rest, divisor = (lax.convert_element_type(lax.abs(x), WIDE) for x in (a, b))
    divisor = lax.min(divisor, like(divisor, _FAR))
    reciprocal = lax.div(like(divisor, 1), divisor)
    for step in reversed(range(_STEPS)):
        unit = 2.0 ** (_BITS * step)
        ratio = lax.mul(lax.mul(rest, reciprocal), like(rest, 1 / unit))
        whole = lax.mul(lax.round(ratio, lax.RoundingMethod.TO_NEAREST_EVEN), like(rest, unit))
        rest = lax.sub(rest, lax.mul(whole, divisor))
    rest = lax.select(lax.lt(rest, like(rest, 0)), lax.add(rest, divisor), rest)
    return lax.select(lax.lt(a, like(a, 0)), lax.neg(rest), rest)
