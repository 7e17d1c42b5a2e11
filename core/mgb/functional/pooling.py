"""Pooling of images under MegEngine's names."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..ir import dtypes
from ..ops.images import pooling
from ..ops.index import gather_, index_get
from ..ops.layout import reshape
from ..ops.methods import average
from ..ops.sort import argmax_
from ..tensor import Tensor
from ..tensor.apply import literal
from .convolution import Pair, pair

__all__ = ["adaptive_avg_pool2d", "adaptive_max_pool2d", "avg_pool2d", "max_pool2d"]


def max_pool2d(inp: Tensor, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0) -> Tensor:
    """Return the largest element of each window of images (N, C, H, W).

    `stride` is `kernel_size` by default. Padding never wins. NaN propagates; of equal elements, the first in
    row-major order gets the gradient.

    Examples
    --------
    >>> F.max_pool2d(mgb.tensor([[[[1.0, 2.0], [4.0, 3.0]]]]), 2)
    Tensor([[[[4.]]]], device=xpux:0)
    """
    return pooling.max_pool2d(inp, **_pool_window(kernel_size, stride, padding))


def avg_pool2d(
    inp: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    mode: str = "average_count_exclude_padding",
) -> Tensor:
    """Return the mean of each window of images (N, C, H, W).

    `stride` is `kernel_size` by default. `mode` ``"average"`` counts the zeros of the padding.

    Examples
    --------
    >>> F.avg_pool2d(mgb.tensor([[[[1.0, 2.0], [4.0, 3.0]]]]), 2)
    Tensor([[[[2.5]]]], device=xpux:0)
    """
    modes = {"average": True, "average_count_exclude_padding": False}
    if mode not in modes:
        raise ValueError(f"avg_pool2d: {mode} is not a mode, choose one of {', '.join(modes)}")
    window = _pool_window(kernel_size, stride, padding)
    return pooling.avg_pool2d(inp, count_padding=modes[mode], **window)


def _pool_window(kernel: Pair, stride: Pair | None, padding: Pair) -> dict[str, Any]:
    return {
        "kernel": pair("kernel_size", kernel),
        "stride": pair("stride", kernel if stride is None else stride),
        "padding": pair("padding", padding),
    }


def adaptive_avg_pool2d(inp: Tensor, oshp: Pair) -> Tensor:
    """Return the means of `oshp` windows that cover images (N, C, H, W): row i begins at ``i * H // oshp``.

    For one window it is the mean of the image, which fuses with its neighbours.

    Examples
    --------
    >>> F.adaptive_avg_pool2d(mgb.tensor([[[[1.0, 2.0], [3.0, 6.0]]]]), 1).item()
    3.0
    """
    size = pair("oshp", oshp)
    return average(inp, (2, 3)) if size == (1, 1) else pooling.adaptive_avg_pool2d(inp, size=size)


def adaptive_max_pool2d(inp: Tensor, oshp: Pair) -> Tensor:
    """Return the largest elements of `oshp` windows that cover images; see `adaptive_avg_pool2d`.

    Of equal elements, the first in row-major order gets the gradient.

    Examples
    --------
    >>> F.adaptive_max_pool2d(mgb.tensor([[[[1.0, 2.0], [3.0, 6.0]]]]), 1).item()
    6.0
    """
    size = pair("oshp", oshp)
    if inp.ndim != 4 or not all(inp.shape[2:]) or min(size) < 1:
        raise ShapeError(f"adaptive_max_pool2d: cannot make images of {size} from shape {inp.shape}")
    (n, c, height, width), (rows, columns) = inp.shape, size
    if height % rows == 0 and width % columns == 0:
        return max_pool2d(inp, (height // rows, width // columns))
    places = [literal(p, dtypes.int32, inp.device) for p in _windows((height, width), size)]
    windows = index_get(inp, *places, axes=(2, 3), place=2)
    reach = places[0].shape[2] * places[1].shape[3]
    windows = reshape(windows, shape=(n, c, rows, columns, reach))
    best = argmax_(windows, axis=(4,))
    return reshape(gather_(windows, best, axis=4), shape=(n, c, rows, columns))


def _windows(lengths: tuple[int, int], counts: tuple[int, int]) -> tuple[Any, Any]:
    """Return the rows and the columns of each window.

    Those of short ones stand more than once at their end.
    """
    places = []
    for length, count in zip(lengths, counts):
        begin = [i * length // count for i in range(count)]
        end = [-(-(i + 1) * length // count) for i in range(count)]
        reach = max(b - a for a, b in zip(begin, end))
        places.append(np.minimum(np.add.outer(begin, np.arange(reach)), np.array(end)[:, None] - 1))
    return places[0][:, None, :, None], places[1][None, :, None, :]
