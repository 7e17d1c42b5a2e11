"""The windows of images as columns, and pooling along one axis."""

from __future__ import annotations

from ..errors import ShapeError
from ..ops.images.contract import taps, window_counts
from ..ops.layout import concat, cut_along, reshape, slice_, unslice
from ..tensor import Tensor
from .convolution import Pair, pair
from .pooling import avg_pool2d, max_pool2d

__all__ = ["avg_pool1d", "fold", "max_pool1d", "unfold"]


def unfold(inp: Tensor, kernel_size: Pair, dilation: Pair = 1, padding: Pair = 0, stride: Pair = 1) -> Tensor:
    """Return the windows of images, each as a column; torch's arguments.

    Parameters
    ----------
    inp : Tensor of shape (N, C, H, W)
    kernel_size, dilation, padding, stride : int or pair of int

    Returns
    -------
    Tensor of shape (N, C * kh * kw, L)
        L windows, in row-major order.

    Examples
    --------
    >>> F.unfold(F.ones((1, 2, 4, 4)), 2).shape
    (1, 8, 9)
    """
    if inp.ndim != 4:
        raise ShapeError(f"unfold: images have the axes (N, C, H, W), got shape {inp.shape}")
    kernel, spread = pair("kernel_size", kernel_size), pair("dilation", dilation)
    frame, step = pair("padding", padding), pair("stride", stride)
    n, c, height, width = inp.shape
    counts = window_counts("unfold", (height, width), kernel, step, frame, spread)
    whole = (n, c, height + 2 * frame[0], width + 2 * frame[1])
    inside = ((0, n, 1), (0, c, 1), (frame[0], frame[0] + height, 1), (frame[1], frame[1] + width, 1))
    framed = unslice(inp, shape=whole, window=inside) if max(frame) else inp
    columns = [
        reshape(slice_(framed, window=_window(n, c, rows, cols)), shape=(n, c, 1, counts[0] * counts[1]))
        for *_, rows, cols in taps(kernel, step, spread, counts)
    ]
    return reshape(concat(*columns, axis=2), shape=(n, c * len(columns), counts[0] * counts[1]))


def fold(
    inp: Tensor, output_size: Pair, kernel_size: Pair, dilation: Pair = 1, padding: Pair = 0, stride: Pair = 1
) -> Tensor:
    """Return the sum of windows at their places in images of `output_size`: the transpose of `unfold`.

    Parameters
    ----------
    inp : Tensor of shape (N, C * kh * kw, L)
    output_size : int or pair of int
    kernel_size, dilation, padding, stride : int or pair of int

    Returns
    -------
    Tensor of shape (N, C, H, W)

    Examples
    --------
    >>> patches = F.unfold(F.ones((1, 1, 3, 3)), 2)
    >>> F.fold(patches, 3, 2)[0, 0]
    Tensor([[1., 2., 1.],
            [2., 4., 2.],
            [1., 2., 1.]], device=xpux:0)
    """
    (height, width), kernel = pair("output_size", output_size), pair("kernel_size", kernel_size)
    spread, frame, step = pair("dilation", dilation), pair("padding", padding), pair("stride", stride)
    counts, size = window_counts("fold", (height, width), kernel, step, frame, spread), kernel[0] * kernel[1]
    if inp.ndim != 3 or inp.shape[1] % size or inp.shape[2] != counts[0] * counts[1]:
        raise ShapeError(
            f"fold: needs {counts[0] * counts[1]} windows of {size} elements for each channel, got shape "
            f"{inp.shape}"
        )
    n, c = inp.shape[0], inp.shape[1] // size
    parts = reshape(inp, shape=(n, c, size, *counts))
    whole, out = (n, c, height + 2 * frame[0], width + 2 * frame[1]), None
    for place, (*_, rows, cols) in enumerate(taps(kernel, step, spread, counts)):
        part = reshape(cut_along(parts, 2, place, place + 1), shape=(n, c, *counts))
        spot = unslice(part, shape=whole, window=_window(n, c, rows, cols))
        out = spot if out is None else out + spot
    assert out is not None
    inside = slice(frame[0], frame[0] + height), slice(frame[1], frame[1] + width)
    return slice_(out, window=_window(n, c, *inside)) if max(frame) else out


def _window(n: int, c: int, rows: slice, cols: slice) -> tuple[tuple[int, int, int], ...]:
    ranges = [(r.start, r.stop, 1 if r.step is None else r.step) for r in (rows, cols)]
    return ((0, n, 1), (0, c, 1), *ranges)


def max_pool1d(inp: Tensor, kernel_size: int, stride: int | None = None, padding: int = 0) -> Tensor:
    """Return the greatest element of each window along the last axis of (N, C, L); padding never counts.

    Examples
    --------
    >>> F.max_pool1d(mgb.tensor([[[1.0, 3.0, 5.0, 7.0]]]), 2)
    Tensor([[[3., 7.]]], device=xpux:0)
    """
    step = kernel_size if stride is None else stride
    return _row(max_pool2d(_image("max_pool1d", inp), (1, kernel_size), (1, step), (0, padding)))


def avg_pool1d(
    inp: Tensor,
    kernel_size: int,
    stride: int | None = None,
    padding: int = 0,
    mode: str = "average_count_exclude_padding",
) -> Tensor:
    """Return the mean of each window along the last axis of (N, C, L); for `mode` see `avg_pool2d`.

    Examples
    --------
    >>> F.avg_pool1d(mgb.tensor([[[1.0, 3.0, 5.0, 7.0]]]), 2)
    Tensor([[[2., 6.]]], device=xpux:0)
    """
    step = kernel_size if stride is None else stride
    return _row(avg_pool2d(_image("avg_pool1d", inp), (1, kernel_size), (1, step), (0, padding), mode))


def _image(name: str, x: Tensor) -> Tensor:
    if x.ndim != 3:
        raise ShapeError(f"{name}: rows have the axes (N, C, L), got shape {x.shape}")
    return reshape(x, shape=(*x.shape[:2], 1, x.shape[2]))


def _row(x: Tensor) -> Tensor:
    return reshape(x, shape=(*x.shape[:2], x.shape[3]))
