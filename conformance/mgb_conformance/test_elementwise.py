"""Every element-wise op in every dtype that the backend claims."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mgb.ops.declare import OPS

from .cases import Batches, call, check, elementwise, of, operands, samples
from .drive import Driver

SHAPES = ((3, 1, 61), (3, 5, 61), (61,), (5, 1))


def _inputs(given: tuple[np.dtype[Any], ...]) -> list[np.ndarray]:
    if len(given) == 1:
        return [samples(given[0].name, SHAPES[1])]
    return [samples(d.name, SHAPES[i % len(SHAPES)], seed=i) for i, d in enumerate(given)]


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
