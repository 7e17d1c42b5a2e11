"""The edges of integer arithmetic: nothing traps, everything wraps, and the results are NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mgb import functional as F
from mgb import tensor

from .cases import DTYPES, FLOATS, Batches, check, dealt, elementwise, of, spread
from .drive import Driver


def edges(dtype: np.dtype[Any]) -> np.ndarray:
    """Return zero, small numbers of both signs, both ends, and counts at and past the width."""
    if dtype.kind == "b":
        return np.array([False, True])
    info, bits = np.iinfo(dtype), 8 * dtype.itemsize
    near = [0, 1, 2, 3, 7, 10, bits - 1, bits, bits + 1, info.max, info.max - 1, info.max // 2]
    far = [-1, -2, -3, -7, -10, info.min, info.min + 1, info.min // 2] if info.min < 0 else []
    return np.array(near + far, dtype)


def _inputs(given: tuple[np.dtype[Any], ...]) -> list[np.ndarray]:
    return dealt([edges(d) for d in given], spread(given))


NAMES = tuple(d for d in DTYPES if d not in FLOATS)
CASES = tuple((d, name) for d, name in elementwise() if d in NAMES)
BATCHES = Batches(CASES, _inputs)


class TestIntegers:
    @pytest.mark.parametrize(("dtype", "name"), CASES)
    def test_op(self, driver: Driver, dtype: str, name: str) -> None:
        BATCHES.ask(driver, dtype, name)

    @pytest.mark.parametrize("dtype", [d for d in NAMES if d != "bool"])
    def test_constants(self, driver: Driver, dtype: str) -> None:
        values = edges(np.dtype(dtype))
        x = values[:5].copy()
        check(driver, of(lambda x: [x + tensor(v, dtype=dtype) for v in values], x), [x])

    @pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint32"])
    @pytest.mark.parametrize("of_first", [True, False])
    @pytest.mark.parametrize("where_not", [True, False])
    def test_some_bits_of_one_and_the_rest_of_another(
        self, driver: Driver, dtype: str, of_first: bool, where_not: bool
    ) -> None:
        x, y = dealt([edges(np.dtype(dtype))] * 2, [(27, 27)] * 2)
        mask = np.array(np.iinfo(dtype).max // 3, dtype)

        def function(x: Any, y: Any) -> Any:
            bits, other = (x & int(mask)) | (y & int(~mask)), x if of_first else y
            return F.where(y > 3, *((other, bits) if where_not else (bits, other)))

        check(driver, of(function, x, y), [x, y])
