"""Division that rounds down, its remainder, and C's: exact, as NumPy has them, without a branch or a trap.

Backends print `quotient` and, as it suits them, `fmod_float` for floats or `fmod_double` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir import dtypes
from ...tensor import Tensor
from ..declare import COUNTING, FLOATING, NUMERIC, Dtypes, Typing, composite, primitive
from ..elementwise import copysign, ne, trunc
from ..primitives import bit_xor, cast, eq, floor, fma, logical_and, logical_or, lt, neg, where
from . import floats

#: What an infinite divisor is taken for: of it no float32 has the half.
_FAR = 2.0**200

#: Bits of the largest quotient. What a step finds of them: where a product and a sum are rounded once; and
#: where the product must be exact by itself.
_QUOTIENT, _FUSED, _APART = 277, 47, 28


def _doubles(operands: Sequence[dtypes.Operand]) -> Dtypes:
    return (dtypes.float64,) * len(operands)


def _quotient_eager(a: Any, b: Any) -> Any:
    """Divide like NumPy, which rounds down, but up if the remainder gets two signs; division by 0 gives 0."""
    down = np.floor_divide(a, b)
    if a.dtype.kind == "u":
        return down
    rest = a - down * b
    return np.where((b != 0) & (rest != 0) & ((a < 0) != (b < 0)), down + a.dtype.type(1), down)


def _quotient_guard(a: Tensor, b: Tensor) -> Tensor:
    """Divide by 1 where the instruction would trap, and choose what is right there."""
    zero = eq(b, 0)
    if a.dtype in dtypes.UNSIGNED:
        return where(zero, 0, quotient(a, where(zero, 1, b)))
    minus = eq(b, -1)
    toward = quotient(a, where(logical_or(zero, minus), 1, b))
    return where(zero, 0, where(minus, neg(a), toward))


quotient = primitive(
    "quotient",
    _quotient_eager,
    COUNTING,
    guard=_quotient_guard,
    meaning="``a / b`` of integers, rounded towards 0. Nothing traps: by 0 it gives 0, and the least "
    "number by -1 is itself.",
)


def _fmod_eager(a: Any, b: Any) -> Any:
    return np.fmod(a, b)  # by a name of its own: the op that NumPy's function stands for is `fmod`


fmod_double = primitive(
    "fmod_double",
    _fmod_eager,
    Typing(_doubles, lambda given: given[0]),
    meaning="C's ``fmod`` of float64, exact: ``a - n * b`` with the whole `n` next to ``a / b`` towards 0, "
    "and the sign of `a`, when it is 0 too. NaN of an infinite `a` and by 0; `a` by infinity.",
)


@composite(FLOATING, eager=_fmod_eager, differentiable=False)
@floats.widen_halves
def fmod_float(a: Tensor, b: Tensor) -> Tensor:
    """Return C's ``fmod`` of any floats: the exact remainder, with the sign of `a`."""
    if a.dtype == dtypes.float64:
        return fmod_double(a, b)
    rest, divisor = (floats.magnitude(cast(x, dtype=dtypes.float64)) for x in (a, b))
    return copysign(cast(remainder(rest, divisor), dtype=a.dtype), a)


def remainder(rest: Tensor, divisor: Tensor, fused: bool = False) -> Tensor:
    """Return the remainder of the magnitudes of two float32, which are given in float64: a long division.

    Each step takes the nearest multiple of ``divisor * 2**k`` from the rest, found by the reciprocal; what is
    left, of either sign, is half of that at most, and a little. A multiple has the 24 digits of the divisor
    and those that its step finds; a rest has none below the last one of both numbers, and 26 at most. So
    they are exact, whether or not a product and a sum are rounded at once. If they are `fused`, for sure,
    there are fewer steps.
    """
    bits = _FUSED if fused else _APART
    divisor = floats.at_most(divisor, _FAR)
    reciprocal, minus = 1.0 / divisor, neg(divisor)
    for step in reversed(range(-(-_QUOTIENT // bits))):
        near = 1.5 * 2.0 ** (52 + bits * step)  # around it, numbers are 2**(bits * step) apart
        rest = fma(fma(rest, reciprocal, near) - near, minus, rest)
    return where(lt(rest, 0), rest + divisor, rest)


@composite(NUMERIC, eager=np.fmod, grad=lambda g, _y, a, b: (g, neg(g * trunc(a / b))))
@floats.widen_halves
def fmod(a: Tensor, b: Tensor) -> Tensor:
    """Return the remainder of C: it has the sign of `a`. (``mod`` has that of `b`.)"""
    return fmod_float(a, b) if a.dtype in dtypes.FLOATS else where(eq(b, 0), 0, a - quotient(a, b) * b)


@composite(NUMERIC, eager=np.remainder, grad=lambda g, _y, a, b: (g, neg(g * floor(a / b))))
@floats.widen_halves
def mod(a: Tensor, b: Tensor) -> Tensor:
    """Return the remainder that has the sign of `b`, also when it is 0; of integers ``x % 0`` is 0."""
    if a.dtype not in dtypes.FLOATS:
        return where(eq(b, 0), 0, a - floor_div(a, b) * b)
    rest = fmod_float(a, b)
    moved = where(ne(lt(rest, 0), lt(b, 0)), rest + b, rest)
    return where(eq(rest, 0), copysign(0, b), moved)


@composite(NUMERIC, eager=np.floor_divide, differentiable=False)
@floats.widen_halves
def floor_div(a: Tensor, b: Tensor) -> Tensor:
    """Return the quotient rounded down: by the exact remainder, right where ``floor(a / b)`` is not.

    Of integers ``x // 0`` is 0, and the least number by -1 wraps.
    """
    if a.dtype not in dtypes.FLOATS:
        toward = quotient(a, b)
        if a.dtype in dtypes.UNSIGNED:
            return toward
        rest = a - toward * b
        down = logical_and(logical_and(ne(rest, 0), ne(b, 0)), lt(bit_xor(rest, b), 0))
        return where(down, toward - 1, toward)
    rest = fmod_float(a, b)
    whole = (a - rest) / b
    whole = where(logical_and(ne(rest, 0), ne(lt(rest, 0), lt(b, 0))), whole - 1, whole)
    low = floor(whole)
    low = where(lt(0.5, whole - low), low + 1, low)
    ratio = a / b
    return where(eq(b, 0), ratio, where(eq(whole, 0), copysign(0, ratio), low))
