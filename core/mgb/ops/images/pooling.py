"""Pooling of NCHW images. Every op loops over the taps of the window, never over the pixels of the image."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir import Kind, Op, Spec, dtypes
from ...tensor import Tensor
from ...tensor.libraries import Rule
from ..declare import FLOATING, as_they_are, declare, real
from ..reduce import lowest
from .contract import Pair, pad, taps, window_counts


def _pool_infer(x: Spec, kernel: Pair, stride: Pair, padding: Pair) -> Spec:
    if x.ndim != 4:
        raise ShapeError(f"pooling: needs images of 4 axes (N, C, H, W), got {x.shape}")
    _check_padding(kernel, padding)
    counts = window_counts("pooling", x.shape[2:], kernel, stride, padding)  # type: ignore[arg-type]
    return Spec((*x.shape[:2], *counts), x.dtype)


def _check_padding(kernel: Pair, padding: Pair) -> None:
    """Check the padding: a wider one would make windows without a pixel."""
    if any(2 * p > k for p, k in zip(padding, kernel, strict=True)):
        raise ShapeError(f"pooling: padding {padding} is more than half of the window {kernel}")


def _crop(framed: Any, padding: Pair) -> Any:
    (h, w), (ph, pw) = framed.shape[2:], padding
    return framed[:, :, ph : h - ph, pw : w - pw]


def _tap_views(framed: Any, kernel: Pair, stride: Pair) -> list[Any]:
    """Return for each tap of the window the view (N, C, oh, ow) of the pixels it meets."""
    counts = window_counts("pooling", framed.shape[2:], kernel, stride, (0, 0))
    return [framed[:, :, rows, cols] for _i, _j, rows, cols in taps(kernel, stride, (1, 1), counts)]


# maximum


def _max_eager(x: Any, kernel: Pair, stride: Pair, padding: Pair) -> Any:
    _check_padding(kernel, padding)
    first, *rest = _tap_views(pad(x, padding, lowest(x.dtype)), kernel, stride)
    out = first.copy()
    for tap in rest:
        np.maximum(out, tap, out=out)
    return out


def _winners(x: Any, y: Any, kernel: Pair, stride: Pair, padding: Pair) -> list[Any]:
    """Return for each tap where it is the first to hold the maximum `y`, or the first NaN of its window."""
    free = np.ones_like(y, dtype=np.bool_)
    winners = []
    for tap in _tap_views(pad(x, padding, lowest(x.dtype)), kernel, stride):
        pixels = tap.copy()  # read with a stride once, compared without
        wins = (pixels == y) | (pixels != pixels)
        wins &= free
        free ^= wins
        winners.append(wins)
    return winners


def _places_infer(x: Spec, **window: Any) -> Spec:
    return Spec(_pool_infer(x, **window).shape, dtypes.int32)


def _places_eager(x: Any, kernel: Pair, stride: Pair, padding: Pair) -> Any:
    y = _max_eager(x, kernel, stride, padding)
    counts, width = y.shape[2:], x.shape[3]
    out = np.zeros_like(y, dtype=np.int32)
    rows, cols = (
        np.asarray(np.arange(n, dtype=np.int32) * s - p, like=y) for n, s, p in zip(counts, stride, padding)
    )
    first = rows[:, None] * np.int32(width) + cols  # of each window, the place of its first pixel
    winners = iter(_winners(x, y, kernel, stride, padding))
    for i, j, *_ in taps(kernel, stride, (1, 1), counts):
        np.copyto(out, first + np.int32(i * width + j), where=next(winners))
    return out


max_pool2d_places = declare(
    Op(
        "max_pool2d_places",
        Kind.OPAQUE,
        _places_infer,
        _places_eager,
        promote=real(as_they_are),
        differentiable=False,
        meaning="The place, in int32, of the first maximum of each window, or its first NaN, counted "
        "row-major in the image (H, W).",
    )
)


def _max_grad_eager(g: Any, x: Any, y: Any, kernel: Pair, stride: Pair, padding: Pair) -> Any:
    framed = pad(np.zeros_like(x, dtype=g.dtype), padding)
    views = _tap_views(framed, kernel, stride)
    for view, wins in zip(views, _winners(x, y, kernel, stride, padding), strict=True):
        view += np.where(wins, g, 0)
    return _crop(framed, padding)


def _max_grad_infer(g: Spec, x: Spec, _y: Spec, **_window: Any) -> Spec:
    return Spec(x.shape, g.dtype)


def _max_pick_eager(h: Any, x: Any, y: Any, kernel: Pair, stride: Pair, padding: Pair) -> Any:
    out = np.zeros_like(y, dtype=h.dtype)
    views = _tap_views(pad(h, padding), kernel, stride)
    for view, wins in zip(views, _winners(x, y, kernel, stride, padding), strict=True):
        np.copyto(out, view, where=wins)
    return out


def _max_grad(g: Tensor, y: Tensor, x: Tensor, **window: Any) -> tuple[Tensor]:
    return (max_pool2d_grad(g, x, y, **window),)


def _max_grad_grad(
    h: Tensor, _y: Spec, _g: Spec, x: Tensor, y: Tensor, **window: Any
) -> tuple[Tensor, None, None]:
    return max_pool2d_pick(h, x, y, **window), None, None


def _max_pick_grad(
    g: Tensor, _y: Spec, _h: Spec, x: Tensor, y: Tensor, **window: Any
) -> tuple[Tensor, None, None]:
    return max_pool2d_grad(g, x, y, **window), None, None


max_pool2d = declare(
    Op(
        "max_pool2d",
        Kind.OPAQUE,
        _pool_infer,
        Rule("max_pool2d", _max_eager, _pool_infer),
        _max_grad,
        meaning="The largest of each window of images (N, C, H, W); a window with NaN gives NaN, and what "
        "`padding` adds counts as less than everything.",
    )
)

max_pool2d_grad = declare(
    Op(
        "max_pool2d_grad",
        Kind.OPAQUE,
        _max_grad_infer,
        Rule("max_pool2d_grad", _max_grad_eager, _max_grad_infer),
        _max_grad_grad,
        meaning="`g` carried back to the first maximum of each window, zeros elsewhere.",
    )
)

max_pool2d_pick = declare(
    Op(
        "max_pool2d_pick",
        Kind.OPAQUE,
        lambda h, x, y, **_w: Spec(y.shape, h.dtype),
        _max_pick_eager,
        _max_pick_grad,
        meaning="Of `h`, what stands where each window of `x` has its first maximum.",
    )
)


# average


def _avg_infer(x: Spec, kernel: Pair, stride: Pair, padding: Pair, count_padding: bool) -> Spec:
    return _pool_infer(x, kernel, stride, padding)


def window_pixels(
    size: Pair, dtype: Any, kernel: Pair, stride: Pair, padding: Pair, count_padding: bool
) -> Any:
    """Count the pixels of each window: a number, or an array (1, 1, oh, ow)."""
    if count_padding or padding == (0, 0):
        return dtype.type(kernel[0] * kernel[1])
    inside = pad(np.ones((1, 1, *size), dtype), padding)
    return np.sum(_tap_views(inside, kernel, stride), axis=0, dtype=dtype)


def _avg_eager(x: Any, kernel: Pair, stride: Pair, padding: Pair, count_padding: bool) -> Any:
    _check_padding(kernel, padding)
    first, *rest = _tap_views(pad(x, padding), kernel, stride)
    out = first.copy()
    for tap in rest:
        out += tap
    out /= np.asarray(window_pixels(x.shape[2:], x.dtype, kernel, stride, padding, count_padding), like=out)
    return out


def _avg_grad_infer(g: Spec, size: Pair, **_window: Any) -> Spec:
    return Spec((*g.shape[:2], *size), g.dtype)


def _avg_grad_eager(
    g: Any, size: Pair, kernel: Pair, stride: Pair, padding: Pair, count_padding: bool
) -> Any:
    share = g / np.asarray(window_pixels(size, g.dtype, kernel, stride, padding, count_padding), like=g)
    framed = pad(np.zeros_like(g, shape=(*g.shape[:2], *size)), padding)
    for view in _tap_views(framed, kernel, stride):
        view += share
    return _crop(framed, padding)


def _avg_grad(g: Tensor, _y: Spec, _x: Spec, **window: Any) -> tuple[Tensor]:
    return (avg_pool2d_grad(g, size=_x.shape[2:], **window),)


def _avg_grad_grad(h: Tensor, _y: Spec, _g: Spec, size: Pair, **window: Any) -> tuple[Tensor]:
    return (avg_pool2d(h, **window),)


avg_pool2d = declare(
    Op(
        "avg_pool2d",
        Kind.OPAQUE,
        _avg_infer,
        Rule("avg_pool2d", _avg_eager, _avg_infer),
        _avg_grad,
        promote=FLOATING.promote,
        meaning="The mean of each window, with or without the zeros that `padding` adds.",
    )
)

avg_pool2d_grad = declare(
    Op(
        "avg_pool2d_grad",
        Kind.OPAQUE,
        _avg_grad_infer,
        Rule("avg_pool2d_grad", _avg_grad_eager, _avg_grad_infer),
        _avg_grad_grad,
        meaning="The transpose of `avg_pool2d`, for images of (H, W) = `size`.",
    )
)


# average over windows that fit a wanted size


@lru_cache(maxsize=256)
def averaging(size: int, wanted: int, dtype: Any) -> Any:
    """Return the matrix (wanted, size) whose rows take the means of the windows.

    Neighbours may share an element.
    """
    row, place = np.arange(wanted)[:, None], np.arange(size)
    inside = (place >= row * size // wanted) & (place < -(-(row + 1) * size // wanted))
    matrix = (inside / inside.sum(axis=1, keepdims=True)).astype(dtype)
    matrix.flags.writeable = False
    return matrix


def _adaptive_infer(x: Spec, size: Pair) -> Spec:
    if x.ndim != 4 or min(size) < 1 or min(x.shape[2:]) < 1:
        raise ShapeError(f"adaptive_avg_pool2d: cannot make images of {size} from {x.shape}")
    return Spec((*x.shape[:2], *size), x.dtype)


def _adaptive_eager(x: Any, size: Pair) -> Any:
    rows, cols = (
        np.asarray(averaging(*pair, x.dtype), like=x) for pair in zip(x.shape[2:], size, strict=True)
    )
    return rows @ (x @ cols.T)


def _adaptive_grad(g: Tensor, _y: Spec, _x: Spec, size: Pair) -> tuple[Tensor]:
    return (adaptive_avg_pool2d_grad(g, size=_x.shape[2:]),)


def _adaptive_grad_grad(h: Tensor, _y: Spec, _g: Spec, size: Pair) -> tuple[Tensor]:
    return (adaptive_avg_pool2d(h, size=_g.shape[2:]),)


def _adaptive_grad_eager(g: Any, size: Pair) -> Any:
    rows, cols = (
        np.asarray(averaging(*pair, g.dtype), like=g) for pair in zip(size, g.shape[2:], strict=True)
    )
    return rows.T @ (g @ cols)


adaptive_avg_pool2d = declare(
    Op(
        "adaptive_avg_pool2d",
        Kind.OPAQUE,
        _adaptive_infer,
        _adaptive_eager,
        _adaptive_grad,
        promote=FLOATING.promote,
        meaning="Means over `size` windows: window i of n along H is from floor(i * H / n) to "
        "ceil((i + 1) * H / n).",
    )
)

adaptive_avg_pool2d_grad = declare(
    Op(
        "adaptive_avg_pool2d_grad",
        Kind.OPAQUE,
        lambda g, size: Spec((*g.shape[:2], *size), g.dtype),
        _adaptive_grad_eager,
        _adaptive_grad_grad,
        meaning="The transpose of `adaptive_avg_pool2d`, for images of (H, W) = `size`.",
    )
)
