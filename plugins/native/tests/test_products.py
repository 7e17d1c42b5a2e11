"""Products of matrices in the turns of loops, against NumPy's."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from mgb_native.products import multiply, plan_of

RNG = np.random.default_rng(3)
SHAPES = [(1, 1, 1), (3, 5, 7), (16, 256, 64), (4, 64, 16), (5, 70, 33), (1, 257, 64), (17, 129, 65)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("form", ["rows", "columns", "window"])
def test_matmul_of_any_layout_matches_numpy(dtype: Any, shape: tuple[int, int, int], form: str) -> None:
    """The first matrix lies in any way, the others in windows; nothing beside the result is written."""
    m, n, k = shape
    a = RNG.normal(size=(m, k)).astype(dtype)
    a = np.asfortranarray(a) if form == "columns" else a
    b, whole = RNG.normal(size=(k, n + 3)).astype(dtype)[:, 1 : n + 1], np.full((m, n + 5), 7.0, dtype)
    if form == "window":
        a = np.repeat(np.repeat(a, 2, 0), 3, 1)[::2, ::3]
    c = whole[:, 2 : n + 2]
    operands = np.array([x.ctypes.data for x in (a, b, c)], np.int64)
    plan = plan_of(a, b, c)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(multiply(dtype))
    run(operands.ctypes.data, plan.ctypes.data)
    wanted = a.astype(np.longdouble) @ b.astype(np.longdouble)
    rtol = 1e-4 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(c, wanted.astype(dtype), rtol=rtol, atol=rtol)
    assert (whole[:, :2] == 7).all() and (whole[:, n + 2 :] == 7).all()
