"""Elements that kernels fold into places that other values say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mgb import config
from mgb.ops.primitives import cast
from mgb.ops.reduce import extent, reduce_sum
from mgb.ops.scatter_folds import scatter_max, scatter_min, scatter_prod, scatter_sum

from .cases import FLOATS, check, of, require, samples
from .drive import Driver
from .test_gathers import INTEGERS, places

FOLDS = {"sum": scatter_sum, "prod": scatter_prod, "max": scatter_max, "min": scatter_min}

#: Dtypes whose elements are folded as they are: 16-bit floats come as casts to float32.
FOLDED = (*(d for d in FLOATS if d in ("float32", "float64")), *INTEGERS)

Shape = tuple[int, ...]

#: The shape of the elements, that of the result, where its axes lie, and the shapes of indices.
TABLES: dict[str, tuple[Shape, Shape, tuple[int | None, ...], tuple[Shape, ...]]] = {
    "elements": ((132,), (50,), (None,), ((132,),)),
    "many elements in few places": ((70_003,), (7,), (None,), ((70_003,),)),
    "many elements": ((70_003,), (5000,), (None,), ((70_003,),)),
    "more places than elements": ((3001,), (70_003,), (None,), ((3001,),)),
    "a place for each row": ((300, 70), (9,), (None,), ((300, 1),)),
    "rows": ((40, 37), (50, 37), (None, -1), ((40, 1),)),
    "many rows": ((30_000, 16), (100, 16), (None, -1), ((30_000, 1),)),
    "many short rows": ((9001, 3), (700, 3), (None, -1), ((9001, 1),)),
    "long rows": ((11, 5000), (7, 5000), (None, -1), ((11, 1),)),
    "an element of each row": ((40, 333), (40, 50), (-2, None), ((40, 333),)),
    "an element of each column": ((333, 50), (40, 50), (None, -1), ((333, 50),)),
    "all rows alike": ((333, 50), (333, 40), (-2, None), ((50,),)),
    "middle": ((3, 60, 7), (3, 50, 7), (-3, None, -1), ((60, 1),)),
    "two of three axes": ((5, 6, 4), (9, 6, 8), (None, -2, None), ((5, 1, 1), (4,))),
    "axes in another order": ((8, 5, 9), (9, 6, 8), (-1, None, -3), ((5, 1),)),
    "every axis": ((5, 33), (9, 6), (None, None), ((33,), (5, 1))),
    "elements that are broadcast": ((1, 33), (6, 33), (None, -1), ((40, 1),)),
}  # fmt: skip


def case(name: str, dtype: str = "float32", index: str = "int32") -> tuple[dict[str, Any], list[Any]]:
    shape, result, along, indices = TABLES[name]
    reached = [d for d, at in zip(result, along, strict=True) if at is None]
    found = [places(s, d, index, k) for k, (s, d) in enumerate(zip(indices, reached, strict=True))]
    return {"along": along, "shape": result}, [samples(dtype, shape), *found]


class TestScatters:
    @pytest.mark.parametrize("name", TABLES)
    @pytest.mark.parametrize("fold", FOLDS)
    def test_tables(self, driver: Driver, fold: str, name: str) -> None:
        given, arrays = case(name)
        check(driver, of(lambda x, *i: FOLDS[fold](x * 2 + 1, *i, **given), *arrays), arrays)

    @pytest.mark.parametrize("dtype", FOLDED)
    @pytest.mark.parametrize("fold", FOLDS)
    @pytest.mark.parametrize("name", ["elements", "rows", "an element of each column"])
    def test_dtypes(self, driver: Driver, name: str, fold: str, dtype: str) -> None:
        given, arrays = case(name, dtype)
        check(driver, of(lambda x, i: FOLDS[fold](x, i, **given), *arrays), arrays)

    @pytest.mark.parametrize("dtype", INTEGERS)
    @pytest.mark.parametrize("name", ["elements", "rows", "an element of each row"])
    def test_index_dtypes(self, driver: Driver, dtype: str, name: str) -> None:
        given, arrays = case(name, index=dtype)
        check(driver, of(lambda x, i: scatter_sum(x + 1, i, **given), *arrays), arrays)

    def test_computed_index(self, driver: Driver) -> None:
        x = np.random.default_rng(0).random((40, 301), np.float32)
        given: dict[str, Any] = {"along": (None,), "shape": (64,)}
        graph = of(lambda x: scatter_sum(x * 0 + 1, cast(x * 64, dtype=np.dtype("int32")), **given), x)
        require(driver, graph)
        (got,) = driver.run(graph, [x])
        np.testing.assert_array_equal(
            got, np.bincount((x * np.float32(64)).astype(int).reshape(-1), minlength=64)
        )

    @pytest.mark.parametrize("name", ["many elements", "a place for each row"])
    def test_with_reductions_and_results_of_the_domain(self, driver: Driver, name: str) -> None:
        given, arrays = case(name)
        axes = tuple(range(arrays[0].ndim))

        def several(x: Any, *i: Any) -> list[Any]:
            y = x * x
            total = reduce_sum(y, axis=axes)
            return [scatter_sum(y, *i, **given), total, scatter_max(y / (total + 1), *i, **given), y + 1]

        check(driver, of(several, *arrays), arrays)

    @pytest.mark.parametrize("name", ["many elements", "a place for each row", "rows", "many rows", "middle"])
    def test_of_what_is_left_of_the_mean(self, driver: Driver, name: str) -> None:
        """Scatter what a reduction of the same axes is subtracted from, and divided by their length."""
        given, arrays = case(name)
        ndim = arrays[0].ndim
        axes = tuple(a for a in range(ndim) if a - ndim not in given["along"])

        def program(x: Any, *i: Any) -> list[Any]:
            y = x - reduce_sum(x, axis=axes) / extent(x, axis=axes)
            return [scatter_sum(y, *i, **given), scatter_max(y * 2, *i, **given)]

        check(driver, of(program, *arrays), arrays)

    @pytest.mark.parametrize(
        "name", ["elements", "many elements in few places", "many elements", "every axis"]
    )
    @pytest.mark.parametrize(
        "folds", [("sum", "sum", "sum"), ("max", "sum", "min"), ("prod", "max")], ids=str
    )
    def test_several_folds_of_the_same_places(
        self, driver: Driver, folds: tuple[str, ...], name: str
    ) -> None:
        given, arrays = case(name)
        x = samples("int32", arrays[0].shape)

        def several(x: Any, y: Any, *i: Any) -> list[Any]:
            found = [FOLDS[f](x * (k + 1), *i, **given) for k, f in enumerate(folds)]
            return [*found, scatter_sum(y, *i, **given), scatter_max(y + 1, *i, **given)]

        check(driver, of(several, arrays[0], x, *arrays[1:]), [arrays[0], x, *arrays[1:]])

    def test_folds_of_the_same_indices_in_results_of_other_lengths(self, driver: Driver) -> None:
        """Take no kernel of equal lengths for others."""
        _, arrays = case("many elements")
        for lengths in [(5000, 5000), (5000, 6001), (7001, 5000), (5000, 5000)]:

            def several(x: Any, i: Any, lengths: tuple[int, ...] = lengths) -> list[Any]:
                return [scatter_sum(x * (k + 1), i, along=(None,), shape=(n,)) for k, n in enumerate(lengths)]

            check(driver, of(several, *arrays), arrays)

    @pytest.mark.parametrize("fold", FOLDS)
    def test_one_number_for_all_elements(self, driver: Driver, fold: str) -> None:
        given, (_, i) = case("many elements")
        one = np.full((1,), 1.5, np.float32)
        check(driver, of(lambda x, i: FOLDS[fold](x, i, **given), one, i), [one, i])

    def test_nan_reaches_its_place_alone(self, driver: Driver) -> None:
        given, (x, i) = case("many elements")
        x[[5, 60_000]] = np.nan
        for fold in FOLDS.values():
            graph = of(lambda x, i, fold=fold: fold(x, i, **given), x, i)
            (got,) = check(driver, graph, [x, i])
            wrong = np.zeros(5000, bool)
            wrong[i[[5, 60_000]]] = True
            np.testing.assert_array_equal(np.isnan(got), wrong)

    def test_strided_operands(self, driver: Driver) -> None:
        if driver.backend.traits.strided.value != "any":
            pytest.skip(f"traits.strided is {driver.backend.traits.strided.value}")
        x, i = samples("float32", (600, 90))[::-2, 5:75:3].T, places((600,), 17, "int32", 0)[::-2]
        given: dict[str, Any] = {"along": (-2, None), "shape": (24, 17)}
        check(driver, of(lambda x, i: scatter_sum(x * 2, i, **given), x, i), [x, i])

    @pytest.mark.parametrize("name", ["many elements in few places", "many elements", "many rows", "rows"])
    def test_thread_count_does_not_change_results(
        self, driver: Driver, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given, arrays = case(name)
        graph, results = of(lambda x, i: scatter_sum(x * x, i, **given), *arrays), []
        for threads in ("1", "2", "5"):
            monkeypatch.setenv(config.NUM_THREADS.name, threads)
            results += check(driver, graph, arrays)
        assert all(np.array_equal(results[0], other) for other in results[1:])

    @pytest.mark.parametrize("name", ["many elements", "rows", "an element of each row", "every axis"])
    @pytest.mark.parametrize("wrong", [-1, 0])
    def test_out_of_range_index_raises(self, driver: Driver, name: str, wrong: int) -> None:
        given, (x, *indices) = case(name)
        length = given["shape"][given["along"].index(None)]
        graph = of(lambda x, *i: scatter_sum(x * 2, *i, **given), x, *indices)
        require(driver, graph)
        last = indices[0] = indices[0].copy()
        last.reshape(-1)[-1] = length if wrong == 0 else -length - 1
        with pytest.raises(IndexError, match=rf"{last.reshape(-1)[-1]} is out of bounds .* size {length}"):
            driver.run(graph, [x, *indices])
        last.reshape(-1)[-1] = length - 1
        check(driver, graph, [x, *indices])
