"""Gradients by the tape, and the same by central differences in float64."""

from __future__ import annotations

import numpy as np
from mgb.autodiff import GradManager
from mgb.tensor import Tensor


def float64(array):
    return Tensor(array, dtype="float64")


def gradients(function, *arrays, dy=None):
    """The gradient of ``sum(function * dy)`` for each array, by the tape."""
    tensors = [float64(a) for a in arrays]
    gm = GradManager().attach(tensors)
    with gm:
        gm.backward(function(*tensors), dy)
    return [t.grad for t in tensors]


def numeric(function, *arrays, step=1e-6):
    """The same by central differences."""

    def total(*xs):
        return float(np.sum(function(*(float64(x) for x in xs)).numpy()))

    out = []
    for k, array in enumerate(arrays):
        slope = np.zeros(array.shape)
        for place in np.ndindex(array.shape):
            high, low = [a.copy() for a in arrays], [a.copy() for a in arrays]
            high[k][place] += step
            low[k][place] -= step
            slope[place] = (total(*high) - total(*low)) / (2 * step)
        out.append(slope)
    return out


def check(function, *arrays):
    for got, want in zip(gradients(function, *arrays), numeric(function, *arrays), strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=2e-6, atol=2e-7)


RNG = np.random.default_rng(0)
A, B = RNG.uniform(0.5, 2, (2, 3)), RNG.uniform(0.5, 2, (2, 3))
