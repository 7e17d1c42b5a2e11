"""Pooling: the rule for ties in every dtype, and programs that do not grow with the window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb import dtypes
from mgb import functional as F
from mgb.autodiff import GradManager
from mgb.ops.images.pooling import avg_pool2d, avg_pool2d_grad, max_pool2d, max_pool2d_grad, max_pool2d_pick
from xla_helpers import eagerly, program, whole

Window = dict[str, tuple[int, int]]


@st.composite
def windows(draw: st.DrawFn) -> tuple[tuple[int, int], Window]:
    """The size of an image and a window that it takes; windows overlap, touch, or leave pixels out."""
    kernel = draw(st.tuples(st.integers(1, 6), st.integers(1, 6)))
    stride = draw(st.tuples(st.integers(1, 7), st.integers(1, 7)))
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    size = tuple(draw(st.integers(max(1, k - 2 * q), 12)) for k, q in zip(kernel, padding, strict=True))
    return size, {"kernel": kernel, "stride": stride, "padding": padding}


def by_definition(g: np.ndarray, x: np.ndarray, window: Window) -> np.ndarray:
    """The gradient of the maximum, pixel by pixel: to the first maximum or NaN of each window."""
    (kh, kw), (sh, sw), (ph, pw) = window["kernel"], window["stride"], window["padding"]
    framed = np.pad(x, [(0, 0), (0, 0), (ph, ph), (pw, pw)], constant_values=-np.inf)
    out = np.zeros_like(framed)
    for n, c, i, j in np.ndindex(g.shape):
        seen = framed[n, c, i * sh : i * sh + kh, j * sw : j * sw + kw]
        row, column = np.unravel_index(np.argmax(seen), seen.shape)  # the first; NaN counts as the largest
        out[n, c, i * sh + row, j * sw + column] += g[n, c, i, j]
    return out[:, :, ph : ph + x.shape[2], pw : pw + x.shape[3]]


def maxima(window: Window) -> Callable[..., list[Any]]:
    """The words of the maximum: of a gradient, images and their maxima."""
    return lambda g, x, y: [
        max_pool2d(x, **window),
        max_pool2d_grad(g, x, y, **window),
        max_pool2d_pick(x, x, y, **window),
    ]


@settings(max_examples=5)
@given(windows(), st.integers(0, 2**32 - 1))
def test_max_pooling_gradient_goes_to_the_first_maximum(case: Any, seed: int) -> None:
    size, window = case
    random = np.random.default_rng(seed)
    values = np.array([-np.inf, -np.inf, -1.0, -0.0, 0.0, 1.0, np.inf, np.nan])
    x = random.choice(values, (2, 2, *size), p=[*[0.16] * 6, 0.02, 0.02])
    (y,) = eagerly(lambda x: max_pool2d(x, **window), x)
    g = random.integers(-5, 6, y.shape).astype(np.float64)
    found = program(maxima(window), g, x, y).run(g, x, y)
    np.testing.assert_array_equal(found[1], by_definition(g, x, window))
    for got, want in zip(found, eagerly(maxima(window), g, x, y), strict=True):
        np.testing.assert_array_equal(got, want)


@settings(max_examples=5)
@given(windows(), st.booleans())
def test_average_pooling_gradient_is_its_transpose(case: Any, counts: bool) -> None:
    size, window = case
    x = whole((2, 2, *size))
    (y,) = eagerly(lambda x: avg_pool2d(x, count_padding=counts, **window), x)
    g = whole(y.shape, seed=1)

    def words(g: Any, x: Any) -> list[Any]:
        kept = {"count_padding": counts, **window}
        return [avg_pool2d(x, **kept), avg_pool2d_grad(g, size=size, **kept)]

    found, gradient = program(words, g, x).run(g, x)
    np.testing.assert_allclose(found, y, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose((gradient * x).sum(), (g * y).sum(), rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "uint8", "int64"])
def test_max_pooling_in_each_dtype(dtype: str) -> None:
    window = {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 1)}
    x = np.abs(whole((2, 3, 8, 9), most=3)).astype(dtypes.as_dtype(dtype))
    (y,) = eagerly(lambda x: max_pool2d(x, **window), x)
    g = np.abs(whole(y.shape, seed=1, most=3)).astype(x.dtype)
    found, wants = program(maxima(window), g, x, y).run(g, x, y), eagerly(maxima(window), g, x, y)
    for got, want in zip(found, wants, strict=True):
        np.testing.assert_array_equal(got, want, strict=True)


def _gradient(pool: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        manager = GradManager().attach([x])
        with manager:
            manager.backward((pool(x) ** 2).sum())
        return x.grad

    return function


#: Pooling of images of so many rows and columns, by windows that grow with them.
GROWING: dict[str, Callable[[int], Callable[[Any], Any]]] = {
    "the whole image": lambda d: lambda x: F.adaptive_max_pool2d(x, 1),
    "maximum": lambda d: lambda x: F.max_pool2d(x, d // 4),
    "overlapping maximum": lambda d: lambda x: F.max_pool2d(x, d // 2, 1),
    "mean": lambda d: lambda x: F.avg_pool2d(x, d // 4),
    "overlapping mean": lambda d: lambda x: F.avg_pool2d(x, d // 2, 1, 1),
}


@pytest.mark.parametrize("name", GROWING)
def test_program_does_not_grow_with_the_window(name: str) -> None:
    texts = []
    for d in (8, 16):
        compiled = program(_gradient(GROWING[name](d)), whole((2, 3, d, d), np.float32))
        assert [step.fused for step in compiled.steps] == [True]
        texts += [kernel.source for kernel in compiled.kernels]
    small, large = (text.count(" = ") for text in texts)  # instructions
    assert small == large


@pytest.mark.parametrize("window", [(2, 2), (3, 2), (2, 3), (8, 8)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_maximum_of_a_window_keeps_nan_in_large_images(window: tuple[int, int], dtype: str) -> None:
    size, stride = window
    x = np.ones((1, 2, 96, 96), dtype)
    x[0, 1, 50, 51] = np.nan
    found = program(
        lambda x: max_pool2d(x, kernel=(size, size), stride=(stride, stride), padding=(0, 0)), x
    ).run(x)[0]
    seen = np.lib.stride_tricks.sliding_window_view(x, (size, size), (2, 3))[:, :, ::stride, ::stride]
    np.testing.assert_array_equal(found, seen.max((-2, -1)))
