"""Windows that are read as they were assigned: their values are taken, arrays that nobody reads not made."""

from __future__ import annotations

from typing import Any

import mgb
import numpy as np
import pytest
from mgb.jit import trace

X = np.random.default_rng(4).normal(size=(6, 5))


def recurrence(m: Any, x: Any) -> Any:
    c, d = m.zeros_like(x), m.zeros_like(x)
    c[:, 0] = x[:, 0]
    d[:, 0] = 2.0
    for k in range(1, x.shape[1]):
        c[:, k] = x[:, k] * 0.5
        d[:, k] = c[:, k] + d[:, k - 1] * c[:, k - 1]
        c[:, k] = c[:, k] * d[:, k]
    total = d[:, -1]
    for k in range(x.shape[1] - 1, -1, -1):
        total = total * 0.5 + c[:, k]
    return total


def before_all(m: Any, x: Any) -> Any:
    """What is read was there before, and is not of a window that is assigned."""
    c = m.zeros_like(x) + x
    c[1:3] = 1.0
    c[4] = x[0]
    return c[0] + c[3] + c[5] * c[4]


def broadcast(m: Any, x: Any) -> Any:
    c = m.zeros_like(x)
    c[1:4, ::2] = x[:1, ::2]
    return c[1:4, ::2].sum(axis=0)


def partly(m: Any, x: Any) -> Any:
    """One that is read is of two assignments, or of a part of one."""
    c = m.zeros_like(x)
    c[0:3] = x[0:3]
    c[2:5] = x[1:4] * 2
    return c[0:3] + c[2:5], c[3]


def again(m: Any, x: Any) -> Any:
    """The last assignment counts, and only what came before the read."""
    c = m.zeros_like(x)
    c[0] = x[0]
    first = c[0] * 1.0
    c[0] = x[1] + first
    c[0, 1:3] = 7.0
    return c[0] * 2, first * 3


def backwards(m: Any, x: Any) -> Any:
    c = m.zeros_like(x)
    c[::-1] = x
    c[0:2] = 3.0
    return c[::-1] + c[0:1]


def returned(m: Any, x: Any) -> Any:
    c = m.zeros_like(x)
    for k in range(1, 5):
        c[k] = x[k] + c[k - 1]
    return c, c[4] * 2


def as_value(m: Any, x: Any) -> Any:
    """An array is assigned to a window of another one."""
    c, d = m.zeros_like(x), m.zeros_like(x)
    c[1] = x[2]
    d[0] = c[1]
    d[1:3] = d[0:2] * 1.0
    e = m.zeros_like(x)
    e[:, :] = c
    return d[0], e


PROGRAMS = {
    f.__name__: f for f in (recurrence, before_all, broadcast, partly, again, backwards, returned, as_value)
}

#: Those that make no array to assign to.
SKIPPED = ("recurrence", "before_all", "broadcast")


def leaves(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("opt_level", [2, 3])
def test_programs_with_windows_match_numpy(name: str, opt_level: int) -> None:
    function = PROGRAMS[name]
    run = trace(lambda x: function(mgb.numpy, x), opt_level=opt_level)
    for seed in (1, 2):
        x = np.random.default_rng(seed).normal(size=X.shape)
        for got, want in zip(
            leaves(run(mgb.Tensor(x, dtype="float64"))), leaves(function(np, x)), strict=True
        ):
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", PROGRAMS)
def test_arrays_that_nobody_reads_whole_are_not_made(name: str) -> None:
    run = trace(lambda x: PROGRAMS[name](mgb.numpy, x))
    for _ in range(2):
        run(mgb.Tensor(X, dtype="float64"))
    (program,) = run.programs()
    assert ("slice_set" not in str(program.simplified)) == (name in SKIPPED)


@pytest.mark.parametrize("name", ["recurrence", "partly"])
def test_other_lengths_with_windows_match_numpy(name: str) -> None:
    run = trace(lambda x: PROGRAMS[name](mgb.numpy, x), symbolic=True)
    for rows in (6, 8, 7):
        x = np.random.default_rng(rows).normal(size=(rows, 5))
        for got, want in zip(
            leaves(run(mgb.Tensor(x, dtype="float64"))), leaves(PROGRAMS[name](np, x)), strict=True
        ):
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-14)
