"""Every shape that a tile may have, forced by sizes and by the device, against NumPy."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from mgb.ops.primitives import cast
from mgb_cuda.testing import joins, variants
from mgb_cuda.testing.programs import KINDS, softmax
from mgb_triton.testing.interpreter import missing
from triton_geometries import GEOMETRIES, Tiles
from triton_helpers import BENCH

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


#: Kinds of rows that the interpreter, which is slow, is given here.
QUICK = ("special", "outliers")


class TestGeometry(Tiles, variants.Geometries):
    staying = frozenset({1000})
    tables: ClassVar = {
        "geometry": GEOMETRIES,
        "narrow": ["many short rows", "rows", "one odd row", "shared rows", "columns"],
        "most": [64, 32],
    }

    def tells(self, name: str, function: Any) -> bool:
        return function is softmax

    def test_120_inputs_with_different_strides(self) -> None:
        arrays = [np.full((2, 3 + k, 4 + k, 5 + k), k, np.float32)[:, :3, :4, :5] for k in range(120)]
        (found,), variant = self.run(lambda *xs: sum(xs[1:], xs[0]), BENCH.device(4), *arrays)
        assert len(variant.classes) == 120
        np.testing.assert_array_equal(found, np.full((2, 3, 4, 5), sum(range(120)), np.float32))


class TestLayouts(Tiles, variants.Layouts):
    unaligned = "askew", {(), (0,)}


class TestOnline(Tiles, variants.Online):
    tables: ClassVar = {
        "rows": [*QUICK, *(pytest.param(k, marks=pytest.mark.slow) for k in KINDS if k not in QUICK)],
        "columns": [pytest.param("outliers", marks=pytest.mark.slow)],
        "shared": ["special", pytest.param("far from 0", marks=pytest.mark.slow)],
    }


class TestCasts(Tiles):
    @pytest.mark.parametrize("target", ["float16", "bfloat16"])
    @pytest.mark.parametrize("source", ["int32", "uint32", "int64", "uint64", "float64"])
    def test_casts_to_16_bits_round_once(self, source: str, target: str) -> None:
        """Numbers that lie so near the middle of two others that float32 takes them for it."""
        dtype = np.dtype(target)
        bits = 11 if target == "float16" else 8
        powers = range(bits + 1, 16 if target == "float16" else 62 if source[-2:] == "64" else 31)
        found = [[(1 << p) + (1 << (p - bits)) + d for d in (-1, 0, 1)] for p in powers]
        numbers = np.array([0, 1, *(n for three in found for n in three)], np.dtype(source))
        if source[0] != "u":
            numbers = np.concatenate([numbers, -numbers])
        (got,), _ = self.run(lambda x: cast(x, dtype=dtype), BENCH.device(4), numbers)
        exact = np.array([rounded(int(n), bits) for n in numbers.tolist()])
        np.testing.assert_array_equal(got.astype(np.float64), exact)


def rounded(number: int, bits: int) -> float:
    """To so many digits, ties to even, in whole numbers."""
    size, sign = abs(number), -1 if number < 0 else 1
    away = max(0, size.bit_length() - bits)
    quotient, rest = divmod(size, 1 << away)
    half = 1 << away >> 1
    quotient += away > 0 and (rest > half or (rest == half and quotient & 1))
    return float(sign * (quotient << away))


class TestJoined(joins.Joins):
    bench = BENCH
    members, launches = 260, 4
