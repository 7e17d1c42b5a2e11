"""Every pair of dtypes. A float that does not fit in an integer is nobody's contract and is not asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mgb import dtypes
from mgb.ops.primitives import bitcast, cast

from .cases import DTYPES, FLOATS, check, of, samples
from .drive import Driver

SAME_SIZE = (
    ("float32", "int32"), ("int32", "float32"), ("float32", "uint32"), ("uint32", "float32"),
    ("float64", "int64"), ("int64", "float64"), ("float64", "uint64"), ("int16", "uint16"),
)  # fmt: skip


def fitting(source: str, target: str) -> np.ndarray:
    """Samples of `source` whose value, truncated, `target` can hold."""
    x = samples(source, (257,), seed=3)
    if source in FLOATS and target not in (*FLOATS, "bool"):
        info = np.iinfo(target)
        wide = x.astype(np.float64)
        return np.where((wide > info.min) & (wide < info.max / 2), x, x.dtype.type(1))
    return x


class TestCasts:
    @pytest.mark.parametrize("source", DTYPES)
    def test_to_every_other(self, driver: Driver, source: str) -> None:
        targets = [d for d in DTYPES if d in driver.backend.traits.dtypes]
        arrays = [fitting(source, target) for target in targets]

        def casts(*xs: Any) -> list[Any]:
            return [cast(x, dtype=dtypes.as_dtype(target)) for x, target in zip(xs, targets, strict=True)]

        check(driver, of(casts, *arrays), arrays)

    @pytest.mark.parametrize(("source", "target"), SAME_SIZE)
    def test_bits(self, driver: Driver, source: str, target: str) -> None:
        x = samples(source, (65,))
        check(driver, of(lambda x: bitcast(x, dtype=dtypes.as_dtype(target)), x), [x])

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_a_cast_that_the_user_wrote_rounds(self, driver: Driver, dtype: str) -> None:
        x = samples("float32", (300,))
        half = dtypes.as_dtype(dtype)
        check(driver, of(lambda x: x - cast(cast(x, dtype=half), dtype=dtypes.float32), x), [x])
