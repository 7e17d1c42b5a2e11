"""Casts by exact arithmetic: the value itself, rounded once to nearest, truncated, or wrapped."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from mgb import dtypes

FLOATS, INTEGERS = frozenset(d.name for d in dtypes.FLOATS), frozenset(d.name for d in dtypes.INTEGERS)


def numbers(array: np.ndarray) -> list[Any]:
    """Return the elements as Python's numbers, exactly."""
    with np.errstate(invalid="ignore"):  # of NaN
        found: list[Any] = (array.astype(np.float64) if array.dtype in dtypes.FLOATS else array).tolist()
    return found


@cache
def _format(dtype: str) -> tuple[int, int, int]:
    """Return of a float dtype the bits after the first one, the least exponent, and one that is too large."""
    info = ml_dtypes.finfo(dtypes.as_dtype(dtype))
    return int(info.nmant), int(info.minexp), int(info.maxexp)


def nearest(value: float, dtype: str) -> float:
    """Round `value` once to a float dtype; a tie goes to the even neighbour."""
    if not value or not math.isfinite(value):
        return float(value)
    bits, least, end = _format(dtype)
    top, bottom = abs(value).as_integer_ratio()  # the latter a power of 2
    below = bottom.bit_length() - 1
    unit = max(top.bit_length() - 1 - below, least) - bits
    cut = max(0, unit + below)
    whole, rest, half = top >> cut, top & ((1 << cut) - 1), (1 << cut) >> 1
    whole += cut > 0 and (rest > half or (rest == half and whole % 2 == 1))
    unit = cut - below
    found = math.inf if whole.bit_length() + unit > end else math.ldexp(whole, unit)
    return math.copysign(found, value)


def fits(value: float, target: str) -> bool:
    """Return whether an integer dtype can hold what is left of `value` when its fraction is cut off."""
    info = np.iinfo(target)
    return math.isfinite(value) and info.min <= math.trunc(value) <= info.max


def converted(array: np.ndarray, target: str) -> np.ndarray:
    """Convert `array` to another dtype, to whose integers its values `fits`; integers wrap."""
    values, wanted = numbers(array), dtypes.as_dtype(target)
    if target in FLOATS:
        with np.errstate(invalid="ignore"):
            return np.array([nearest(v, target) for v in values], np.float64).astype(wanted)
    if target == "bool":
        return np.array([v != 0 for v in values])
    mask = (1 << 8 * wanted.itemsize) - 1
    words = [math.trunc(v) & mask for v in values]
    return np.array(words, np.uint64).astype(f"uint{8 * wanted.itemsize}").view(wanted)
