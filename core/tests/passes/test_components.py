"""Short axes that are folded are taken apart: one kernel, and NumPy's values in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb
import numpy as np
import pytest
from mgb.backends.plugins import load_backend
from mgb.errors import BackendError
from mgb.jit import trace

R = np.random.default_rng(0)


def forces(p: Any) -> Any:
    d = p[None, :, :] - p[:, None, :]
    r2 = (d * d).sum(-1) + 0.01
    return (d / (r2 * np.sqrt(r2))[:, :, None]).sum(1)


def coordinates_in_front(p: Any) -> Any:
    q = p.T
    d = q[:, None, :] - q[:, :, None]
    return (d / ((d * d).sum(0) + 0.1)).sum(2)


def means_and_extremes(p: Any) -> Any:
    d = np.abs(p[None, :, :] - p[:, None, :])
    return d.mean(-1).sum(1) + d.max(-1).sum(0) + d.min(2).sum(0) + d.prod(2).sum(0)


def all_at_once(p: Any) -> Any:
    """A reduction of the short axis together with another one."""
    d = p[None, :, :] - p[:, None, :]
    return (d * d * p[:, None, :1]).sum((1, 2)) + p.sum(1)


def wanted_whole(p: Any) -> Any:
    """Too large to be put together again."""
    d = p[None, :, :] - p[:, None, :]
    return d, np.sqrt((d * d).sum(-1))


def batched(p: Any) -> Any:
    q = p.reshape(-1, 2, p.shape[1])
    d = q[:, None, :, :] - q[None, :, :, :]
    return (d * (np.exp(-(d * d).sum(-1)))[..., None]).sum(0) * np.arange(1.0, 6.0)[: p.shape[1]]


def along_two_axes(p: Any) -> Any:
    """A value that is read along one axis here and along another one there."""
    t = np.sin(p[:4, :4] if p.shape[1] == 4 else p @ p.T)
    t = np.cos(t[:4, :4]) if t.shape[0] >= 4 else np.cos(t)
    return (t[None, :, :] * t[:, :, None] + np.sqrt(t[:, None, :] ** 2)).sum(-1) + t


def running_sums(p: Any) -> Any:
    """A scan is no fold, nor is the place of the largest."""
    d = p[None, :, :] - p[:, None, :]
    return np.cumsum(d * d, axis=-1).sum(1) + np.argmax(d * 2.0, axis=-1).sum(1)[:, None]


def running_sums_between(p: Any) -> Any:
    """Of the axis that is taken apart."""
    d = p[None, :, :] - p[:, None, :]
    return (np.cumsum(d * d, axis=-1) * d).sum(-1).sum(1) + np.maximum.accumulate(d, axis=2).sum((1, 2))


def pairs(p: Any) -> Any:
    """Some of first and of second places, also from the end."""
    n = p.shape[0]
    return np.arange(5 * n) * 7 % n, np.arange(5 * n) ** 2 % n - n


def forces_of_pairs(p: Any) -> Any:
    """What is looked up leaves whole, computed with as many numbers that are read."""
    first, second = pairs(p)
    d = p[first] - p[second] + np.resize(p, (5 * p.shape[0], p.shape[1]))
    return d / ((d * d).sum(1) + 0.1)[:, None], np.sqrt((d * d).sum(1))


def forces_of_moved_pairs(p: Any) -> Any:
    """Rows of a table that is computed, and wanted otherwise."""
    first, second = pairs(p)
    q = np.sin(p) * 2.0
    d = q[first] - q[second]
    return (d * d).max(1), (q * q).sum(1)


def forces_of_columns(p: Any) -> Any:
    first, second = pairs(p)
    q = p.T
    d = q[:, first] - q[:, second]
    return d / np.abs(d).sum(0)[None, :].clip(0.1)


def one_row_looked_up(p: Any) -> Any:
    d = p[:1][np.zeros(40, np.int64)] - p[0]
    return (d * d).sum(1) + p[:, 0].sum()


CASES = (
    forces_of_pairs,
    forces_of_moved_pairs,
    forces_of_columns,
    one_row_looked_up,
    running_sums,
    running_sums_between,
    along_two_axes,
    forces,
    coordinates_in_front,
    means_and_extremes,
    all_at_once,
    wanted_whole,
    batched,
)


@pytest.mark.parametrize("backend", ["cpu_llvm", "cpu_numba", "mlir"])
@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_values_match_numpy(function: Callable[[Any], Any], backend: str) -> None:
    try:
        load_backend(backend)
    except BackendError as error:
        pytest.skip(str(error))
    traced = trace(function, backend=backend)
    for shape in [(40, 3), (40, 3), (62, 3), (62, 2), (30, 4), (8, 3), (2, 3), (60, 5)]:
        p = R.normal(size=shape)
        found = traced(mgb.tensor(p, dtype="float64"))
        wanted = function(p)
        for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, wanted)), strict=True):
            np.testing.assert_allclose(a.numpy(), b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("function", [forces, coordinates_in_front])
def test_function_is_fused_into_one_kernel(function: Callable[[Any], Any]) -> None:
    text = trace(function, backend="cpu_llvm").explain(mgb.tensor(R.normal(size=(64, 3))))
    assert "1 fused groups" in text


def apart(x: Any, p: Any) -> Any:
    d = x[p[:, 0]] - x[p[:, 1]]
    return d / ((d * d).sum(1) + 0.1)[:, None]


def test_looked_up_rows_are_taken_apart_and_stored_in_place() -> None:
    x, p = R.normal(size=(50, 3)), R.integers(-50, 50, (4000, 2))
    table, places = mgb.tensor(x, dtype="float64"), mgb.tensor(p)
    traced = trace(apart, backend="cpu_llvm")
    for _ in range(3):
        found = traced(table, places)
    np.testing.assert_allclose(found.numpy(), apart(x, p), rtol=1e-9)
    text = str(traced.explain(table, places))
    assert "1 fused groups" in text and "reduce_sum" not in text.split("simplified")[1]
    assert "concat" not in text.split("def run")[1]


@pytest.mark.parametrize("wrong", [50, -51])
def test_indices_of_looked_up_rows_are_checked(wrong: int) -> None:
    x, p = R.normal(size=(50, 3)), R.integers(-50, 50, (4000, 2))
    traced = trace(apart, backend="cpu_llvm")
    for _ in range(3):
        traced(mgb.tensor(x), mgb.tensor(p))
    p[3000, 1] = wrong
    with pytest.raises(IndexError, match=rf"{wrong}.*axis 0.*50"):
        traced(mgb.tensor(x), mgb.tensor(p)).numpy()


def test_gradients(check_gradient: Callable[..., None]) -> None:
    check_gradient(trace(forces), R.normal(size=(6, 3)))
