"""NaN, infinities, signed zeros, denormals and the ends of the range."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from mgb import dtypes
from mgb.ops.bodies.division import floor_div, mod
from mgb.ops.primitives import cast, div

from .cases import FLOATS, Batches, check, dealt, elementwise, of, spread
from .drive import Driver


def special(dtype: np.dtype[Any]) -> np.ndarray:
    """Return the special values of a float dtype, and some plain ones."""
    info = ml_dtypes.finfo(dtype)
    tiny, least, largest = float(info.smallest_normal), float(info.smallest_subnormal), float(info.max)
    plain = [0.5, 1.0, 1.5, 2.0, 3.0, np.pi, 88.0]
    ends = [0.0, least, tiny / 2, tiny, largest / 2, largest, np.inf]
    return np.array([*plain, *ends, *(-v for v in plain + ends), np.nan]).astype(dtype)


def _inputs(given: tuple[np.dtype[Any], ...]) -> list[np.ndarray]:
    return dealt([np.array([False, True]) if d.kind == "b" else special(d) for d in given], spread(given))


CASES = tuple((d, name) for d, name in elementwise() if d in FLOATS)
BATCHES = Batches(CASES, _inputs, signed_zero=True)


class TestSpecialValues:
    @pytest.mark.parametrize(("dtype", "name"), CASES)
    def test_op(self, driver: Driver, dtype: str, name: str) -> None:
        if not driver.backend.traits.ieee:
            pytest.skip("traits.ieee is False")
        BATCHES.ask(driver, dtype, name)

    @pytest.mark.parametrize("dtype", FLOATS)
    def test_constants(self, driver: Driver, dtype: str) -> None:
        if not driver.backend.traits.ieee:
            pytest.skip("traits.ieee is False")
        values = [v for v in special(dtypes.as_dtype(dtype)) if not np.isnan(v)]
        x = np.array([1.0, -1.0, 0.0], dtypes.as_dtype(dtype))
        check(driver, of(lambda x: [x * float(v) for v in values], x), [x], signed_zero=True)

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_division_by_a_provable_zero(self, driver: Driver, dtype: str) -> None:
        if not driver.backend.traits.ieee:
            pytest.skip("traits.ieee is False")
        x, i = np.array([-2.5, -0.0, 0.0, 7.0, np.inf, np.nan], dtype), np.arange(6, dtype=np.int32)

        def quotients(x: Any, i: Any) -> list[Any]:
            zeros = [cast(zero, dtype=np.dtype(dtype)) for zero in (i < i, i - i, i * 0)]
            words = (div, lambda x, zero: div(x, -zero), floor_div, mod)
            return [word(x, zero) for word in words for zero in zeros]

        check(driver, of(quotients, x, i), [x, i])
