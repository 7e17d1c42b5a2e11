"""Loops that are written once, for us and for JAX, in float64; without JAX their tests are skipped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb.jit as mjit
import mgb.numpy as mnp
import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402


@pytest.fixture(autouse=True)
def in_float64() -> Any:
    with jax.enable_x64(True):
        yield


def both(function: Callable[..., Any], m: Any = mnp) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A function of a module, a module of loops and operands: for us and for JAX."""
    return (lambda *a: function(m, mjit, *a)), (lambda *a: function(jnp, jax.lax, *a))


def close(ours: Any, theirs: Any) -> None:
    for a, b in zip(ours, jax.tree_util.tree_leaves(theirs), strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-9, atol=1e-11)


def nested(m: Any, lax: Any, w: Any, h: Any, xs: Any) -> Any:
    def outer(h: Any, x: Any) -> Any:
        inner = lax.fori_loop(0, 3, lambda i, v: m.sin(v @ w) + i * x, h)
        return inner, lax.cond(x.sum() > 0, lambda v: v * v, lambda v: m.cos(v) * w[0], inner)

    last, ys = lax.scan(outer, h, xs)
    return last.sum() + ys.sum()
