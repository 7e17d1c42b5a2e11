"""Constants of other shapes and types in the place of one another: `auto` computes what eager code does."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import mgb
import numpy as np
import pytest
from mgb import Tensor, tensor

CONSTANTS = [
    2, 2.0, True, -0.0, 0.0, np.float32(2), np.int64(2), [2], [2.0], [[2.0]], [1, 2, 3], [2.0, 2.0, 2.0],
    np.array(2.0, "float32"), np.array([2], "int32"), np.array([[2.0], [3.0]], "float32"),
]  # fmt: skip
OPS = [operator.mul, operator.floordiv, operator.add, operator.truediv, operator.gt]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.__name__)
@pytest.mark.parametrize("x", [[1.0, 2.0, 3.0], 1.5, [[4.0], [5.0]]], ids=str)
def test_each_constant_counts_as_itself(op: Callable[[Any, Any], Tensor], x: Any) -> None:
    given = tensor(x)
    order = [*CONSTANTS, *CONSTANTS[::-1], *itertools.chain(*zip(CONSTANTS, CONSTANTS[5:], strict=False))]
    with np.errstate(all="ignore"):
        want = [op(given, constant) for constant in order]
        with mgb.jit.auto():
            got = [op(given, constant) for constant in order]
            for constant, mine, eager in zip(order, got, want, strict=True):
                assert (mine.shape, mine.dtype) == (eager.shape, eager.dtype), constant
                np.testing.assert_array_equal(mine.numpy(), eager.numpy(), err_msg=str(constant))


def test_shape_of_a_quantile_follows_the_constant() -> None:
    x = tensor([1.0, 2.0, 4.0])
    with mgb.jit.auto():
        for n in range(12):
            q = 0.3 + n / 1000
            for given in (q, [q], [[q]]):
                assert np.quantile(x, given).shape == np.shape(given)
