"""Running extremes and logarithms of sums, and borders: against torch and NumPy."""

from __future__ import annotations

from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from differences import check
from mgb import Tensor
from mgb.errors import ShapeError
from mgb.jit import trace

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 7, 2))
TIES = RNG.integers(0, 3, (3, 7, 2)).astype(np.float64)
ODD = np.where(RNG.random((3, 7, 2)) < 0.2, RNG.choice([np.nan, np.inf, -np.inf], (3, 7, 2)), TIES)


def t(x: Any) -> Tensor:
    return Tensor(x, dtype="float64" if x.dtype.kind == "f" else "int32")


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("x", [X, TIES, ODD, X[:, :0], TIES.astype(np.int32)], ids=lambda x: str(x.shape))
def test_cummax_and_cummin_match_torch(name: str, x: Any) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    traced = trace(getattr(F, name))
    want = getattr(torch, name)(torch.tensor(x), 1)
    for found in (getattr(F, name)(t(x), 1), traced(t(x), 1), traced(t(x), -2)):
        for got, w in zip(found, want, strict=True):
            np.testing.assert_array_equal(got.numpy(), w.numpy())


def test_logcumsumexp_matches_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for x in (X * 300, np.where(X > 1, -np.inf, X)):
        want = torch.logcumsumexp(torch.tensor(x), 1)
        np.testing.assert_allclose(F.logcumsumexp(t(x), 1).numpy(), want.numpy(), rtol=1e-12)


def test_gradients_match_finite_differences() -> None:
    weights = t(np.cos(np.arange(X.size)).reshape(X.shape))
    check(lambda x: F.cummax(x, 1)[0] * weights, X)
    check(lambda x: F.cummin(x, 0)[0] * weights, X)
    check(lambda x: F.logcumsumexp(x, 1) * weights, X)


@pytest.mark.parametrize("mode", ["wrap", "symmetric", "reflect", "edge"])
def test_pad_modes_match_numpy(mode: str) -> None:
    widths = [(2, 1), (0, 4), (1, 0)]
    np.testing.assert_array_equal(np.pad(t(X), widths, mode).numpy(), np.pad(X, widths, mode))
    check(lambda x: np.pad(x, widths, mode) ** 2, X)


def test_circular_and_negative_padding_match_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pad = torch.nn.functional.pad
    got = F.pad(t(X), [(0, 0), (0, 0), (1, 2)], "circular")
    np.testing.assert_array_equal(got.numpy(), pad(torch.tensor(X), (1, 2), mode="circular").numpy())
    for value in (0.0, 2.5):
        got = F.pad(t(X), [(-1, 2), (3, -4), (0, -1)], constant_value=value)
        want = pad(torch.tensor(X), (0, -1, 3, -4, -1, 2), value=value)
        np.testing.assert_array_equal(got.numpy(), want.numpy())
    check(lambda x: F.pad(x, [(-1, 2), (3, -4), (0, -1)], constant_value=2.5) ** 2, X)
    with pytest.raises(ShapeError, match="crop more than axis 0"):
        F.pad(t(X), [(-2, -2), (0, 0), (0, 0)])
