"""Products of matrices with a short inner axis, over the domain of a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mgb.ops.dot import dot
from mgb.ops.reduce import reduce_max, reduce_sum

from .cases import check, of, samples
from .drive import Driver

Along = tuple[int | None, ...]

#: The shapes of both operands, and where their axes lie.
PRODUCTS: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[Along, Along]]] = {
    "rows by columns": ((70, 8), (8, 65), ((-2, None), (None, -1))),
    "one term": ((70, 1), (1, 65), ((-2, None), (None, -1))),
    "many terms": ((33, 301), (301, 17), ((-2, None), (None, -1))),
    "few columns": ((301, 7), (7, 3), ((-2, None), (None, -1))),
    "long rows": ((5, 6), (6, 40_001), ((-2, None), (None, -1))),
    "many rows": ((40_001, 6), (6, 9), ((-2, None), (None, -1))),
    "left transposed": ((8, 70), (8, 65), ((None, -2), (None, -1))),
    "right transposed": ((70, 8), (65, 8), ((-2, None), (-1, None))),
    "batch": ((9, 16, 13), (9, 13, 21), ((-3, -2, None), (-3, None, -1))),
    "batch that is broadcast": ((4, 1, 12, 5), (7, 5, 33), ((-4, -3, -2, None), (-3, None, -1))),
    "diagonal": ((20, 31, 6), (20, 31, 6), ((-2, -1, None), (-2, -1, None))),
}


def case(name: str, dtype: str = "float32") -> tuple[Any, list[Any]]:
    first, then, along = PRODUCTS[name]
    return along, [samples(dtype, first), samples(dtype, then, 1)]


class TestDots:
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("name", PRODUCTS)
    def test_products(self, driver: Driver, name: str, dtype: str) -> None:
        along, arrays = case(name, dtype)
        check(driver, of(lambda a, b: dot(a, b, along=along), *arrays), arrays)

    @pytest.mark.parametrize("name", PRODUCTS)
    def test_with_work_behind_and_beside(self, driver: Driver, name: str) -> None:
        along, arrays = case(name)

        def program(a: Any, b: Any, c: Any) -> list[Any]:
            y = dot(a, b, along=along)
            return [y * 2 + c, dot(a, b, along=along) - c * c]

        shape = of(lambda a, b: dot(a, b, along=along), *arrays).outputs[0].spec.shape
        arrays.append(samples("float32", shape, 2))
        check(driver, of(program, *arrays), arrays)

    @pytest.mark.parametrize("name", ["rows by columns", "few columns", "batch"])
    @pytest.mark.parametrize("axis", [-1, -2])
    def test_reductions_of_products(self, driver: Driver, name: str, axis: int) -> None:
        along, arrays = case(name)

        def program(a: Any, b: Any) -> list[Any]:
            y = dot(a, b, along=along)
            axes = (axis % y.ndim,)
            return [reduce_sum(y, axis=axes), y - reduce_max(y, axis=axes)]

        check(driver, of(program, *arrays), arrays)

    def test_strided_operands(self, driver: Driver) -> None:
        if driver.backend.traits.strided.value != "any":
            pytest.skip(f"traits.strided is {driver.backend.traits.strided.value}")
        a, b = samples("float32", (60, 90))[::-2, 5:75:7], samples("float32", (300, 20), 1)[::-3, ::2].T
        along = ((-2, None), (None, -1))
        check(driver, of(lambda a, b: dot(a, b, along=along) + 1, a, b), [a, b])

    def test_an_operand_that_is_read_in_its_own_place_too(self, driver: Driver) -> None:
        a, along = samples("float32", (33, 33)), ((-2, None), (None, -1))
        graph = of(lambda a: dot(a, a, along=along) - a, a)
        check(driver, graph, [a])
        assert np.isfinite(driver.run(graph, [a])[0]).any()
