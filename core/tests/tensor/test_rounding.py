"""Casts to narrow floats round once, from any dtype: against exact comparisons with all of their numbers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mgb
import ml_dtypes
import numpy as np
import pytest
from mgb import dtypes
from mgb.tensor.rounding import to_single

#: Floats of 8 bits with infinities and without, and wider ones.
NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e3m4")


def finite(dtype: np.dtype[Any]) -> list[float]:
    """Return all finite numbers of a narrow dtype that are not negative, ascending."""
    word = np.dtype(f"uint{8 * dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        every = np.arange(1 << (8 * dtype.itemsize - 1), dtype=word).view(dtype).astype(np.float64)
    found: list[float] = sorted(set(every[np.isfinite(every)].tolist()))
    return found


def nearest(value: Fraction, numbers: list[float]) -> set[float]:
    """Return the numbers that are nearest to `value`, two of a tie."""
    away = [abs(Fraction(n) - value) for n in numbers]
    return {n for n, a in zip(numbers, away, strict=True) if a == min(away)}


def beside_middles(numbers: list[float]) -> np.ndarray[Any, Any]:
    """Return float64 in the middle of neighbours, and so near to it that float32 rounds to the middle."""
    low, high = np.array(numbers[:-1]), np.array(numbers[1:])
    some = np.linspace(0, low.size - 1, min(low.size, 60)).astype(int)
    middle = ((low + high) / 2)[some]
    return np.concatenate([middle, middle * (1 + 2.0**-40), middle * (1 - 2.0**-40)])


@pytest.mark.parametrize("name", NARROW)
def test_float64_beside_a_middle_of_two_numbers_is_rounded_once(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    numbers = finite(dtype)
    x = beside_middles(numbers)
    got = to_single(x, dtypes.float_row(dtype)).astype(dtype).astype(np.float64)
    for value, result in zip(x.tolist(), got.tolist(), strict=True):
        at = int(np.searchsorted(numbers, value))
        near = nearest(Fraction(value), numbers[max(at - 2, 0) : at + 2])
        assert result in near, (value, result, near)
        if len(near) == 2:  # of equally near ones the even one
            assert np.array(result).astype(dtype).view(f"uint{8 * dtype.itemsize}") % 2 == 0


@pytest.mark.parametrize("dtype", dtypes.HALVES)
@pytest.mark.parametrize("source", ["int32", "int64", "uint32", "uint64", "float64"])
def test_numbers_beyond_float32_are_rounded_once(source: str, dtype: np.dtype[Any]) -> None:
    row = dtypes.ROWS[dtype]
    bits, top = row.digits, min(row.bias, 30)
    least = (1 << top) + (1 << top - 1 - bits)
    x = np.array([least - 1, least, least + 1, least + 1 + (1 << top - bits), 0, 1], source)
    got = mgb.tensor(x, dtype=source).astype(dtype).numpy().astype(np.float64)
    for value, result in zip(x.tolist(), got.tolist(), strict=True):
        scale = Fraction(2) ** (max(int(value).bit_length() - 1 - bits, 0))
        assert result == round(Fraction(value) / scale) * scale  # Python rounds ties to even


def test_nan_infinity_and_numbers_too_large_for_float32_stay_what_they_are() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, 5e-324, -5e-324, -0.0])
    with np.errstate(over="ignore"):
        got = to_single(x, dtypes.ROWS[dtypes.bfloat16]).astype(dtypes.bfloat16).astype(np.float64)
    np.testing.assert_array_equal(got, [np.nan, np.inf, -np.inf, np.inf, -np.inf, 0, 0, 0])
    np.testing.assert_array_equal(np.signbit(got[1:]), np.signbit(x[1:]))
