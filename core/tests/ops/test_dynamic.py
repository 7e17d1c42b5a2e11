"""Windows whose starts are values: what NumPy gives for the slices that they stand for."""

from __future__ import annotations

from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from mgb import grad, tensor
from mgb.ops.declare import op_of
from mgb.ops.dynamic import dynamic_slice, dynamic_slice_set, dynamic_unslice

#: Shape, axes, starts, window that counts from them, and the slices that this means.
CASES: list[tuple[Any, ...]] = [
    ((6,), (0,), (2,), ((0, 3, 1),), np.s_[2:5]),
    ((6,), (0,), (5,), ((0, -6, -2),), np.s_[5::-2]),
    ((6, 5), (1,), (3,), ((1, 6, 2), (0, 1, 1)), np.s_[1:6:2, 3:4]),
    ((6, 5), (0, 1), (1, 4), ((0, 4, 2), (0, -3, -1)), np.s_[1:5:2, 4:1:-1]),
    ((2, 7, 3), (1,), (0,), ((0, 2, 1), (2, 7, 3), (2, -1, -1)), np.s_[:, 2:7:3, ::-1]),
]


@pytest.mark.parametrize(("shape", "axes", "starts", "window", "slices"), CASES)
@pytest.mark.parametrize("in_words", [False, True])
def test_each_is_the_window_of_numpy(
    shape: Any, axes: Any, starts: Any, window: Any, slices: Any, in_words: bool
) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    part = x[slices] * 2 + 1

    def run(op: Any, *arrays: Any, **params: Any) -> Any:
        tensors = [tensor(a) for a in (*arrays, *(np.int64(start) for start in starts))]
        return (op_of(op).body if in_words else op)(*tensors, axes=axes, window=window, **params).numpy()

    spread, written = np.zeros_like(x), x.copy()
    spread[slices], written[slices] = part, part
    np.testing.assert_array_equal(run(dynamic_slice, x), x[slices])
    np.testing.assert_array_equal(run(dynamic_unslice, part, shape=shape), spread)
    np.testing.assert_array_equal(run(dynamic_slice_set, x, part), written)
    written[slices] = 7
    np.testing.assert_array_equal(run(dynamic_slice_set, x, np.float32(7)), written)


@pytest.mark.parametrize(("shape", "axes", "starts", "window", "slices"), CASES)
def test_gradients_are_those_of_fixed_windows(
    shape: Any, axes: Any, starts: Any, window: Any, slices: Any
) -> None:
    rng = np.random.default_rng(1)
    x, weight = tensor(rng.normal(size=shape)), tensor(rng.normal(size=np.zeros(shape)[slices].shape))

    def moved(x: Any, v: Any) -> Any:
        part = dynamic_slice(x, *starts, axes=axes, window=window)
        spread = dynamic_unslice(part * v, *starts, axes=axes, shape=shape, window=window)
        return (F.sin(dynamic_slice_set(x, part**2 * v, *starts, axes=axes, window=window)) * spread).sum()

    def fixed(x: Any, v: Any) -> Any:
        part, spread, written = x[slices], F.zeros(shape, "float64"), +x
        spread[slices] = part * v
        written[slices] = part**2 * v
        return (F.sin(written) * spread).sum()

    for argument in (0, 1):
        np.testing.assert_allclose(
            grad(moved, argnums=argument)(x, weight).numpy(), grad(fixed, argnums=argument)(x, weight).numpy()
        )

        def slope(function: Any, argument: int = argument) -> Any:
            return grad(lambda *xs: (grad(function, argnums=argument)(*xs) ** 2).sum())(x, weight)

        np.testing.assert_allclose(slope(moved).numpy(), slope(fixed).numpy(), atol=1e-12)
