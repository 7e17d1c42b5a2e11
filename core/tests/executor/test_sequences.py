"""Calls in a row that a backend makes as one: right for arrays that lie in any way."""

from __future__ import annotations

import threading
from typing import Any

import mgb
import numpy as np
import pytest
from mgb.backends.plugins import load_backend
from mgb.jit import trace

R = np.random.default_rng(5)
A, B = R.normal(size=(2, 12, 10))


def heat(u: Any, v: Any) -> None:
    for _ in range(3):
        v[1:-1, 1:-1] = 0.2 * (u[1:-1, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] + u[2:, 1:-1] + u[:-2, 1:-1])
        u[1:-1, 1:-1] = v[1:-1, 1:-1] * 0.5 + u[1:-1, 1:-1]


def edges(u: Any, v: Any) -> None:
    """What is assigned is a window of the same array."""
    for _ in range(2):
        u[1:-1, 1:-1] = u[1:-1, :-2] + v[1:-1, 2:]
        u[:, -1] = u[:, -2]
        u[0, :] = u[1, :]
        u[:, 0] = 3.0
        u[-1, ::2] = u[-2, ::2]


def shifts(u: Any, v: Any) -> None:
    """The windows have elements in common."""
    for _ in range(2):
        u[1:] = u[:-1]
        v[:, :-1] = v[:, 1:] * 2
        u[:, ::-1] = u
        v[2:8] = v[1:7]


def columns(u: Any, v: Any) -> None:
    """Each column needs the one before it."""
    v[:, 0] = u[:, 0]
    for j in range(1, u.shape[1]):
        v[:, j] = 0.3 * u[:, j] + 0.5 * v[:, j - 1]
    for j in range(u.shape[1] - 2, -1, -1):
        u[:, j] = v[:, j] - 0.1 * u[:, j + 1]


def rows(u: Any, v: Any) -> None:
    """Rows are of another shape, and what is read is from a transposed view."""
    for i in range(u.shape[0]):
        u[i] = np.sum(v.reshape(2, -1, v.shape[1])[:, i // 2 : i // 2 + 3] * u[i], axis=(0, 1))
        v[i, 2:] = v[i, :-2] + u.T[2:, i]


PROGRAMS = {f.__name__: f for f in (heat, edges, shifts, columns, rows)}


def tensors(*arrays: Any) -> list[Any]:
    return [mgb.Tensor(a, dtype=a.dtype) for a in arrays]


def turned(a: Any) -> Any:
    """Return a Tensor of `a` whose columns lie side by side."""
    return mgb.Tensor(a.T.copy(), dtype=a.dtype).T


def backwards(a: Any) -> Any:
    return mgb.Tensor(a[::-1, ::-1].copy(), dtype=a.dtype)[::-1, ::-1]


def check(run: Any, function: Any, *arrays: Any, lies: Any = tensors) -> None:
    want, given = [a.copy() for a in arrays], lies(*arrays)
    function(*want)
    run(*given)
    for got, true in zip(given, want, strict=True):
        np.testing.assert_allclose(got.numpy(), true, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", PROGRAMS)
def test_slice_assignments_in_a_row_match_numpy(name: str) -> None:
    run = trace(PROGRAMS[name], backend="CPU_LLVM")
    for seed in range(3):
        a, b = np.random.default_rng(seed).normal(size=(2, 12, 10))
        check(run, PROGRAMS[name], a, b)


@pytest.mark.parametrize("name", PROGRAMS)
def test_arrays_that_lie_in_another_way_match_numpy(name: str) -> None:
    run = trace(PROGRAMS[name], backend="CPU_LLVM")
    assert not turned(A)._array().flags.c_contiguous and not backwards(A)._array().flags.c_contiguous
    for lies in (
        tensors,
        lambda a, b: (turned(a), *tensors(b)),
        lambda a, b: (backwards(a), turned(b)),
        tensors,
    ):
        for seed in range(2):
            check(run, PROGRAMS[name], *np.random.default_rng(seed).normal(size=(2, 12, 10)), lies=lies)


@pytest.mark.parametrize("name", ["heat", "edges"])
def test_other_lengths_match_numpy(name: str) -> None:
    run = trace(PROGRAMS[name], backend="CPU_LLVM", symbolic=True)
    for rows_, columns_ in ((12, 10), (9, 10), (7, 13), (12, 10), (9, 8)):
        check(run, PROGRAMS[name], *R.normal(size=(2, rows_, columns_)))


@pytest.mark.parametrize("name", ["heat", "edges", "columns"])
def test_unrolled_loop_is_one_call(name: str) -> None:
    if load_backend("cpu_llvm").note() is not None:
        pytest.skip("CPU_LLVM has no launcher in C")
    run = trace(PROGRAMS[name], backend="CPU_LLVM")
    for _ in range(2):
        check(run, PROGRAMS[name], A, B)
    (program,) = run.programs()
    lines = program.source.splitlines()
    assert sum("sequence_" in line for line in lines) == 1
    assert not any(word in program.source for word in ("slice_", "kernel_", "rest_", "part_"))


def test_views_of_results_are_there_for_later_ops() -> None:
    """An op that runs eagerly reads a window of what a sequence has written."""

    @trace(backend="CPU_LLVM")
    def run(x: Any) -> Any:
        y = x * 2
        y[1:] = x[:-1] + 1
        z = y[2:].T
        return np.sort(z, axis=0), z[:3] + 1, y

    for _ in range(2):
        y = A * 2
        y[1:] = A[:-1] + 1
        want = np.sort(y[2:].T, axis=0), y[2:].T[:3] + 1, y
        for got, true in zip(run(*tensors(A)), want, strict=True):
            np.testing.assert_allclose(got.numpy(), true, rtol=1e-12)


def test_threads_follow_one_sequence_at_once() -> None:
    run, failures = trace(columns, backend="CPU_LLVM"), list[BaseException]()
    check(run, columns, A, B)

    def work(seed: int) -> None:
        try:
            for _ in range(20):
                a, b = np.random.default_rng(seed).normal(size=(2, 12, 10))
                check(run, columns, a, b, lies=tensors if seed % 2 else lambda *xs: [turned(x) for x in xs])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_large_stencils_match_numpy_with_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    run = trace(heat, backend="CPU_LLVM")
    a, b = R.normal(size=(2, 300, 257))
    for threads in ("1", "3", "2"):
        monkeypatch.setenv("MGB_NUM_THREADS", threads)
        check(run, heat, a, b)
        check(run, heat, a, b)


def test_assignment_that_is_ready_before_its_turn_runs_once() -> None:
    def body(x: Any) -> Any:
        a, b = x * 2, x * 1
        b[1:2] = x[0:1]
        return a.sum(), b.sum()

    x, run = R.normal(size=(6, 6)), trace(body)
    for _ in range(2):
        got = run(*tensors(x))
    np.testing.assert_allclose([float(v) for v in got], body(x), rtol=1e-12)
