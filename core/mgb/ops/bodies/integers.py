"""Shifts, powers and long products of integers, for every count, exponent and factor."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ConversionError
from ...ir import dtypes
from ...tensor import Tensor
from ..creation import full_like
from ..declare import COUNTING, composite
from ..eager import mulhi as eager_mulhi
from ..primitives import bit_and, cast, eq, le, logical_and, logical_or, lt, mul, shl, shr, where


def _has(x: Any, count: Any) -> Any:
    """Return whether `count` is the number of a bit of `x`."""
    return (count >= 0) & (count < x.dtype.itemsize * 8)


def _left_shift(x: Any, count: Any) -> Any:
    if isinstance(x, np.ndarray):
        return np.left_shift(x, count)
    return np.where(_has(x, count), np.left_shift(x, count & (x.dtype.itemsize * 8 - 1)), x.dtype.type(0))


def _right_shift(x: Any, count: Any) -> Any:
    if isinstance(x, np.ndarray):
        return np.right_shift(x, count)
    last = x.dtype.type(x.dtype.itemsize * 8 - 1)
    shifted = np.right_shift(x, np.where(_has(x, count), count, last))
    return shifted if x.dtype.kind == "i" else np.where(_has(x, count), shifted, x.dtype.type(0))


def _within(x: Tensor, count: Tensor) -> Tensor:
    """Return `_has` of `x` and `count`."""
    below = lt(count, x.dtype.itemsize * 8)
    return logical_and(le(0, count), below) if x.dtype in dtypes.SIGNED else below


@composite(COUNTING, eager=_left_shift, differentiable=False)
def left_shift(x: Tensor, count: Tensor) -> Tensor:
    """Return ``x << count``; a count of the width or more, or a negative one, shifts every bit out."""
    return where(_within(x, count), shl(x, count), 0)


@composite(COUNTING, eager=_right_shift, differentiable=False)
def right_shift(x: Tensor, count: Tensor) -> Tensor:
    """Return ``x >> count``, likewise; a negative number leaves its sign, which is -1."""
    within = _within(x, count)
    if x.dtype in dtypes.UNSIGNED:
        return where(within, shr(x, count), 0)
    return shr(x, where(within, count, x.dtype.itemsize * 8 - 1))


@composite(COUNTING, eager=eager_mulhi, differentiable=False)
def mulhi(a: Tensor, b: Tensor) -> Tensor:
    """Return the high half of the product of twice the width: ``floor(a * b / 2**width)``."""
    width = 8 * a.dtype.itemsize
    if width < 64:
        wide = dtypes.BY_NAME[a.dtype.name.replace(str(width), str(2 * width))]
        return cast(shr(mul(cast(a, dtype=wide), cast(b, dtype=wide)), width), dtype=a.dtype)
    # Of the halves only the lower ones have a product that needs all 64 bits, and no sign.
    mask = 0xFFFFFFFF
    a_low, a_high, b_low, b_high = bit_and(a, mask), shr(a, 32), bit_and(b, mask), shr(b, 32)
    lows = mul(cast(a_low, dtype=dtypes.uint64), cast(b_low, dtype=dtypes.uint64))
    middle = a_high * b_low + cast(shr(lows, 32), dtype=a.dtype)
    other = a_low * b_high + bit_and(middle, mask)
    return a_high * b_high + shr(middle, 32) + shr(other, 32)


def _odd(x: Tensor) -> Tensor:
    return eq(bit_and(x, 1), 1)


def _integer_power(x: Any, exponent: Any) -> Any:
    if exponent.dtype.kind == "u" or not (exponent < 0).any():
        return np.power(x, exponent)
    one, negative = x.dtype.type(1), exponent < 0
    power = np.power(x, np.where(negative, 0, exponent))
    inverse = np.where(x == one, one, np.where(x == -one, one - 2 * (exponent & one), 0 * one))
    return np.where(negative, inverse, power)


@composite(COUNTING, eager=_integer_power, differentiable=False)
def integer_power(x: Tensor, exponent: Tensor) -> Tensor:
    """Raise to a power by squaring, exactly except for wrapping; negative powers round towards 0."""
    out, square = where(_odd(exponent), x, 1), x
    for bit in range(1, x.dtype.itemsize * 8 - (x.dtype in dtypes.SIGNED)):
        square = square * square
        out = where(_odd(shr(exponent, bit)), out * square, out)
    if x.dtype in dtypes.UNSIGNED:
        return out
    own = logical_or(eq(x, 1), eq(x, -1))
    inverse = where(own, where(_odd(exponent), x, 1), 0)
    return where(lt(exponent, 0), inverse, out)


def whole_power(x: Tensor, exponent: int) -> Tensor:
    """Return `x` times itself: the power of integers by a number that stands in the program.

    Raises
    ------
    ConversionError
        The exponent is negative.
    """
    if exponent < 0:
        raise ConversionError(
            f"pow: integers to the power {exponent} are not integers: write x.astype('float32') ** {exponent}"
        )
    square = cast(x, dtype=dtypes.int32) if x.dtype == dtypes.bool_ else x
    out: Tensor | None = None
    while exponent:
        if exponent & 1:
            out = square if out is None else mul(out, square)
        exponent >>= 1
        square = mul(square, square) if exponent else square
    if out is None:
        return full_like(square, 1)
    return +out if out is x else out
