"""Conversions between float32 and narrow floats, by their bits: for who has no instruction for them.

Numbers are rounded once, to the nearest, of two equally near to the even one. No step computes with a float32
below the smallest normal one, so that a backend may flush these.
"""

from __future__ import annotations

import numpy as np

from ...ir import dtypes
from ...tensor import Tensor
from ..primitives import add, bit_and, bit_or, bitcast, cast, eq, lt, mul, shl, shr, sub, where

_SINGLE = dtypes.ROWS[dtypes.float32]

#: The bits of infinity and of NaN.
_INFINITY, _NAN = 0x7F800000, 0x7FC00000


def narrow_bits(x: Tensor, row: dtypes.Row) -> Tensor:
    """Return the bits of the narrow float nearest to a float32, as an unsigned integer."""
    found = _cut(x, row) if _is_cut(row) else _narrowed(x, row)
    return cast(found, dtype=row.word)


def widen_bits(bits: Tensor, row: dtypes.Row) -> Tensor:
    """Return the float32 that the bits of a number of a narrow float stand for."""
    bits = cast(bits, dtype=dtypes.uint32)
    found = shl(bits, 32 - row.bits) if _is_cut(row) else _widened(bits, row)
    return bitcast(found, dtype=dtypes.float32)


def _is_cut(row: dtypes.Row) -> bool:
    """Return whether the bits begin those of a float32, so that large numbers round to infinity."""
    return row.exponent == _SINGLE.exponent and row.infinite


def _cut(x: Tensor, row: dtypes.Row) -> Tensor:
    bits, rest = bitcast(x, dtype=dtypes.uint32), 32 - row.bits
    high = shr(bits, rest)
    rounded = shr(add(bits, add(bit_and(high, 1), (1 << rest - 1) - 1)), rest)
    return where(eq(x, x), rounded, bit_or(high, 1 << row.digits - 1))


def _narrowed(x: Tensor, row: dtypes.Row) -> Tensor:
    bits, rest = bitcast(x, dtype=dtypes.uint32), _SINGLE.digits - row.digits
    size, sign = bit_and(bits, (1 << 31) - 1), shl(shr(bits, 31), row.bits - 1)
    odd = bit_and(shr(size, rest), 1)
    near = sub(shr(add(size, add(odd, (1 << rest - 1) - 1)), rest), (_SINGLE.bias - row.bias) << row.digits)
    # Below the normal numbers the last bit of a sum with `unit` is worth as much as theirs.
    unit = np.float32(2.0 ** (1 - row.bias - row.digits + _SINGLE.digits))
    fixed = add(bitcast(size, dtype=dtypes.float32), float(unit))
    fixed = sub(bitcast(fixed, dtype=dtypes.uint32), int(unit.view(np.uint32)))
    near = where(lt(size, (_SINGLE.bias - row.bias + 1) << _SINGLE.digits), fixed, near)
    top, nan = _patterns(row)
    near = where(lt(top, near), top + 1 if row.infinite else nan, near)
    if row.infinite:
        near = where(eq(x, x), near, nan)
    return bit_or(near, sign)


def _widened(bits: Tensor, row: dtypes.Row) -> Tensor:
    size, sign = bit_and(bits, (1 << row.bits - 1) - 1), shl(shr(bits, row.bits - 1), 31)
    large = add(shl(size, _SINGLE.digits - row.digits), (_SINGLE.bias - row.bias) << _SINGLE.digits)
    small = mul(
        cast(cast(size, dtype=dtypes.int32), dtype=dtypes.float32), 2.0 ** (1 - row.bias - row.digits)
    )
    found = where(lt(size, 1 << row.digits), bitcast(small, dtype=dtypes.uint32), large)
    top, _ = _patterns(row)
    found = where(lt(top, size), _NAN, found)
    if row.infinite:
        found = where(eq(size, top + 1), _INFINITY, found)
    return bit_or(found, sign)


def _patterns(row: dtypes.Row) -> tuple[int, int]:
    """Return the bits of the largest number, and of NaN without its sign."""
    largest, nan = (int(np.array(v).astype(row.dtype).view(row.word)) for v in (row.most, np.nan))
    return largest, nan & (1 << row.bits - 1) - 1
