"""Words that this backend spells otherwise in vectors than for one number."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch_mlir", reason="MLIR is not installed: pip install torch-mlir==20261001")
pytest.importorskip("mgb_mlir", reason="the plugin is not installed: pip install ./plugins/mlir")

from mgb.ops.bodies.division import floor_div, mod
from mgb_conformance.cases import pairs_of_any_bits
from mlir_helpers import BACKEND, call, run_loops, traced

RNG = np.random.default_rng(13)


@pytest.mark.parametrize(("dtype", "count"), [("float32", 1 << 20), ("float64", 1 << 14)])
def test_mod_and_floor_div_are_exact(dtype: str, count: int) -> None:
    """Of any quotient; the sign of 0 is the divisor's."""
    a, b = pairs_of_any_bits(dtype, count)
    graph = traced(lambda a, b: (mod(a, b), floor_div(a, b)), [a, b])
    with np.errstate(all="ignore"):
        wanted = np.mod(a, b), np.floor_divide(a, b)
    for one, other in zip(call(BACKEND.compile(graph), graph, [a, b]), wanted, strict=True):
        np.testing.assert_array_equal(one, other)
        numbers = ~np.isnan(other)
        np.testing.assert_array_equal(np.signbit(one[numbers]), np.signbit(other[numbers]))


def test_scalar_mod_and_floor_div_match_the_vector_ones() -> None:
    a, b = pairs_of_any_bits("float32", 1 << 12)
    graph = traced(lambda a, b: (mod(a, b), floor_div(a, b)), [a, b])
    for one, other in zip(run_loops(graph, [a, b]), call(BACKEND.compile(graph), graph, [a, b]), strict=True):
        np.testing.assert_array_equal(one, other)
