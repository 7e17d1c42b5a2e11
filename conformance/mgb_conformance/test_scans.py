"""Cumulative reductions along an axis, alone and between other ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mgb import dtypes
from mgb.ops.primitives import maximum
from mgb.ops.reduce import reduce_max, reduce_sum
from mgb.ops.scans import cummax_, cummin_, cumprod_, cumsum_, decayed_sum, logcumsumexp_

from .cases import DTYPES, FLOATS, check, of, require, samples
from .drive import Driver


def decayed(x: Any, axis: int) -> Any:
    """Return sums whose decays are made of the elements, as those of what forgets are."""
    return decayed_sum(x, 1 / (1 + x * x), axis=axis)


SCANS: dict[str, Callable[..., Any]] = {
    "cumsum": cumsum_, "cumprod": cumprod_, "cummax": cummax_, "cummin": cummin_,
    "logcumsumexp": logcumsumexp_, "decayed_sum": decayed,
}  # fmt: skip

#: Those of floats alone.
OF_FLOATS = ("logcumsumexp", "decayed_sum")

#: Shapes and axes.
CASES = {
    "row": ((5, 33), 1),
    "column": ((33, 5), 0),
    "middle": ((3, 17, 5), 1),
    "first of three": ((17, 3, 5), 0),
    "one axis": ((100,), 0),
    "length 1": ((4, 1), 1),
    "length 7": ((4, 7), 1),
    "length 600": ((4, 600), 1),
    "long row": ((3, 40_001), 1),
    "long rows": ((300, 1111), 1),
    "long column": ((5000, 40), 0),
    "large": ((300_007,), 0),
    "large column": ((40_000, 13), 0),
    "many columns": ((33, 3000), 0),
}

#: Those of scans that are judged by their bodies, which have dozens of ops: several chunks, no more.
JUDGED = CASES | {
    "long row": ((3, 20_001), 1),
    "long rows": ((40, 1111), 1),
    "long column": ((2000, 40), 0),
    "large": ((40_003,), 0),
    "large column": ((4001, 13), 0),
}


def case_of(scan: str, name: str) -> tuple[tuple[int, ...], int]:
    """Return the shape and the axis of a case."""
    return JUDGED[name] if scan in OF_FLOATS else CASES[name]


def small(dtype: str, shape: tuple[int, ...], axis: int) -> Any:
    """Return samples whose products stay in range: of two neighbours one is above 1, one below."""
    x = samples(dtype, shape)
    if dtype not in FLOATS:
        return x
    wide, odd = 1 + x.astype(np.float64) % 1 / 4, np.arange(shape[axis]) % 2 == 1
    odd = odd.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return np.where(odd, 1 / wide, wide).astype(x.dtype)


class TestScans:
    @pytest.mark.parametrize("name", CASES)
    @pytest.mark.parametrize("scan", SCANS)
    def test_lengths(self, driver: Driver, scan: str, name: str) -> None:
        shape, axis = case_of(scan, name)
        x = small("float32", shape, axis) if scan == "cumprod" else samples("float32", shape)
        check(driver, of(lambda x: SCANS[scan](x, axis=axis), x), [x])

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("scan", SCANS)
    @pytest.mark.parametrize("axis", [0, 1])
    def test_dtypes(self, driver: Driver, scan: str, dtype: str, axis: int) -> None:
        if dtype == "bool" and scan in ("cumsum", "cumprod"):
            pytest.skip("sums and products of bools are of integers")
        if dtype not in FLOATS and scan in OF_FLOATS:
            pytest.skip("it is of floats")
        x = small(dtype, (37, 70), axis)
        check(driver, of(lambda x: SCANS[scan](x, axis=axis), x), [x])

    @pytest.mark.parametrize("scan", ["cummax", "cummin"])
    @pytest.mark.parametrize("axis", [0, 1])
    def test_special_values(self, driver: Driver, scan: str, axis: int) -> None:
        x = samples("float32", (40, 50)) % 3
        x[7, 9], x[3, 4], x[5, 6] = np.nan, np.inf, -np.inf
        check(driver, of(lambda x: SCANS[scan](x, axis=axis), x), [x])

    @pytest.mark.parametrize("length", [40, 700, 40_000])
    @pytest.mark.parametrize("axis", [0, 1])
    def test_nothing_stays_nothing_before_large_factors(self, driver: Driver, axis: int, length: int) -> None:
        """Check that no parts are multiplied which overflow, though the product never does."""
        if "decayed_sum" not in driver.backend.traits.vocabulary:
            pytest.skip("traits.vocabulary has no decayed_sum: a library's own scans may multiply any parts")
        x = np.full((length, 5), 1e25, np.float32)
        x[0, 0], x[5:, 1], x[::2, 2], x[:, 3], x[3:20, 4] = 0, 1, 1e-25, 1, 1e-25
        x[20:, 4] = 1
        x = x if axis == 0 else np.ascontiguousarray(x.T)
        graph = of(lambda x: [cumprod_(x, axis=axis), decayed_sum(x * 0, x, axis=axis)], x)
        require(driver, graph)
        products, sums = driver.run(graph, [x])
        with np.errstate(all="ignore"):
            want = np.cumprod(x, axis)
        assert not np.isnan(want).any() and not np.isnan(products).any()
        tame = np.isfinite(want) & (np.abs(want) > 1e-30)
        np.testing.assert_allclose(products[tame], want[tame], rtol=1e-4)
        assert (sums == 0).all()

    @pytest.mark.parametrize("axis", [0, 1])
    def test_infinite_logarithms(self, driver: Driver, axis: int) -> None:
        """Check sums of nothing, of equal infinities, and NaN from the first on."""
        x = samples("float32", (40, 50)) * 40
        x[:3], x[:, :3], x[20, 30] = -np.inf, -np.inf, -np.inf
        x[7, 9], x[7, 11], x[3, 4], x[5, 6] = np.inf, np.inf, np.nan, np.inf
        check(driver, of(lambda x: logcumsumexp_(x, axis=axis), x), [x])

    @pytest.mark.parametrize("axis", [0, 1])
    def test_logarithms_of_sums_far_apart(self, driver: Driver, axis: int) -> None:
        """Check sums in which neighbours differ by more than the exponents of floats span, both ways."""
        x = np.where(np.arange(70) % 7 < 3, 1e4, -1e4) + samples("float32", (37, 70)) * 300
        x = x.astype(np.float32)
        want = np.logaddexp.accumulate(x.astype(np.float64), axis=axis)
        graph = of(lambda x: logcumsumexp_(x, axis=axis), x)
        require(driver, graph)
        (got,) = driver.run(graph, [x])
        np.testing.assert_allclose(got, want, rtol=1e-6)

    @pytest.mark.parametrize("name", ["row", "column", "middle", "long row", "large", "large column"])
    def test_logarithms_between_ops(self, driver: Driver, name: str) -> None:
        shape, axis = JUDGED[name]
        x, y = samples("float32", shape), samples("float32", shape[-1:], 1) % 5

        def between(x: Any, y: Any) -> list[Any]:
            logs = logcumsumexp_(x * 2 + y, axis=axis)
            return [logs - y, cummax_(logs, axis=axis), reduce_max(logs * 0.125, axis=(axis,))]

        check(driver, of(between, x, y), [x, y])

    @pytest.mark.parametrize("name", ["row", "column", "middle", "long row", "large", "large column"])
    def test_scan_between_ops(self, driver: Driver, name: str) -> None:
        """Check a scan with ops before and after it, and with other readers of its operand."""
        shape, axis = CASES[name]
        x, y = samples("float32", shape) % 3, samples("float32", shape[-1:], 1) % 5

        def between(x: Any, y: Any) -> list[Any]:
            squares = x * x + y
            return [cumsum_(squares, axis=axis) * 2 - x, squares]

        check(driver, of(between, x, y), [x, y])

    @pytest.mark.parametrize("name", ["row", "column", "middle", "long row", "large", "large column"])
    def test_scan_with_reductions(self, driver: Driver, name: str) -> None:
        """Check reductions of the same axis, before and after it."""
        shape, axis = CASES[name]
        x = samples("float32", shape) % 3 - 1

        def folded(x: Any) -> list[Any]:
            sums = cumsum_(x - reduce_max(x, axis=(axis,)), axis=axis)
            return [sums, reduce_sum(sums * 0.125, axis=(axis,)), maximum(sums, x)]

        check(driver, of(folded, x), [x])

    @pytest.mark.parametrize("name", ["row", "column", "long row", "large", "large column"])
    def test_scan_of_scans(self, driver: Driver, name: str) -> None:
        shape, axis = CASES[name]
        x = np.round(samples("float32", shape) % 8)

        def twice(x: Any) -> list[Any]:
            greatest = cummax_(x, axis=axis)
            return [cummin_(greatest - x, axis=axis), cumsum_(greatest, axis=axis)]

        check(driver, of(twice, x), [x])

    @pytest.mark.parametrize("scan", ["cumsum", "logcumsumexp", "decayed_sum"])
    @pytest.mark.parametrize("axis", [0, 1])
    def test_scan_of_a_strided_view(self, driver: Driver, axis: int, scan: str) -> None:
        if driver.backend.traits.strided.value != "any":
            pytest.skip(f"traits.strided is {driver.backend.traits.strided.value}")
        x = samples("float32", (90, 140))[::-2, 5:125:3].T
        check(driver, of(lambda x: SCANS[scan](x, axis=axis) * 2, x), [x])

    @pytest.mark.parametrize("scan", ["cumsum", "logcumsumexp", "decayed_sum"])
    @pytest.mark.parametrize("name", ["row", "column", "long row", "large column"])
    def test_result_may_alias_its_operand(self, driver: Driver, name: str, scan: str) -> None:
        """Check that the result may be written over what is scanned."""
        shape, axis = case_of(scan, name)
        x = samples("float32", shape)
        check(driver, of(lambda x: SCANS[scan](x, axis=axis), x), [x], over={0: 0})

    @pytest.mark.parametrize("name", ["large", "large column", "long row"])
    def test_thread_count_does_not_change_bits(
        self, driver: Driver, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Check that the bits are the same for any number of threads."""
        shape, axis = CASES[name]
        x = samples("float32", shape)
        graph = of(
            lambda x: [cumsum_(x, axis=axis), cumsum_(x * x + 1, axis=axis) - x, decayed(x, axis),
                       logcumsumexp_(x, axis=axis)], x
        )  # fmt: skip
        require(driver, graph)
        found = []
        for threads in ("1", "2", "3"):
            monkeypatch.setenv("MGB_NUM_THREADS", threads)
            found.append([y.tobytes() for y in driver.run(graph, [x])])
        assert found[0] == found[1] == found[2]

    def test_integers_wrap(self, driver: Driver) -> None:
        x = np.full((3, 300), 2**30, np.int32)
        graph = of(lambda x: cumsum_(x, axis=1), x)
        require(driver, graph)
        (got,) = driver.run(graph, [x])
        np.testing.assert_array_equal(got, np.cumsum(x, 1, dtype=dtypes.int32))
