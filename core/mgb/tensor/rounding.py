"""Numbers that are rounded to a narrow float once, where NumPy rounds them to float32 on the way.

S. Boldo and G. Melquiond, "When double rounding is odd", 2005.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import dtypes


def ready_to_round(x: Any, dtype: np.dtype[Any]) -> Any:
    """Prepare `x` so that ``astype(dtype)`` rounds its numbers only once."""
    return to_single(x, dtypes.ROWS[dtype]) if dtype in _TWICE and x.dtype in _LONGER else x


#: The narrow floats that NumPy reaches by float32 alone: not its own, which it rounds to at once.
_TWICE = frozenset(d for d in dtypes.HALVES if d.isbuiltin != 1)

#: Dtypes with numbers that float32 has no room for.
_LONGER = frozenset(d for d in (*dtypes.INTEGERS, *dtypes.FLOATS) if not dtypes.exact(d, dtypes.float32))


def to_single(x: Any, row: dtypes.Row) -> Any:
    """Return `x` as float32, rounded to odd where a narrow float rounds again: inexact ones end in a 1."""
    exact = x if x.dtype in dtypes.FLOATS else _long_to_odd(x).astype(np.float64)
    near = exact.astype(np.float32)
    bits = near.view(np.int32)
    rest = dtypes.ROWS[dtypes.float32].digits - row.digits
    middle = (bits & ((1 << rest) - 1)) == 1 << (rest - 1)
    if row.bias < dtypes.ROWS[dtypes.float32].bias:  # its subnormal numbers have other middles
        middle |= np.abs(near) < 2.0 ** (1 - row.bias)
    size, found, even = np.abs(exact[middle]), np.abs(near[middle]), ~bits[middle] & 1
    bits[middle] += even * ((size > found).astype(np.int32) - (size < found))
    return near


def _long_to_odd(x: Any) -> Any:
    """Return integers as float64 holds them: of longer ones 53 bits stay, the last is 1 if any is lost."""
    if x.dtype.itemsize < 8:
        return x
    low = x & 0x7FF
    kept = (x - low) | ((low != 0).astype(x.dtype) << 11)
    return np.where(np.abs(x) >> 53 == 0, x, kept)
