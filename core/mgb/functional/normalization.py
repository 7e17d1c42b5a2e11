"""Normalisation: shift and scale by statistics of the data.

All decompose into reductions that keep their axes, so that a fused group is one kernel. 16-bit floats are
normalised in float32 and rounded once. The gradient is a closed form of the input: it stores nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..autodiff import Function
from ..distributed.functional import all_reduce_sum
from ..distributed.group import WORLD, Group, is_distributed
from ..errors import ShapeError
from ..ir import dtypes
from ..ops.elementwise import rsqrt
from ..ops.layout import reshape, sum_to
from ..ops.methods import average
from ..ops.primitives import cast, maximum
from ..ops.reduce import Axes, extent, reduce_sum
from ..runtime.precision import AUTOCAST, HIGH
from ..tensor import Tensor

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm", "sync_batch_norm"]


def _wide(x: Tensor) -> Tensor:
    return cast(x, dtype=dtypes.float32) if x.dtype in dtypes.HALVES else x


class _Normalize(Function):
    """``(x - mean) / sqrt(variance + eps)`` over `axis`, times a weight that does not vary along it.

    Not `centred`, the mean is taken to be 0, and the variance is the mean square.

    With ``d = x - mean`` and ``s = 1 / sqrt(variance + eps)`` the gradient of ``w d s`` for `x` is
    ``w s (g - mean(g) - d s**2 mean(g d))``. Its sums need no result of each other but the mean: one
    reading of `x` and `g` gives them and the variance, a second one the gradient.

    Attributes
    ----------
    mean, variance : Tensor
        The statistics of the last call, for those who follow them; `mean` is None when it is not taken.
    """

    precision = HIGH

    def __init__(self, axis: Axes, eps: float, centred: bool = True) -> None:
        self.axis, self.eps, self.centred = axis, eps, centred

    def forward(self, *inputs: Tensor) -> Tensor:
        self.x, *self.weight = inputs
        self.mean, deviation, self.variance = self._moments()
        scale = rsqrt(self.variance + self.eps)
        for weight in self.weight:
            scale = scale * _wide(weight)
        return _narrow(deviation * scale, *inputs)

    def backward(self, *output_grads: Tensor) -> list[Tensor]:
        g = _wide(output_grads[0])
        _mean, deviation, variance = self._moments()
        scale = rsqrt(variance + self.eps)
        slope = average(g * deviation, self.axis) / (variance + self.eps)
        inner = g - deviation * slope
        if self.centred:
            inner = inner - average(g, self.axis)
        grads = []
        for weight in self.weight:
            along = reduce_sum(g * deviation, axis=self.axis) * scale
            grads.append(_narrow(sum_to(along, weight.shape), weight))
            scale = scale * _wide(weight)
        return [_narrow(inner * scale, self.x), *grads]

    def _moments(self) -> tuple[Tensor | None, Tensor, Tensor]:
        """Return the mean, the deviation from it, and the biased variance.

        Of `x`, so `backward` has them too.
        """
        x = _wide(self.x)
        mean = average(x, self.axis) if self.centred else None
        deviation = x if mean is None else x - mean
        return mean, deviation, average(deviation * deviation, self.axis)


def _narrow(out: Tensor, *like: Tensor) -> Tensor:
    """Return `out` in the dtype that arithmetic on tensors `like` these gives."""
    dtype = dtypes.common([t.dtype for t in like])
    return out if out.dtype == dtype else cast(out, dtype=dtype)


def _given_back(out: Tensor, inp: Tensor) -> Tensor:
    """Return a batch norm of 16 bits; under `amp.autocast` it stays 16, though its parameters have 32."""
    return out if AUTOCAST.get() is None else _narrow(out, inp)


def _checked(
    name: str, affine: bool, weight: Tensor | None, bias: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Return the parameters to apply: both of them, or none unless `affine`."""
    if affine and (weight is None or bias is None):
        raise ValueError(f"{name}: affine=True needs a weight and a bias")
    return (weight, bias) if affine else (None, None)


def _along_channels(parameter: Tensor, like: Tensor) -> Tensor:
    """Return a parameter of one number for each channel, shaped to broadcast to `like` (N, C, ...)."""
    if like.ndim < 2 or parameter.size != like.shape[1]:
        raise ShapeError(
            f"normalisation of shape {like.shape} needs one parameter per channel (axis 1), got "
            f"{parameter.size}"
        )
    return reshape(parameter, shape=(1, parameter.size, *(1,) * (like.ndim - 2)))


def _by_channel(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return ``x * weight + bias``, with one number for each channel of `x` (N, C, ...)."""
    if weight is not None:
        x = x * _along_channels(weight, x)
    return x if bias is None else x + _along_channels(bias, x)


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
        Not training, and a running statistic is missing; or training on one value for each channel.
    ShapeError
        There is not one number for each channel.

    Examples
    --------
    >>> F.batch_norm(mgb.tensor([[1.0], [3.0]]), training=True, eps=0.0).tolist()
    [[-1.0], [1.0]]
    """
    x = _wide(inp)
    if not training:
        if running_mean is None or running_var is None:
            raise ValueError("batch_norm: running_mean and running_var are needed unless training=True")
        scale = rsqrt(_along_channels(running_var, inp) + eps)
        moved = (x - _along_channels(running_mean, inp)) * scale
        return _given_back(_by_channel(_narrow(moved, inp), weight, bias), inp)
    axis = tuple(i for i in range(inp.ndim) if i != 1)
    if prod(inp.shape[i] for i in axis) == 1:
        raise ValueError(
            f"batch_norm: training on {inp.shape} has one value for each channel, which has no variance: use "
            "a larger batch, eval(), or drop_last=True where a last batch is that small"
        )
    normalize = _Normalize(axis, eps)
    weights = () if weight is None else (_along_channels(weight, inp),)
    out = _given_back(_by_channel(normalize(inp, *weights), None, bias), inp)
    count = extent(x, axis=axis)
    new_mean = _followed(running_mean, normalize.mean, momentum)
    new_var = _followed(running_var, normalize.variance * (count / maximum(count - 1, 1)), momentum)
    if not inplace and (running_mean is not None or running_var is not None):
        return out, new_mean, new_var
    for old, new in ((running_mean, new_mean), (running_var, new_var)):
        if old is not None and new is not None:
            old._reset(new)
    return out


def sync_batch_norm(
    inp: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.9,
    eps: float = 1e-5,
    group: Group = WORLD,
) -> Tensor:
    """Return `batch_norm` over the batches of all ranks of a group, which have as many elements each.

    Two exchanges of a number for each channel give the statistics, and two more their gradients.

    Examples
    --------
    >>> x = mgb.tensor([1.0, 3.0]).reshape(2, 1, 1, 1)
    >>> y = F.sync_batch_norm(x, training=True, eps=0.0)
    >>> y.flatten()
    Tensor([-1.,  1.], device=xpux:0)
    """
    if not training or not is_distributed():
        out = batch_norm(
            inp, running_mean, running_var, weight, bias, training=training, momentum=momentum, eps=eps
        )
        assert isinstance(out, Tensor)
        return out
    x = _wide(inp)
    axis = tuple(i for i in range(inp.ndim) if i != 1)
    count = extent(x, axis=axis) * group.size
    mean = all_reduce_sum(reduce_sum(x, axis=axis), group) / count
    deviation = x - mean
    variance = all_reduce_sum(reduce_sum(deviation * deviation, axis=axis), group) / count
    normal = _narrow(deviation * rsqrt(variance + eps), inp)
    unbiased = variance * (count / maximum(count - 1, 1))
    for old, new in ((running_mean, mean), (running_var, unbiased)):
        followed = _followed(old, new, momentum)
        if old is not None and followed is not None:
            old._reset(followed)
    return _given_back(_by_channel(normal, weight, bias), inp)


def _followed(running: Tensor | None, batch: Tensor | None, momentum: float) -> Tensor | None:
    """Return the running statistic after one more batch."""
    if running is None or batch is None:
        return None
    if running.size != batch.size:
        raise ShapeError(f"batch_norm: {running.size} running statistics for {batch.size} channels")
    batch = reshape(cast(batch.detach(), dtype=running.dtype), shape=running.shape)
    out: Tensor = running.detach() * momentum + batch * (1 - momentum)
    return out


def _trailing(name: str, inp: Tensor, normalized_shape: int | Sequence[int]) -> Axes:
    """Return the last axes of `inp`, whose lengths are `normalized_shape`."""
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

    Examples
    --------
    >>> F.layer_norm(mgb.tensor([[1.0, 3.0]]), (2,), affine=False)
    Tensor([[-0.999995,  0.999995]], device=xpux:0)
    """
    axis = _trailing("layer_norm", inp, normalized_shape)
    weight, bias = _checked("layer_norm", affine, weight, bias)
    out: Tensor = _Normalize(axis, eps)(inp)
    if weight is not None:
        out = out * weight
    return out if bias is None else out + bias


def rms_norm(
    inp: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, eps: float = 1e-6
) -> Tensor:
    """Divide by the root of the mean square over the last axes (Zhang and Sennrich 2019).

    See `layer_norm`; it subtracts no mean, hence it has no bias.

    Examples
    --------
    >>> F.rms_norm(mgb.tensor([[3.0, 3.0]]), (2,), eps=0.0)
    Tensor([[1., 1.]], device=xpux:0)
    """
    axis = _trailing("rms_norm", inp, normalized_shape)
    out: Tensor = _Normalize(axis, eps, centred=False)(inp)
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

    Examples
    --------
    >>> F.instance_norm(F.ones((1, 3, 2, 2)), affine=False).shape
    (1, 3, 2, 2)
    """
    out = _Normalize(tuple(range(2, inp.ndim)), eps)(inp)
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

    Examples
    --------
    >>> F.group_norm(F.ones((1, 4, 2, 2)), 2, affine=False).shape
    (1, 4, 2, 2)
    """
    channels = inp.shape[1]
    if channels % num_groups:
        raise ShapeError(f"group_norm: {channels} channels do not divide into {num_groups} groups")
    groups = reshape(inp, shape=(inp.shape[0], num_groups, channels // num_groups, *inp.shape[2:]))
    out = reshape(_Normalize(tuple(range(2, groups.ndim)), eps)(groups), shape=inp.shape)
    return _by_channel(out, *_checked("group_norm", affine, weight, bias))
