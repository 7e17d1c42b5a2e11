"""Every way in which threads may share the work, forced by sizes and by the device, against NumPy."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from mgb_cuda import Packing
from mgb_cuda.testing import joins, variants
from mgb_cuda.testing.host import missing
from mgb_cuda.testing.programs import KINDS, softmax, total
from mgb_nvrtc.geometry import magic
from nvrtc_geometries import GEOMETRIES
from nvrtc_helpers import BENCH

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


class TestGeometry(variants.Geometries):
    bench = BENCH
    staying = frozenset()  # one pass finds all folds, and the others are longer than registers
    tables: ClassVar = {
        "geometry": GEOMETRIES,
        "narrow": ["a block", "one odd row", "few long rows", "columns", "both ends"],
        "most": [128, 32],
    }

    def tells(self, name: str, function: Any) -> bool:
        return function is not total or "stay" not in name

    def test_rows_stay_in_registers_where_they_fit(self) -> None:
        for shape, stays in (((4, 16_384), True), ((4, 65_536), False)):
            _, variant = self.run(lambda x: softmax(x, (1,)), BENCH.device(512), np.ones(shape, np.float32))
            assert variant.stays is stays


class TestLayouts(variants.Layouts):
    bench = BENCH
    unaligned = "lanes", {1, 4}


class TestOnline(variants.Online):
    bench = BENCH
    tables: ClassVar = {"columns": KINDS}


class TestPlaces:
    @hypothesis.settings(max_examples=300, derandomize=True, database=None)
    @hypothesis.given(st.integers(0, (1 << 31) - 1), st.integers(1, (1 << 31) - 1))
    def test_division_by_multiplication(self, place: int, length: int) -> None:
        for near in {place, place // length * length, max(0, place // length * length - 1)}:
            factor, shift = magic(length)
            assert factor < 1 << 32
            high = near * factor >> 32
            assert high + near < 1 << 32
            assert (high + near) >> shift == near // length

    @pytest.mark.parametrize("numbers", [[], ["n0"], ["n0", "n1", "n2"]])
    def test_a_struct_is_packed_as_c_lays_it_out(self, numbers: list[str]) -> None:
        packing = Packing(2, [("int", n) for n in numbers])
        fields = [("x", ctypes.c_uint64), ("y", ctypes.c_uint64), *((n, ctypes.c_int) for n in numbers)]
        struct = type("Params", (ctypes.Structure,), {"_fields_": fields})
        packed = struct.from_buffer_copy(packing.pack({n: i + 7 for i, n in enumerate(numbers)}))
        assert ctypes.sizeof(struct) == packing.size
        assert [getattr(packed, n) for n in numbers] == [i + 7 for i in range(len(numbers))]


class TestJoined(joins.Joins):
    bench = BENCH
    members, launches = 150, 5
