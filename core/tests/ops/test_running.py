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
from mgb.ops.scans import decayed_sum
from mgb.transforms import grad

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
    check(lambda x: F.logcumsumexp(x * 5, 0) * weights, X)


def test_decayed_sum_and_its_gradients() -> None:
    decays = np.tanh(RNG.normal(size=X.shape))
    want, sums = np.zeros(X.shape), np.zeros(X[:, 0].shape)
    for k in range(X.shape[1]):
        want[:, k] = sums = X[:, k] + decays[:, k] * sums
    np.testing.assert_allclose(decayed_sum(t(X), t(decays), axis=1).numpy(), want, rtol=1e-12)
    weights = t(np.cos(np.arange(X.size)).reshape(X.shape))
    for axis in range(3):
        check(lambda x, axis=axis: decayed_sum(x, t(decays), axis=axis) * weights, X)
        check(lambda d, axis=axis: decayed_sum(t(X), d, axis=axis) * weights, decays)
    for shape in ((0, 3), (3, 0), (3, 1)):
        x = t(np.full(shape, 2.0))
        assert decayed_sum(x, x, axis=1).tolist() == x.tolist()
        assert grad(lambda x: decayed_sum(x, x, axis=1).sum())(x).tolist() == np.ones(shape).tolist()
    with pytest.raises(ShapeError, match="decayed_sum: elements of shape"):
        trace(lambda x: decayed_sum(x, x[:1], axis=1))(t(X))


def test_gradient_of_logcumsumexp_beside_infinities() -> None:
    """Check shares of sums: 0 of -infinity, whatever the sum; 0 of numbers below an infinity."""
    x = t(np.array([[-np.inf, -np.inf, 1.0, -np.inf, 2.0], [0.0, 1.0, np.inf, 5.0, 6.0]]))
    got = grad(lambda x: F.logcumsumexp(x, 1).sum())(x).numpy()
    e = np.exp(1.0)
    np.testing.assert_allclose(got[0], [0, 0, 2 + 1 / (1 + e), 0, e / (1 + e)], rtol=1e-12)
    np.testing.assert_allclose(got[1, :2], [1 + 1 / (1 + e), e / (1 + e)], rtol=1e-12)
    np.testing.assert_array_equal(got[1, 3:], 0)


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
