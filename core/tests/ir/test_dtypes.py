"""The facts of each dtype, against published formats and every number of the small ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mgb import dtypes

#: Of each float the bits after the first one, those of the exponent, and the largest number, as published.
FORMATS = {
    "float16": (10, 5, 65504.0),
    "bfloat16": (7, 8, (2 - 2.0**-7) * 2.0**127),
    "float32": (23, 8, (2 - 2.0**-23) * 2.0**127),
    "float64": (52, 11, (2 - 2.0**-52) * 2.0**1023),
}


def test_every_float_has_a_published_format() -> None:
    assert set(FORMATS) == {d.name for d in dtypes.FLOATS}


@pytest.mark.parametrize("name", FORMATS)
def test_floats_are_of_the_published_formats(name: str) -> None:
    row = dtypes.ROWS[dtypes.as_dtype(name)]
    assert (row.digits, row.exponent, row.most) == FORMATS[name]
    assert row.bits == 1 + row.exponent + row.digits and row.bias == 2 ** (row.exponent - 1) - 1
    assert row.infinite and row.carrier.name == ("float32" if row.bits < 32 else name)


@pytest.mark.parametrize("dtype", dtypes.HALVES)
def test_narrow_floats_have_the_numbers_that_their_rows_say(dtype: np.dtype[Any]) -> None:
    row = dtypes.ROWS[dtype]
    bits = np.arange(1 << row.bits, dtype=row.word)
    size = (bits & ((1 << (row.bits - 1)) - 1)).astype(np.int64)
    fraction, exponent = size & ((1 << row.digits) - 1), size >> row.digits
    normal = np.ldexp(1 + fraction / 2.0**row.digits, exponent - row.bias)
    want = np.where(exponent == 0, np.ldexp(fraction / 2.0**row.digits, 1 - row.bias), normal)
    with np.errstate(invalid="ignore"):
        got = np.abs(bits.view(dtype).astype(np.float64))
    there = want <= row.most
    np.testing.assert_array_equal(got[there], want[there])
    assert np.isinf(got).sum() == 2 * row.infinite and not np.isfinite(got[~there]).any()


@pytest.mark.parametrize("dtype", dtypes.INTEGERS)
def test_integers_have_the_sizes_that_their_rows_say(dtype: np.dtype[Any]) -> None:
    row, info = dtypes.ROWS[dtype], np.iinfo(dtype)
    assert 2**row.digits - 1 == info.max and row.signed == (info.min < 0) and row.bits == info.bits
