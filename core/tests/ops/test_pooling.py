"""Pooling, against loops over windows in float64 and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb.errors import ShapeError
from mgb.ops.images import pooling
from mgb.tensor import Tensor

RNG = np.random.default_rng(0)

WINDOWS = [
    {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0)},
    {"kernel": (3, 2), "stride": (1, 2), "padding": (1, 0)},
    {"kernel": (2, 3), "stride": (3, 1), "padding": (1, 1)},
]


def windows(x, kernel, stride, padding):
    """Each window of an image (N, C, H, W) without its frame, in an array (oh, ow) of arrays (N, C, ., .)."""
    (kh, kw), (sh, sw), (ph, pw) = kernel, stride, padding
    height, width = (x.shape[2] + 2 * ph - kh) // sh + 1, (x.shape[3] + 2 * pw - kw) // sw + 1

    def part(i, j):
        top, left = i * sh - ph, j * sw - pw
        return x[:, :, max(top, 0) : top + kh, max(left, 0) : left + kw]

    return [[part(i, j) for j in range(width)] for i in range(height)]


def pooled(x, function, **window):
    rows = [[function(part) for part in row] for row in windows(x, **window)]
    return np.array(rows).transpose(2, 3, 0, 1)


@pytest.mark.parametrize("window", WINDOWS)
def test_max_pool2d(window, check_gradient):
    x = RNG.standard_normal((2, 2, 5, 6))
    got = pooling.max_pool2d(Tensor(x, dtype="float64"), **window).numpy()
    np.testing.assert_array_equal(got, pooled(x, lambda part: part.max((2, 3)), **window))
    check_gradient(lambda t: pooling.max_pool2d(t * t, **window), x[:1], order=2)


def test_first_maximum_gets_the_gradient():
    x = Tensor(np.zeros((1, 1, 2, 4)))
    y = pooling.max_pool2d(x, kernel=(2, 2), stride=(2, 2), padding=(0, 0))
    g = pooling.max_pool2d_grad(Tensor([[[[3.0, 5.0]]]]), x, y, kernel=(2, 2), stride=(2, 2), padding=(0, 0))
    np.testing.assert_array_equal(g.numpy()[0, 0], [[3, 0, 5, 0], [0, 0, 0, 0]])


def test_nan_propagates():
    x = np.zeros((1, 1, 2, 4), np.float32)
    x[0, 0, 1, 1] = np.nan
    window = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0)}
    y = pooling.max_pool2d(Tensor(x), **window)
    np.testing.assert_array_equal(y.numpy()[0, 0], [[np.nan, 0]])
    g = pooling.max_pool2d_grad(Tensor([[[[3.0, 5.0]]]]), Tensor(x), y, **window)
    np.testing.assert_array_equal(g.numpy()[0, 0], [[0, 0, 5, 0], [0, 3, 0, 0]])


def test_max_pool2d_ignores_padding():
    window = {"kernel": (3, 3), "stride": (1, 1), "padding": (1, 1)}
    for x in (np.full((1, 1, 3, 3), -7, np.int32), np.full((1, 1, 3, 3), -7.5, np.float16)):
        np.testing.assert_array_equal(pooling.max_pool2d(Tensor(x), **window).numpy(), x)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("count_padding", [False, True])
def test_avg_pool2d(window, count_padding, check_gradient):
    x = RNG.standard_normal((1, 2, 5, 6))

    def mean(part):
        count = np.prod(window["kernel"]) if count_padding else part[0, 0].size
        return part.sum((2, 3)) / count

    got = pooling.avg_pool2d(Tensor(x, dtype="float64"), count_padding=count_padding, **window).numpy()
    np.testing.assert_allclose(got, pooled(x, mean, **window), rtol=1e-12)
    check_gradient(lambda t: pooling.avg_pool2d(t * t, count_padding=count_padding, **window), x, order=2)


@settings(max_examples=40)
@given(st.tuples(*[st.integers(1, 9)] * 2), st.tuples(*[st.integers(1, 9)] * 2))
def test_adaptive_avg_pool2d(shape, size):
    x = RNG.standard_normal((2, 1, *shape))
    want = np.empty((2, 1, *size))
    for i in range(size[0]):
        rows = slice(i * shape[0] // size[0], int(np.ceil((i + 1) * shape[0] / size[0])))
        for j in range(size[1]):
            cols = slice(j * shape[1] // size[1], int(np.ceil((j + 1) * shape[1] / size[1])))
            want[:, :, i, j] = x[:, :, rows, cols].mean((2, 3))
    got = pooling.adaptive_avg_pool2d(Tensor(x, dtype="float64"), size=size).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)


def test_adaptive_avg_pool2d_gradients(check_gradient):
    x = RNG.standard_normal((1, 2, 5, 4))
    check_gradient(lambda t: pooling.adaptive_avg_pool2d(t * t, size=(3, 2)), x, order=2)


def test_integers_are_averaged_as_floats():
    x = Tensor(np.array([[[[1, 2], [3, 4]]]]))
    window = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0)}
    assert pooling.avg_pool2d(x, count_padding=False, **window).item() == 2.5
    assert pooling.adaptive_avg_pool2d(x, size=(1, 1)).item() == 2.5


@pytest.mark.parametrize(
    "shape, kernel, padding, message",
    [
        ((2, 4, 4), (2, 2), (0, 0), "4 axes"),
        ((1, 1, 4, 4), (2, 2), (2, 0), "more than half"),
        ((1, 1, 4, 4), (5, 2), (0, 0), r"\(5, 2\).*larger than images of \(4, 4\)"),
    ],
)
def test_max_pool2d_rejects_invalid_shapes(shape, kernel, padding, message):
    with pytest.raises(ShapeError, match=message):
        pooling.max_pool2d(Tensor(np.ones(shape)), kernel=kernel, stride=(1, 1), padding=padding)
