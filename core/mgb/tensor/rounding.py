"""Numbers that are rounded to bfloat16 once, where NumPy rounds them twice."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import dtypes


def ready_to_round(x: Any, dtype: np.dtype[Any]) -> Any:
    """Prepare `x` so that ``astype(dtype)`` rounds its numbers only once."""
    return _to_single(x) if dtype is _BFLOAT16 and x.dtype in _LONGER else x


_BFLOAT16 = dtypes.bfloat16

#: Dtypes with numbers that float32 has no room for: NumPy rounds them to that on the way to bfloat16.
_LONGER = frozenset({dtypes.float64, dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64})


def _to_single(x: Any) -> Any:
    """`x` as float32, but the number beside it where that lies between two bfloat16 and `x` does not."""
    exact = x if x.dtype.kind == "f" else _long_to_odd(x).astype(np.float64)
    near = exact.astype(np.float32)
    bits = near.view(np.int32)
    tie = (bits & 0xFFFF) == 0x8000
    size, found = np.abs(exact[tie]), np.abs(near[tie])
    bits[tie] += (size > found).astype(np.int32) - (size < found)
    return near


def _long_to_odd(x: Any) -> Any:
    """Integers as float64 has room for them: of longer ones 53 bits stay, the last is 1 if any is lost."""
    if x.dtype.itemsize < 8:
        return x
    low = x & 0x7FF
    kept = (x - low) | ((low != 0).astype(x.dtype) << 11)
    return np.where(np.abs(x) >> 53 == 0, x, kept)
