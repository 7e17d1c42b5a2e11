"""Every way in which threads may share the work, forced by sizes and by the device, against NumPy."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from mgb.ops.reduce import reduce_max, reduce_sum
from mgb_conformance.cases import of
from mgb_conformance.judge import judge, problem
from mgb_cuda import Packing, Properties
from mgb_cuda.geometry import magic
from mgb_cuda.testing import joins, variants
from mgb_cuda.testing.geometries import GEOMETRIES
from mgb_cuda.testing.host import HostDevice, missing
from mgb_cuda.testing.programs import KINDS, check, normalise, rows_of, softmax, total
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
        for shape, stays in (((4, 32_768), True), ((4, 65_536), False)):
            _, variant = self.run(lambda x: softmax(x, (1,)), BENCH.device(512), np.ones(shape, np.float32))
            assert variant.stays is stays


class TestLayouts(variants.Layouts):
    bench = BENCH
    unaligned = "lanes", {1, 4}

    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    @pytest.mark.parametrize("shape", [(13, 5, 49), (4, 7, 7, 9), (2, 3, 1)], ids=str)
    def test_lanes_may_run_past_the_end_of_a_loop(self, shape: tuple[int, ...], dtype: str) -> None:
        """Beside what lies as the domain does, a number for each channel and one for each place."""
        x = np.arange(np.prod(shape)).reshape(shape).astype(dtype) % 31
        channel = np.arange(shape[1]).reshape(-1, *[1] * (len(shape) - 2)).astype(dtype)
        place = np.arange(shape[-1]).astype(dtype)
        (found,), variant = self.run(lambda x, c, p: x * c + p, BENCH.device(4), x, channel, place)
        assert variant.whole or shape[-1] == 1
        np.testing.assert_array_equal(found, x * channel + place)
        (found, other), _ = self.run(lambda x, c: [x * c, c * 2], BENCH.device(4), x, channel)
        np.testing.assert_array_equal(found, x * channel)
        np.testing.assert_array_equal(other, channel * 2)

    def test_reversed_axis_disables_vector_lanes(self) -> None:
        x, channel = np.ones((13, 5, 49), np.float32), np.ones((5, 1), np.float32)
        _, variant = self.run(lambda x, c: x * c, BENCH.device(4), x[:, ::-1], channel)
        assert not variant.whole and variant.lanes == 1


class TestOnline(variants.Online):
    bench = BENCH
    tables: ClassVar = {"rows": KINDS, "columns": KINDS, "shared": ["plain", "far from 0", "special"]}


class TestClusters(variants.Variants):
    """Rows that stay in the registers of several blocks, which meet in each other's shared memory."""

    bench = BENCH

    def device(self) -> HostDevice:
        return HostDevice(properties=Properties("host", (9, 0), 8))

    @pytest.mark.parametrize("kind", ["plain", "outliers", "special"])
    @pytest.mark.parametrize(("length", "blocks"), [(20_004, 2), (65_536, 4), (100_004, 8)])
    @pytest.mark.parametrize("function", [softmax, normalise], ids=lambda f: f.__name__)
    def test_rows_split_over_a_cluster(self, function: Any, length: int, blocks: int, kind: str) -> None:
        x = rows_of(kind, (6, length))
        (found,), variant = self.run(lambda x: function(x, (1,)), self.device(), x)
        assert variant.stays and not variant.split and variant.cluster == blocks
        assert problem(found, judge(of(lambda x: function(x, (1,)), x), [x])[0]) is None

    def test_several_reductions_and_a_row_result_in_a_cluster(self) -> None:
        x = np.random.default_rng(0).normal(size=(3, 40_000)).astype(np.float32)
        (y, most), variant = self.run(
            lambda x: [x / reduce_sum(x * x, axis=(1,)) + reduce_max(x, axis=(1,)), reduce_max(x, axis=(1,))],
            self.device(),
            x,
        )
        assert variant.cluster == 4
        wide = x.astype(np.float64)
        np.testing.assert_array_equal(most, x.max(1, keepdims=True))
        np.testing.assert_allclose(y, wide / (wide**2).sum(1, keepdims=True) + most, rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize(("rows", "capability"), [(1, (9, 0)), (6, (8, 0)), (6, (12, 0))])
    def test_clusters_are_not_used_for_few_rows_or_other_gpus(
        self, rows: int, capability: tuple[int, int]
    ) -> None:
        """Too few rows to keep a GPU busy, or another generation."""
        x = np.ones((rows, 40_000), np.float32)
        device = HostDevice(properties=Properties("host", capability, 12))
        (found,), variant = self.run(lambda x: softmax(x, (1,)), device, x)
        assert variant.cluster == 1 and not variant.stays
        np.testing.assert_allclose(found, 1 / 40_000, rtol=1e-6)

    def test_clusters_are_not_used_without_enough_registers(self) -> None:
        x = np.random.default_rng(0).normal(size=(6, 40_000)).astype(np.float32)
        device = variants.limited(self.device(), 256)
        (found,), variant = self.run(lambda x: softmax(x, (1,)), device, x)
        assert variant.cluster == 1 and variant.threads <= 256
        check(softmax, x, (1,), found)


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
    def test_parameters_are_packed_like_a_c_struct(self, numbers: list[str]) -> None:
        packing = Packing(2, [("int", n) for n in numbers])
        fields = [("x", ctypes.c_uint64), ("y", ctypes.c_uint64), *((n, ctypes.c_int) for n in numbers)]
        struct = type("Params", (ctypes.Structure,), {"_fields_": fields})
        packed = struct.from_buffer_copy(packing.pack({n: i + 7 for i, n in enumerate(numbers)}))
        assert ctypes.sizeof(struct) == packing.size
        assert [getattr(packed, n) for n in numbers] == [i + 7 for i in range(len(numbers))]


class TestJoined(joins.Joins):
    bench = BENCH
    members, launches = 200, 2
