"""Words that this backend spells otherwise in vectors than for one number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch_mlir", reason="MLIR is not installed: pip install torch-mlir==20261001")
pytest.importorskip("mgb_mlir", reason="the plugin is not installed: pip install ./plugins/mlir")

from mgb.ops.primitives import floor_div, mod
from mlir_helpers import BACKEND, call, run_loops, traced

RNG = np.random.default_rng(13)


def patterns(dtype: str, count: int) -> tuple[Any, Any]:
    """Pairs of numbers of any bits; and each special one with each other."""
    word = np.dtype(f"uint{8 * np.dtype(dtype).itemsize}")
    info = np.finfo(dtype)
    a, b = RNG.integers(0, np.iinfo(word).max, (2, count), word, endpoint=True).view(dtype)
    least = info.smallest_subnormal
    some = [
        0.0,
        1.0,
        3.0,
        0.1,
        np.inf,
        np.nan,
        info.max,
        info.max / 3,
        info.tiny,
        info.tiny / 3,
        least,
        7 * least,
    ]
    special = np.array([*some, *(-v for v in some)], dtype)
    n = len(special)
    a[: n * n], b[: n * n] = np.repeat(special, n), np.tile(special, n)
    near = slice(count // 2, None)  # quotients as they occur
    a[near], b[near] = RNG.standard_normal((2, count - count // 2)).astype(dtype) * np.array(
        [[100], [1]], dtype
    )
    return a, b


@pytest.mark.parametrize(("dtype", "count"), [("float32", 1 << 20), ("float64", 1 << 14)])
def test_remainders_are_exact(dtype: str, count: int) -> None:
    """Of any quotient; the sign of 0 is the divisor's."""
    a, b = patterns(dtype, count)
    graph = traced(lambda a, b: (mod(a, b), floor_div(a, b)), [a, b])
    with np.errstate(all="ignore"):
        wanted = np.mod(a, b), np.floor_divide(a, b)
    for one, other in zip(call(BACKEND.compile(graph), graph, [a, b]), wanted, strict=True):
        np.testing.assert_array_equal(one, other)
        numbers = ~np.isnan(other)
        np.testing.assert_array_equal(np.signbit(one[numbers]), np.signbit(other[numbers]))


def test_scalars_have_the_same_remainders() -> None:
    a, b = patterns("float32", 1 << 12)
    graph = traced(lambda a, b: (mod(a, b), floor_div(a, b)), [a, b])
    for one, other in zip(run_loops(graph, [a, b]), call(BACKEND.compile(graph), graph, [a, b]), strict=True):
        np.testing.assert_array_equal(one, other)
