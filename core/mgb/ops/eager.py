"""What NumPy does not spell in one call, for the eager rules of the words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def fma(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c``; one rounding or two, as the machine likes."""
    return a * b + c


def where(condition: Any, a: Any, b: Any) -> Any:
    return np.where(condition, a, b)


def cast(x: Any, dtype: np.dtype[Any]) -> Any:
    """Float to integer truncates; a value that does not fit, or NaN, gives what the machine gives."""
    return x.astype(dtype)


def bitcast(x: Any, dtype: np.dtype[Any]) -> Any:
    return np.copy(x, order="C").reshape(-1).view(dtype).reshape(x.shape)


def iota(shape: tuple[int, ...], dtype: np.dtype[Any], device: str = "xpux:0") -> Any:
    return np.arange(math.prod(shape)).astype(dtype).reshape(shape)


def shl(x: Any, count: Any) -> Any:
    return np.left_shift(x, count & (x.dtype.itemsize * 8 - 1))


def shr(x: Any, count: Any) -> Any:
    return np.right_shift(x, count & (x.dtype.itemsize * 8 - 1))


def mulhi(a: Any, b: Any) -> Any:
    bits = a.dtype.itemsize * 8
    if bits < 64:
        wide = np.dtype(f"{a.dtype.kind}{2 * a.dtype.itemsize}")
        return (a.astype(wide) * b.astype(wide) >> wide.type(bits)).astype(a.dtype)
    half, mask = a.dtype.type(32), a.dtype.type(0xFFFFFFFF)
    al, ah, bl, bh = a & mask, a >> half, b & mask, b >> half
    low = (al.astype(np.uint64) * bl.astype(np.uint64) >> np.uint64(32)).astype(a.dtype)
    middle = ah * bl + low
    other = al * bh + (middle & mask)
    return ah * bh + (middle >> half) + (other >> half)


def erf(x: Any) -> Any:
    from scipy import special

    return special.erf(x)
