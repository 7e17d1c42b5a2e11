"""Normalization."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from mgb.errors import ShapeError
from mgb.functional import normalization
from mgb.ops import elementwise as words
from mgb.ops.bodies.transcendental import pow as power
from mgb.ops.declare import normalize_axis
from mgb.ops.layout import reshape
from mgb.ops.methods import average
from mgb.ops.primitives import cast, eq, sqrt, where
from mgb.ops.reduce import reduce_sum
from mgb.tensor import Tensor
from mgb.tensor.apply import literal

from ..values import Value, dtype_of, is_known
from .contractions import framed, with_bias
from .elementwise import like
from .layout import axis_of
from .pooling import Windows
from .table import operator


def _along_channels(parameter: Tensor, x: Tensor) -> Tensor:
    return reshape(parameter, shape=(parameter.size, *(1,) * (x.ndim - 2)))


@operator("BatchNormalization")
def batch_normalization(
    x: Tensor,
    scale: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    *,
    wanted: int,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
) -> Value:
    """Normalize; for inference by a factor and a shift per channel, folded where they are known."""
    if training_mode:
        scale, bias, mean, variance = (_tensor(v, x) for v in (scale, bias, mean, variance))
        return _trained(x, scale, bias, mean, variance, epsilon, momentum)[:wanted]
    if is_known((scale, bias, mean, variance)):
        wide = [v.astype(np.float64) for v in (scale, bias, mean, variance)]
        known = wide[0] / np.sqrt(wide[3] + epsilon)
        factor, shift = (literal(v, x.dtype, x.device) for v in (known, wide[1] - wide[2] * known))
    else:
        scale, bias, mean, variance = (_tensor(v, x) for v in (scale, bias, mean, variance))
        factor = scale * words.rsqrt(variance + epsilon)
        shift = like(bias - mean * factor, x)
        factor = like(factor, x)
    return with_bias(x * _along_channels(factor, x), shift)


def _tensor(value: Value, like: Tensor) -> Tensor:
    return value if isinstance(value, Tensor) else literal(value, value.dtype, like.device)


def _trained(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, epsilon: float, momentum: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize by the statistics of the batch, towards which the running ones move."""
    axis = tuple(i for i in range(x.ndim) if i != 1)
    batch_mean = average(x, axis)
    batch_variance = average(words.square(x - batch_mean), axis)
    factor = words.rsqrt(batch_variance + epsilon)
    out = with_bias((x - batch_mean) * factor * _along_channels(scale, x), bias)
    new_mean = mean * momentum + reshape(batch_mean, shape=mean.shape) * (1 - momentum)
    new_variance = variance * momentum + reshape(batch_variance, shape=variance.shape) * (1 - momentum)
    return like(out, x), like(new_mean, mean), like(new_variance, variance)


@operator("InstanceNormalization")
def instance_normalization(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    return normalization.instance_norm(x, True, scale, bias, epsilon)


@operator("GroupNormalization")
def group_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    """Normalize groups; until opset 21 with one `scale` per group, since then with one per channel."""
    computed = dtype_of(stash_type, "GroupNormalization")
    wide, channels = cast(x, dtype=computed), x.shape[1]
    out = like(normalization.group_norm(wide, num_groups, False, eps=epsilon), x)
    if scale.size == channels:
        return with_bias(out * _along_channels(scale, x), bias)
    groups = reshape(out, shape=(x.shape[0], num_groups, channels // num_groups, *x.shape[2:]))
    return reshape(with_bias(groups * _along_channels(scale, groups), bias), shape=x.shape)


@operator("LayerNormalization")
def layer_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    wanted: int,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Value:
    """Normalize, with the mean and the inverse deviation where they are requested."""
    axes = tuple(range(axis_of("LayerNormalization", axis, x.ndim), x.ndim))
    wide = cast(x, dtype=dtype_of(stash_type, "LayerNormalization"))
    if wanted == 1:
        out = normalization.layer_norm(wide, wide.shape[axes[0] :], False, eps=epsilon)
        out = like(out, x) * scale
        return out if bias is None else out + bias
    mean = average(wide, axes)
    centred = wide - mean
    inverse = words.rsqrt(average(words.square(centred), axes) + epsilon)
    out = like(centred * inverse, x) * scale
    return (out if bias is None else out + bias, mean, inverse)[:wanted]


@operator("RMSNormalization")
def rms_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    first = axis_of("RMSNormalization", axis, x.ndim)
    wide = cast(x, dtype=dtype_of(stash_type, "RMSNormalization"))
    return like(normalization.rms_norm(wide, wide.shape[first:], None, epsilon), x) * scale


@operator("MeanVarianceNormalization")
def mean_variance_normalization(x: Tensor, *, axes: Sequence[int] = (0, 2, 3)) -> Tensor:
    axis = normalize_axis("MeanVarianceNormalization", tuple(axes), x.ndim)
    centred = x - average(x, axis)
    return like(centred / (sqrt(average(words.square(centred), axis)) + 1e-9), x)


@operator("LpNormalization")
def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """Divide `x` by its norm along `axis`; where the norm is 0 the result is 0."""
    axes = normalize_axis("LpNormalization", axis, x.ndim)
    if p not in (1, 2):
        raise ShapeError(f"LpNormalization: p must be 1 or 2, got {p}")
    norm = reduce_sum(words.abs(x) if p == 1 else words.square(x), axis=axes)
    norm = norm if p == 1 else sqrt(norm)
    return where(eq(norm, 0), 0, x / where(eq(norm, 0), 1, norm))


@operator("LRN")
def local_response_normalization(
    x: Tensor, *, size: int, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0
) -> Tensor:
    """Return each pixel against the squares of its neighbours among the channels."""
    squares = reshape(words.square(x), shape=_stacked_shape(x))
    before = (size - 1) // 2
    windows = Windows(
        squares.shape[2:], (1, size, 1), None, None, "NOTSET", (0, before, 0, 0, size - 1 - before, 0), 0
    )
    taps = windows.taps(framed(squares, windows.edges))
    total = taps[0]
    for tap in taps[1:]:
        total = total + tap
    return x / power(bias + reshape(total, shape=x.shape) * (alpha / size), beta)


def _stacked_shape(x: Tensor) -> tuple[int, ...]:
    """Return channels as the middle one of three axes of one image."""
    return 1, 1, x.shape[0], x.shape[1], x.size // max(x.shape[0] * x.shape[1], 1)
