"""Loops and branches whose bodies a backend compiles: against loops of NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mgb
import numpy as np
import pytest
from mgb.jit import cond, fori_loop, scan, trace, while_loop

from .drive import Driver

R = np.random.default_rng(0)
X, ROWS = R.normal(size=(6, 8)).astype(np.float32), R.normal(size=(40, 8)).astype(np.float32)


def scanned(lax: Any, x: Any, rows: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        a, b = carry
        return (np.tanh(a * 0.9 + row) + b * 0.01, a), (a * b).sum(axis=1)

    (a, b), ys = lax.scan(step, (x, x * 0.5), rows)
    return a, b, ys


def stencil(lax: Any, x: Any, rows: Any) -> Any:
    def step(i: Any, u: Any) -> Any:
        inner = u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
        return np.concatenate([u[:1], inner, u[-1:]])

    return (lax.fori_loop(0, 30, step, x),)


def halved(lax: Any, x: Any, rows: Any) -> Any:
    last = lax.while_loop(
        lambda s: (s[0] ** 2).sum() > 0.5, lambda s: (s[0] * 0.7, s[1] + 1), (x, np.int32(0))
    )
    return last


def chosen(lax: Any, x: Any, rows: Any) -> Any:
    return tuple(
        lax.cond(p, lambda x: np.exp(x) * 2, lambda x: x * x + 1, x) for p in (x[0, 0] > 9, x[0, 0] < 9)
    )


class ByNumpy:
    """The same functions as Python writes them."""

    @staticmethod
    def scan(f: Callable[..., Any], init: Any, xs: Any) -> Any:
        carry, ys = init, []
        for x in xs:
            carry, y = f(carry, x)
            ys.append(y)
        return carry, np.stack(ys)

    @staticmethod
    def fori_loop(lower: int, upper: int, f: Callable[..., Any], value: Any) -> Any:
        for i in range(lower, upper):
            value = f(i, value)
        return value

    @staticmethod
    def while_loop(test: Callable[..., Any], f: Callable[..., Any], value: Any) -> Any:
        while test(value):
            value = f(value)
        return value

    @staticmethod
    def cond(pred: Any, yes: Callable[..., Any], no: Callable[..., Any], x: Any) -> Any:
        return (yes if pred else no)(x)


class Ours:
    """Those of mgb."""

    scan, fori_loop, while_loop, cond = map(staticmethod, (scan, fori_loop, while_loop, cond))


class TestLoops:
    @pytest.fixture(autouse=True)
    def where_the_backend_works(self, driver: Driver) -> Iterator[None]:
        """Tensors are made on a device of the backend."""
        with driver.place.as_default():
            yield

    @pytest.mark.parametrize("function", [scanned, stencil, halved, chosen])
    def test_loops_match_numpy(self, driver: Driver, function: Callable[..., Any]) -> None:
        run = trace(lambda x, rows: function(Ours, x, rows), backend=driver.backend.name)
        wanted = function(ByNumpy, X.astype(np.float64), ROWS.astype(np.float64))
        for _ in range(2):
            found = run(mgb.tensor(X), mgb.tensor(ROWS))
            for ours, true in zip(found, wanted, strict=True):
                np.testing.assert_allclose(ours.numpy(), true, rtol=2e-4, atol=1e-5)

    def test_scan_gradient(self, driver: Driver) -> None:
        """Check a scan, by finite differences of NumPy's in float64."""

        def loss(lax: Any, x: Any, rows: Any) -> Any:
            a, b, ys = scanned(lax, x, rows)
            return (a * b).sum() + (ys**2).sum()

        run = trace(mgb.grad(lambda x, rows: loss(Ours, x, rows)), backend=driver.backend.name)
        way, x, rows = R.normal(size=X.shape), X.astype(np.float64), ROWS.astype(np.float64)
        ahead, behind = (loss(ByNumpy, x + h * way, rows) for h in (1e-5, -1e-5))
        found = run(mgb.tensor(X), mgb.tensor(ROWS)).numpy()
        np.testing.assert_allclose((found * way).sum(), (ahead - behind) / 2e-5, rtol=1e-3)
