"""The functions of neural networks: linear maps, convolution, pooling, normalisation, softmax, attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..apply import literal
from ..errors import ShapeError
from ..ops import contract, pooling
from ..ops.attention import attention, below, is_served
from ..ops.index import gather_, index_get
from ..ops.layout import reshape
from ..ops.methods import average
from ..ops.primitives import where
from ..ops.sort import argmax_
from ..random import generator
from ..tensor import Tensor
from . import activation, convolution, ctc, loss, normalization, softmaxes
from .activation import *
from .convolution import *
from .convolution import Pair, pair
from .ctc import *
from .interpolation import interpolate, pixel_shuffle
from .loss import *
from .normalization import *
from .options import COMPUTE_MODES, choice
from .rearrange import pad
from .softmaxes import *
from .softmaxes import softmax
from .tensor import indexing_one_hot, one_hot

#: What a traced function may call of it: see `holding`.
__tracing__ = {"dropout": "elementwise"}

__all__ = [
    "adaptive_avg_pool2d", "adaptive_max_pool2d", "avg_pool2d", "dropout", "embedding", "indexing_one_hot",
    "interpolate", "linear", "max_pool2d", "one_hot", "pad", "pixel_shuffle",
    "scaled_dot_product_attention",
]  # fmt: skip
__all__ += activation.__all__
__all__ += convolution.__all__
__all__ += ctc.__all__
__all__ += loss.__all__
__all__ += normalization.__all__
__all__ += softmaxes.__all__

# linear maps


def linear(inp: Tensor, weight: Tensor, bias: Tensor | None = None, compute_mode: str = "default") -> Tensor:
    """``inp @ weight.T + bias``.

    Parameters
    ----------
    inp : Tensor
        Of shape (..., inputs).
    weight : Tensor
        Of shape (outputs, inputs).
    bias : Tensor, optional
        Of shape (outputs,).
    compute_mode : str
        ``"default"`` or ``"float32"``: 16-bit floats are summed in float32 by either.

    Returns
    -------
    Tensor
        Of shape (..., outputs).
    """
    if compute_mode != "default":
        choice("linear, compute_mode", compute_mode, COMPUTE_MODES)
    rows = inp if inp.ndim == 2 else reshape(inp, shape=(math.prod(inp.shape[:-1]), inp.shape[-1]))
    out = contract.matmul(rows, weight, transpose_b=True)
    if inp.ndim != 2:
        out = reshape(out, shape=(*inp.shape[:-1], weight.shape[0]))
    if bias is not None:
        out = out + bias
    return out


# pooling


def max_pool2d(inp: Tensor, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0) -> Tensor:
    """The largest element of each window of images (N, C, H, W).

    `stride` is `kernel_size` by default. Padding never wins. NaN propagates; of equal elements, the first in
    row-major order gets the gradient.
    """
    return pooling.max_pool2d(inp, **_pool_window(kernel_size, stride, padding))


def avg_pool2d(
    inp: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    mode: str = "average_count_exclude_padding",
) -> Tensor:
    """The mean of each window of images (N, C, H, W).

    `stride` is `kernel_size` by default. `mode` ``"average"`` counts the zeros of the padding.
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
    """The means of `oshp` windows that cover images (N, C, H, W): row i begins at ``i * H // oshp``.

    For one window it is the mean of the image, which fuses with its neighbours.
    """
    size = pair("oshp", oshp)
    return average(inp, (2, 3)) if size == (1, 1) else pooling.adaptive_avg_pool2d(inp, size=size)


def adaptive_max_pool2d(inp: Tensor, oshp: Pair) -> Tensor:
    """The largest elements of `oshp` windows that cover images; see `adaptive_avg_pool2d`.

    Of equal elements, the first in row-major order gets the gradient.
    """
    size = pair("oshp", oshp)
    if inp.ndim != 4 or not all(inp.shape[2:]) or min(size) < 1:
        raise ShapeError(f"adaptive_max_pool2d: no windows {size} in images of shape {inp.shape}")
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
    """The rows and the columns of each window; those of short ones stand more than once at their end."""
    places = []
    for length, count in zip(lengths, counts):
        begin = [i * length // count for i in range(count)]
        end = [-(-(i + 1) * length // count) for i in range(count)]
        reach = max(b - a for a, b in zip(begin, end))
        places.append(np.minimum(np.add.outer(begin, np.arange(reach)), np.array(end)[:, None] - 1))
    return places[0][:, None, :, None], places[1][None, :, None, :]


# the rest


def dropout(inp: Tensor, drop_prob: float, training: bool = True) -> Tensor:
    """Zero each element with probability `drop_prob` and divide the others by ``1 - drop_prob``.

    `inp` itself when not `training`. The random numbers are those of `mgb.random`.

    Raises
    ------
    ValueError
        `drop_prob` is not in ``[0, 1)``.
    """
    if not 0 <= drop_prob < 1:
        raise ValueError(f"dropout: drop_prob {drop_prob} is not in [0, 1)")
    if not training or drop_prob == 0:
        return inp
    kept = generator(inp.device).uniform(size=inp.shape) >= drop_prob
    return where(kept, inp * (1 / (1 - drop_prob)), 0)


def embedding(inp: Tensor, weight: Tensor) -> Tensor:
    """The rows of `weight` (rows, width) that the integers in `inp` name: shape ``(*inp.shape, width)``."""
    return index_get(weight, inp, axes=(0,), place=0)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """``softmax(query @ key.T * scale) @ value`` (Vaswani et al. 2017).

    Parameters
    ----------
    query : Tensor
        Of shape (..., L, E).
    key : Tensor
        Of shape (..., S, E).
    value : Tensor
        Of shape (..., S, V).
    mask : Tensor, optional
        Broadcasts to (..., L, S): of bool, which keys a query sees; else it is added to the scores.
    is_causal : bool
        The i-th query sees the keys up to the i-th.
    scale : float, optional
        None is ``1 / sqrt(E)``.

    Returns
    -------
    Tensor
        Of shape (..., L, V).
    """
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    query = query if factor == 1 else query * factor
    if mask is None and is_served(query, key, value, is_causal):
        return attention(query, key, value, causal=is_causal)
    return contract.matmul(attention_weights(query, key, mask, is_causal, scale=1), value)


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None = None
) -> Tensor:
    """How much each query takes of each key's value, (..., L, S); see `scaled_dot_product_attention`."""
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = contract.matmul(query if factor == 1 else query * factor, key, transpose_b=True)
    if mask is not None:
        scores = where(mask, scores, -math.inf) if mask.dtype == dtypes.bool_ else scores + mask
    if is_causal:
        scores = where(below(scores), scores, -math.inf)
    return softmax(scores, axis=-1)
