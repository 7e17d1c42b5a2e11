"""Indexing by arrays in kernels: one kernel for what is picked, computed with and folded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest
from mgb.jit import trace
from mgb.jit.traced import Traced
from mgb_native import plan

R = np.random.default_rng(0)
W, WORDS = R.normal(size=(500, 64)).astype(np.float32), R.integers(-500, 500, (30, 40)).astype(np.int32)
BIAS, LIGHT = R.normal(size=64).astype(np.float32), R.random((300, 301), np.float32)


def kernels(run: Traced, *arrays: Any) -> tuple[int, str]:
    """How many kernels a call is, and what runs beside them."""
    report = run.explain(*arrays)
    steps = [line for line in report.splitlines() if line.startswith("step ")]
    return sum("cpu_llvm" in line for line in steps), "".join(s for s in steps if "cpu_llvm" not in s)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "embedding, then a sum": (lambda w, i, b: w[i] * 2 + b, (W, WORDS, BIAS)),
    "embedding, then a softmax": (lambda w, i: F.softmax(w[i] * 2, axis=-1), (W, WORDS)),
    "table of a computed index": (lambda w, x: w[(x * 499).astype("int32")] * x, (W[:, 0].copy(), LIGHT)),
    "columns": (lambda w, i: (w[:, i] * 2).sum(axis=0), (W, WORDS.reshape(-1) % 64)),
    "along an axis": (lambda w, i: F.gather(w, 1, i) - 1, (W, R.integers(0, 64, (500, 640)))),
}


@pytest.mark.parametrize("name", CASES)
def test_indexing_and_its_consumers_are_one_kernel(name: str) -> None:
    function, given = CASES[name]
    run, arrays = trace(function, backend="CPU_LLVM"), [mgb.tensor(x) for x in given]
    want = function(*arrays).numpy()
    for _ in range(2):
        np.testing.assert_allclose(run(*arrays).numpy(), want, rtol=2e-5, atol=2e-5)
    count, others = kernels(run, *arrays)
    assert count == 1 and not any(name in others for name in ("index_get", "look_up", "gather")), others


def test_computed_table_is_stored_by_its_own_kernel() -> None:
    """A table that is computed is another kernel's."""
    run = trace(lambda w, i: (w * 2 + 1)[i] * 3, backend="CPU_LLVM")
    arrays = mgb.tensor(W), mgb.tensor(WORDS)
    np.testing.assert_allclose(run(*arrays).numpy(), (W * 2 + 1)[WORDS] * 3, rtol=1e-6)
    assert kernels(run, *arrays)[0] == 2


def test_out_of_bounds_index_leaves_parameters_unchanged() -> None:
    """Parameters updated in place are unchanged when a step rejects its index."""
    w = mgb.Parameter(np.zeros(70_000, np.float32))

    @trace(backend="CPU_LLVM")
    def step(table: Any, index: Any) -> None:
        w[...] = w + table[index] * 2

    table, index = mgb.tensor(np.ones(9, np.float32)), np.zeros(70_000, np.int32)
    step(table, mgb.tensor(index))
    before = w.numpy().copy()
    index[-1] = 9
    for _ in range(2):
        with pytest.raises(IndexError, match="index 9 is out of bounds for axis 0 with size 9"):
            step(table, mgb.tensor(index))
    np.testing.assert_array_equal(w.numpy(), before)


def test_indexing_with_other_lengths() -> None:
    run = trace(lambda w, i: w[i] * 2 + 1, backend="CPU_LLVM")
    for rows, words in ((500, (30, 40)), (400, (7, 11)), (33, (1, 5)), (500, (900, 3))):
        w, i = R.normal(size=(rows, 64)).astype(np.float32), R.integers(-rows, rows, words)
        np.testing.assert_allclose(run(mgb.tensor(w), mgb.tensor(i)).numpy(), w[i] * 2 + 1, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"])
def test_near_and_far_tables_give_the_same(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the bytes of tables in 32 bits and in 64: of flipped ones, columns, with sums, wrong indices."""

    def picked(w: Any, i: Any, j: Any) -> tuple[Any, ...]:
        first, own = w[i, j] * 2, w[::-1, 1][i]
        return (
            first,
            own + 1,
            (first * own).sum(),
            F.gather(w, 0, (i % 90)[:, None] + F.zeros_like(w[:1]).astype(i.dtype)),
        )

    run = trace(picked, backend="CPU_LLVM")
    for count, nearest in ((3001, 1 << 31), (3002, 0), (7, 1 << 31), (8, 0)):
        monkeypatch.setattr(plan, "NEAREST", nearest)
        w = R.normal(size=(90, 5)).astype(np.float32)
        least = 0 if dtype.startswith("u") else -90
        i, j = R.integers(least, 90, count).astype(dtype), R.integers(0, 5, count).astype(dtype)
        given = mgb.tensor(w), mgb.tensor(i, dtype=dtype), mgb.tensor(j, dtype=dtype)
        first, own, total, rows = (r.numpy() for r in run(*given))
        np.testing.assert_array_equal(first, w[i, j] * 2)
        np.testing.assert_array_equal(own, w[::-1, 1][i] + 1)
        np.testing.assert_allclose(total, (first.astype(float) * w[::-1, 1][i]).sum(), rtol=1e-3, atol=1e-3)
        np.testing.assert_array_equal(rows, w[i % 90])
        i[-1] = 91
        with pytest.raises(IndexError, match="index 91 is out of bounds for axis 0 with size 90"):
            run(given[0], mgb.tensor(i, dtype=dtype), given[2])[0].numpy()
