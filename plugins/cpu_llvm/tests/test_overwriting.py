"""Assignments to windows of arrays: in place where nobody looks at what was there, and right everywhere."""

from __future__ import annotations

from typing import Any

import mgb
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mgb.jit import trace
from mgb_native.native import note

WINDOWS = (
    (slice(1, -1), slice(1, -1)), (slice(None), slice(0, 1)), (slice(2, None), slice(None)),
    (slice(None, -2), slice(None)), (slice(None), slice(1, None, 2)), (slice(None), slice(None)),
    (slice(0, 0), slice(None)), (slice(1, -1), slice(None)),
)  # fmt: skip

#: Windows of other arrays with as many elements as each has.
SHIFTS = (-1, 0, 1)

Line = tuple[int, int, int, int, str]


def program(lines: list[Line], steps: int) -> Any:
    """A function of three arrays that assigns to windows of them again and again."""

    def run(np_: Any, *arrays: Any) -> list[Any]:
        xs, seen = list(arrays), []
        for _ in range(steps):
            for target, source, window, shift, how in lines:
                rows, columns = WINDOWS[window]
                n = xs[target].shape[0]
                first, last, _ = rows.indices(n)
                moved = slice(max(first + shift, 0), max(first + shift, 0) + max(last - first, 0))
                value = xs[source][rows, columns] * 0.5
                if moved.stop <= n:
                    value = value + xs[source][moved, columns]
                if how == "add":
                    xs[target][rows, columns] += value
                elif how == "number":
                    xs[target][rows, columns] = 0.25
                elif how == "keep":
                    seen.append(xs[target][rows, columns] * 2)
                    xs[target][rows, columns] = value
                else:
                    xs[target][rows, columns] = value
        return [*xs, *seen]

    return run


lines = st.tuples(
    st.integers(0, 2), st.integers(0, 2), st.integers(0, len(WINDOWS) - 1), st.sampled_from(SHIFTS),
    st.sampled_from(("set", "set", "add", "number", "keep")),
)  # fmt: skip


TWICE = [(0, 1, 0, -1, "set"), (0, 0, 0, -1, "set")]


@example(TWICE, 2)  # the same value is assigned twice, and what was there in between
@settings(max_examples=15, deadline=None)
@given(st.lists(lines, min_size=1, max_size=4), st.integers(1, 2))
def test_slice_assignments_match_numpy(given_lines: list[Line], steps: int) -> None:
    function, r = program(given_lines, steps), np.random.default_rng(0)
    arrays = [r.normal(size=(24, 20)) for _ in range(3)]
    run = trace(lambda *xs: function(mgb, *xs), backend="CPU_LLVM")
    for _ in range(2):
        want = function(np, *(a.copy() for a in arrays))
        tensors = [mgb.tensor(a, dtype="float64") for a in arrays]
        for got, true in zip(run(*tensors), want, strict=True):
            np.testing.assert_allclose(got.numpy(), true, rtol=1e-12, atol=1e-12)
        for tensor, true in zip(tensors, want, strict=False):  # the caller's arrays are assigned to as well
            np.testing.assert_allclose(tensor.numpy(), true, rtol=1e-12, atol=1e-12)


def source(run: Any, *arrays: Any) -> str:
    report = run.explain(*arrays)
    return str(report[report.index("\nprogram\n") :])


def jacobi(steps: int, a: Any, b: Any) -> None:
    for _ in range(steps):
        b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])
        a[1:-1, 1:-1] = 0.2 * (b[1:-1, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:] + b[2:, 1:-1] + b[:-2, 1:-1])


def test_stencil_copies_its_arrays_once() -> None:
    a, b = np.random.default_rng(1).normal(size=(2, 40, 50))
    run, want = trace(jacobi, backend="CPU_LLVM"), (a.copy(), b.copy())
    jacobi(4, *want)
    for _ in range(2):
        given = [mgb.tensor(x, dtype="float64") for x in (a, b)]
        run(4, *given)
        for got, true in zip(given, want, strict=True):
            np.testing.assert_allclose(got.numpy(), true, rtol=1e-12)
    text = source(run, 4, *(mgb.tensor(x, dtype="float64") for x in (a, b)))
    edges = "kernels: 8, copies: 8" if note is None else "rest_"
    assert edges in text and "slice_set" not in text  # the four edges of two arrays


def test_augmented_slice_assignment_is_in_place() -> None:
    """Each element is read, and then written by the same kernel."""

    @trace(backend="CPU_LLVM")
    def run(x: Any, y: Any) -> Any:
        z = x * 2
        z[1:] += y[1:]
        z[:, 2:] -= y[:, 2:] * 0.5
        return z

    x, y = np.random.default_rng(2).normal(size=(2, 300, 200)).astype(np.float32)
    want = x * 2
    want[1:] += y[1:]
    want[:, 2:] -= y[:, 2:] * np.float32(0.5)
    for _ in range(2):
        np.testing.assert_allclose(run(mgb.tensor(x), mgb.tensor(y)).numpy(), want, rtol=1e-5, atol=1e-6)
    text = source(run, mgb.tensor(x), mgb.tensor(y))
    assert "slice_set" not in text and "rest_" not in text


def test_overlapping_shift_reads_before_it_writes() -> None:
    @trace(backend="CPU_LLVM")
    def run(x: Any) -> Any:
        z = x * 2
        z[1:] = z[:-1] + 1
        return z

    x = np.random.default_rng(3).normal(size=(500, 300)).astype(np.float32)
    want = x * 2
    want[1:] = want[:-1] + 1
    for _ in range(2):
        np.testing.assert_allclose(run(mgb.tensor(x)).numpy(), want, rtol=1e-6)


@pytest.mark.parametrize("rows", [30, 31])
def test_slice_assignments_with_other_lengths(rows: int) -> None:
    @trace(backend="CPU_LLVM")
    def run(x: Any) -> Any:
        z = x + 1
        for _ in range(3):
            z[1:-1] = (z[:-2] + z[2:]) * 0.5
        return z

    for n in (rows, rows + 7, 3, rows):
        x = np.random.default_rng(n).normal(size=(n, 8))
        want = x + 1
        for _ in range(3):
            want[1:-1] = (want[:-2] + want[2:]) * 0.5
        np.testing.assert_allclose(run(mgb.tensor(x, dtype="float64")).numpy(), want, rtol=1e-12)


@pytest.mark.parametrize("overlaps", [False, True])
def test_windows_of_an_array_are_assigned_to_each_other_in_place(overlaps: bool) -> None:
    """Where they have elements in common, what is read is as it was before."""

    def run(m: Any, x: Any) -> Any:
        y = m.exp(x) * 2
        y[:, -1] = y[:, -2]
        y[0] = y[1]
        y[::2, 3] = y[::2, 1]
        if overlaps:
            y[1:, 1:] = y[:-1, :-1]
            y[2:5] = y[3:6]
        return y

    x = np.random.default_rng(3).normal(size=(30, 20))
    traced = trace(lambda x: run(np, x), backend="CPU_LLVM")
    for _ in range(2):
        np.testing.assert_allclose(traced(mgb.Tensor(x, dtype="float64")).numpy(), run(np, x), rtol=1e-12)
    text = source(traced, mgb.Tensor(x, dtype="float64"))
    assert overlaps or ("slice_set" not in text and text.count("(30, 20)") == 1)
