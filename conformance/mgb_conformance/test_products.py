"""Matrix products with what stands around them in one group, for backends of one domain that claim them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mgb.backends import Scope
from mgb.ops.bodies.transcendental import tanh
from mgb.ops.images.contract import matmul
from mgb.ops.primitives import cast, iota, maximum, where

from .cases import check, of
from .drive import Driver

DTYPES = ("float16", "bfloat16", "float32", "float64")


def numbers(driver: Driver, dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Return normal deviates; skip the test where the backend claims no products of `dtype`."""
    from mgb import dtypes

    traits = driver.backend.traits
    if traits.scope is not Scope.DOMAIN or dtype not in traits.products:
        pytest.skip(f"traits.products has no {dtype}")
    random = np.random.default_rng([seed, *shape])
    return random.normal(size=shape).astype(dtypes.as_dtype(dtype))


class TestProducts:
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 50, 3), (33, 17, 40), (70, 130, 5)])
    def test_ops_after_a_product(self, driver: Driver, sizes: tuple[int, int, int], dtype: str) -> None:
        m, k, n = sizes
        x, w, b, r = (numbers(driver, dtype, s, i) for i, s in enumerate([(m, k), (k, n), (n,), (m, n)]))

        def values(x: Any, w: Any, b: Any, r: Any) -> list[Any]:
            y = matmul(x, w) + b
            return [y, maximum(y, 0) * r, where(y < 0, r, y), tanh(y) + iota(shape=(n,), dtype=y.dtype)]

        check(driver, of(values, x, w, b, r), [x, w, b, r])

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("flips", [(False, False), (True, False), (False, True), (True, True)])
    def test_ops_before_a_product(self, driver: Driver, flips: tuple[bool, bool], dtype: str) -> None:
        m, k, n = 20, 30, 40
        x, w = (
            numbers(driver, dtype, (k, m) if flips[0] else (m, k), 0),
            numbers(driver, dtype, (n, k) if flips[1] else (k, n), 1),
        )
        column = numbers(driver, dtype, (x.shape[0], 1), 2)

        def value(x: Any, w: Any, c: Any) -> Any:
            return matmul(maximum(x * c, 0), w - 1, transpose_a=flips[0], transpose_b=flips[1])

        check(driver, of(value, x, w, column), [x, w, column])

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_casts_around_a_product(self, driver: Driver, dtype: str) -> None:
        x, w = numbers(driver, dtype, (20, 30), 0), numbers(driver, dtype, (30, 40), 1)
        wide = x.astype(np.float32)

        def value(x: Any, w: Any) -> Any:
            return cast(matmul(cast(x, dtype=w.dtype), w), dtype=x.dtype)

        check(driver, of(value, wide, w), [wide, w])

    def test_operand_used_twice(self, driver: Driver) -> None:
        x = numbers(driver, "float32", (24, 24), 0)
        check(driver, of(lambda x: matmul(x, x, transpose_b=True) + x, x), [x])

    def test_strided_operands(self, driver: Driver) -> None:
        from mgb.backends import Strided

        if driver.backend.traits.strided is not Strided.ANY:
            pytest.skip(f"traits.strided is {driver.backend.traits.strided.value}")
        x = numbers(driver, "float32", (60, 40), 0)[::2].T
        w, r = numbers(driver, "float32", (30, 50), 1)[:, ::-2], np.broadcast_to(x[:, :1], (40, 25))
        check(driver, of(lambda x, w, r: matmul(x, w * 2) + r, x, w, r), [x, w, r])

    @pytest.mark.parametrize("over", [0, 1, 2])
    def test_output_may_alias_an_input(self, driver: Driver, over: int) -> None:
        x, w, r = (numbers(driver, "float32", (70, 70), i) for i in range(3))
        check(driver, of(lambda x, w, r: matmul(x, w) + r, x, w, r), [x, w, r], {0: over})

    def test_one_kernel_for_many_sizes(self, driver: Driver) -> None:
        """Check that a kernel of `Specialize.NDIM` learns the sizes from its arrays."""
        for size in (16, 17, 64, 200):
            x, w = numbers(driver, "float32", (size, size), 0), numbers(driver, "float32", (size, size), 1)
            check(driver, of(lambda x, w: maximum(matmul(x, w), 0), x, w), [x, w])
