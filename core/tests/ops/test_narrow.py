"""Conversions of narrow floats by their bits, against ml_dtypes: every number, every middle, many others."""

from __future__ import annotations

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from mgb import dtypes
from mgb.codegen import narrowing, widening
from mgb.ir import Spec
from mgb.ops.bodies.narrow import narrow_bits, widen_bits
from mgb.tensor.apply import evaluate
from mgb.tensor.tracing import graph_of

#: With infinities and without, with float32's exponent and with shorter ones.
ROWS = [
    dtypes.float_row(np.dtype(getattr(ml_dtypes, name, name)))
    for name in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e3m4")
]


def computed(function: Any, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the output of the graph of `function`, op by op."""
    graph = graph_of(function, Spec(x.shape, x.dtype))

    def rule(node: Any, *xs: Any) -> Any:
        return node.params["value"] if not node.inputs else evaluate(node.op, xs, dict(node.params))

    with np.errstate(all="ignore"):
        return np.asarray(graph.fold(rule, [x])[0])


def assert_same(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> None:
    """Compare numbers and their signs; any NaN is as good as another one."""
    with np.errstate(invalid="ignore"):
        got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(got, want)
    there = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[there]), np.signbit(want[there]))


def every(row: dtypes.Row) -> np.ndarray[Any, Any]:
    return np.arange(1 << row.bits, dtype=row.word)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.dtype.name)
def test_each_number_is_widened(row: dtypes.Row) -> None:
    with np.errstate(invalid="ignore"):
        want = every(row).view(row.dtype).astype(np.float32)
    assert_same(computed(partial(widen_bits, row=row), every(row)), want)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.dtype.name)
def test_numbers_are_rounded_once_to_the_nearest(row: dtypes.Row) -> None:
    with np.errstate(all="ignore"):
        known = every(row).view(row.dtype).astype(np.float32)
        known = np.unique(known[np.isfinite(known)])
        beyond = 2 * known[-1] - known[-2]
        known = np.concatenate([[-beyond], known, [beyond]]).astype(np.float32)
        middles = ((known[1:].astype(np.float64) + known[:-1]) / 2).astype(np.float32)
        beside = [np.nextafter(middles, np.float32(sign * np.inf)) for sign in (1, -1)]
        random = np.random.default_rng(0).integers(0, 1 << 32, 1 << 18, np.uint32).view(np.float32)
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
        x = np.concatenate([known, middles, *beside, random, special])
        want = x.astype(row.dtype)
    assert_same(computed(partial(narrow_bits, row=row), x).view(row.dtype), want)


@pytest.mark.parametrize("dtype", dtypes.HALVES)
def test_graphs_for_backends_are_of_bits_alone(dtype: np.dtype[Any]) -> None:
    row = dtypes.ROWS[dtype]
    graphs = (narrowing(dtype), widening(dtype))
    assert [n.spec.dtype for g in graphs for n in (*g.inputs, *g.outputs)] == [
        dtypes.float32, row.word, row.word, dtypes.float32
    ]  # fmt: skip
    assert not {n.spec.dtype for g in graphs for n in g.nodes} & set(dtypes.HALVES)
