"""Every element-wise op in every dtype that the backend claims."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mgb.ops.declare import OPS

from .cases import Batches, call, check, elementwise, of, operands, samples, spread
from .drive import Driver


def _inputs(given: tuple[np.dtype[Any], ...]) -> list[np.ndarray]:
    return [
        samples(d.name, shape, seed=i) for i, (d, shape) in enumerate(zip(given, spread(given), strict=True))
    ]


BATCHES = Batches(elementwise(), _inputs)


class TestElementwise:
    @pytest.mark.parametrize(("dtype", "name"), elementwise())
    def test_op(self, driver: Driver, dtype: str, name: str) -> None:
        BATCHES.ask(driver, dtype, name)

    @pytest.mark.slow
    @pytest.mark.parametrize(("dtype", "name"), elementwise())
    def test_op_alone_on_many_numbers(self, driver: Driver, dtype: str, name: str) -> None:
        op = OPS[name]
        arrays = [samples(d.name, (40_000,), seed=i) for i, d in enumerate(operands(op, dtype))]
        check(driver, of(call(op), *arrays), arrays)
