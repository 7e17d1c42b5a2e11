"""The sign of a zero is that of eager code, and so are the values that depend on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from mgb import tensor
from mgb.jit import trace

BODIES: dict[str, Callable[[Any], Any]] = {
    "x + 0.0": lambda x: x + 0.0,
    "0 + x": lambda x: 0 + x,
    "x - -0.0": lambda x: x - (-0.0),
    "0.0 - -x": lambda x: 0.0 - (-x),
    "x - 0.0": lambda x: x - 0.0,
    "x + -0.0": lambda x: x + (-0.0),
    "sum": lambda x: sum([x, x]),
    "zeros": lambda x: x + np.zeros(2, np.float32),
    "where": lambda x: np.where(x > 0, x, x + 0.0),
    "quotient": lambda x: 1 / (x + 0.0),
    "angle": lambda x: np.arctan2(x + 0.0, -1.0),
}


@pytest.mark.parametrize("name", BODIES)
def test_zeros_keep_their_sign(name: str) -> None:
    body, array = BODIES[name], np.array([-0.0, 0.0], np.float32)
    with np.errstate(divide="ignore"):
        want = np.asarray(body(array))
    traced = trace(body)
    for _ in range(3):
        found = traced(tensor(array)).numpy()
        np.testing.assert_array_equal(found, want)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(want))


def test_fast_math_removes_adding_zero() -> None:
    traced = trace(lambda x: x + 0.0, fast_math=True)
    assert "add" not in traced.explain(tensor([1.0])).split("simplified")[1]


def test_stack_of_any_length_needs_no_retrace() -> None:
    layer = trace(lambda x: F.stack([x * 2, x + 1]))
    for batch in (9, 11, 13):
        array = np.ones((3, batch), np.float32)
        np.testing.assert_array_equal(layer(tensor(array)).numpy(), np.stack([array * 2, array + 1]))
    assert layer.stats()["body_runs"] == 2
