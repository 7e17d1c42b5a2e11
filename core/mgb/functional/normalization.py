"""Normalisation: shift and scale by statistics of the data.

All are spelt in reductions that keep their axes, so that a fused group is one kernel. 16-bit floats are
normalised in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import dtypes
from ..errors import ShapeError
from ..ops.elementwise import rsqrt
from ..ops.layout import reshape
from ..ops.methods import average
from ..ops.primitives import cast, maximum
from ..ops.reduce import Axes, extent
from ..tensor import Tensor

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm"]


def _wide(x: Tensor) -> Tensor:
    return cast(x, dtype=dtypes.float32) if x.dtype in dtypes.HALVES else x


def _moments(x: Tensor, axis: Axes) -> tuple[Tensor, Tensor, Tensor]:
    """The mean over `axis`, the deviation from it, and the biased variance."""
    mean = average(x, axis)
    deviation = x - mean
    return mean, deviation, average(deviation * deviation, axis)


def _standardized(x: Tensor, axis: Axes, eps: float) -> Tensor:
    """`x` with mean 0 and variance 1 over `axis`."""
    _mean, deviation, variance = _moments(_wide(x), axis)
    return _narrow(deviation * rsqrt(variance + eps), x)


def _narrow(out: Tensor, like: Tensor) -> Tensor:
    return out if out.dtype == like.dtype else cast(out, dtype=like.dtype)


def _checked(
    name: str, affine: bool, weight: Tensor | None, bias: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """The parameters to apply: both of them, or none unless `affine`."""
    if affine and (weight is None or bias is None):
        raise ValueError(f"{name}: affine=True needs a weight and a bias")
    return (weight, bias) if affine else (None, None)


def _along_channels(parameter: Tensor, ndim: int) -> Tensor:
    """A parameter of one number for each channel, shaped to broadcast to (N, C, ...)."""
    return reshape(parameter, shape=(1, parameter.size, *(1,) * (ndim - 2)))


def _by_channel(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """``x * weight + bias``, with one number for each channel of `x` (N, C, ...)."""
    if weight is not None:
        x = x * _along_channels(weight, x.ndim)
    return x if bias is None else x + _along_channels(bias, x.ndim)


def batch_norm(
    inp: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    training: bool = False,
    momentum: float = 0.9,
    eps: float = 1e-5,
    inplace: bool = True,
) -> Tensor | tuple[Tensor, Tensor | None, Tensor | None]:
    """Normalise each channel over the batch (Ioffe and Szegedy 2015).

    Parameters
    ----------
    inp : Tensor
        Of shape (N, C, ...).
    running_mean : Tensor, optional
        One number for each channel, of any shape.
    running_var : Tensor, optional
        Likewise. It follows the unbiased variance, while `inp` is divided by the root of the biased one.
    weight : Tensor, optional
        One number for each channel; None is 1.
    bias : Tensor, optional
        Likewise; None is 0.
    training : bool
        Use the statistics of the batch and move the running ones towards them; else use the running ones.
    momentum : float
        ``running = momentum * running + (1 - momentum) * batch``.
    eps : float
        Added to the variance.
    inplace : bool
        Rebind the running statistics; False: return them.

    Returns
    -------
    Tensor, or ``(out, new_mean, new_var)`` when training with running statistics and not `inplace`

    Raises
    ------
    ValueError
        Not training, and a running statistic is missing.
    """
    x = _wide(inp)
    if not training:
        if running_mean is None or running_var is None:
            raise ValueError("batch_norm: running_mean and running_var are needed unless training=True")
        scale = rsqrt(_along_channels(running_var, inp.ndim) + eps)
        return _by_channel(_narrow((x - _along_channels(running_mean, inp.ndim)) * scale, inp), weight, bias)
    axis = tuple(i for i in range(inp.ndim) if i != 1)
    mean, deviation, variance = _moments(x, axis)
    out = _by_channel(_narrow(deviation * rsqrt(variance + eps), inp), weight, bias)
    count = extent(x, axis=axis)
    new_mean = _followed(running_mean, mean, momentum)
    new_var = _followed(running_var, variance * (count / maximum(count - 1, 1)), momentum)
    if not inplace and (running_mean is not None or running_var is not None):
        return out, new_mean, new_var
    for old, new in ((running_mean, new_mean), (running_var, new_var)):
        if old is not None and new is not None:
            old._reset(new)
    return out


def _followed(running: Tensor | None, batch: Tensor, momentum: float) -> Tensor | None:
    """The running statistic after one more batch."""
    if running is None:
        return None
    batch = reshape(cast(batch.detach(), dtype=running.dtype), shape=running.shape)
    out: Tensor = running.detach() * momentum + batch * (1 - momentum)
    return out


def _trailing(name: str, inp: Tensor, normalized_shape: int | Sequence[int]) -> Axes:
    """The last axes of `inp`, whose lengths are `normalized_shape`."""
    given = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not given or inp.shape[-len(given) :] != given:
        raise ShapeError(f"{name}: {inp.shape} does not end in the normalized shape {given}")
    return tuple(range(inp.ndim - len(given), inp.ndim))


def layer_norm(
    inp: Tensor,
    normalized_shape: int | Sequence[int],
    affine: bool = True,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise over the last axes, whose lengths are `normalized_shape` (Ba, Kiros and Hinton 2016).

    `weight` and `bias` have that shape and are needed when `affine`.

    Raises
    ------
    ShapeError
        The shape of `inp` does not end in `normalized_shape`.
    """
    axis = _trailing("layer_norm", inp, normalized_shape)
    weight, bias = _checked("layer_norm", affine, weight, bias)
    out = _standardized(inp, axis, eps)
    if weight is not None:
        out = out * weight
    return out if bias is None else out + bias


def rms_norm(
    inp: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, eps: float = 1e-6
) -> Tensor:
    """Divide by the root of the mean square over the last axes (Zhang and Sennrich 2019).

    See `layer_norm`; there is no mean to subtract, hence no bias.
    """
    axis = _trailing("rms_norm", inp, normalized_shape)
    x = _wide(inp)
    out = _narrow(x * rsqrt(average(x * x, axis) + eps), inp)
    return out if weight is None else out * weight


def instance_norm(
    inp: Tensor,
    affine: bool = True,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of each image (N, C, ...) on its own (Ulyanov, Vedaldi and Lempitsky 2016).

    `weight` and `bias` have one number for each channel and are needed when `affine`.
    """
    out = _standardized(inp, tuple(range(2, inp.ndim)), eps)
    return _by_channel(out, *_checked("instance_norm", affine, weight, bias))


def group_norm(
    inp: Tensor,
    num_groups: int,
    affine: bool = True,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise groups of neighbouring channels of each image (N, C, ...) (Wu and He 2018).

    `weight` and `bias` have one number for each channel and are needed when `affine`.

    Raises
    ------
    ShapeError
        The channels do not divide into `num_groups`.
    """
    channels = inp.shape[1]
    if channels % num_groups:
        raise ShapeError(f"group_norm: {channels} channels do not divide into {num_groups} groups")
    groups = reshape(inp, shape=(inp.shape[0], num_groups, channels // num_groups, *inp.shape[2:]))
    out = reshape(_standardized(groups, tuple(range(2, groups.ndim)), eps), shape=inp.shape)
    return _by_channel(out, *_checked("group_norm", affine, weight, bias))
