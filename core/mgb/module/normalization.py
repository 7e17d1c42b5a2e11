"""Normalisation layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import functional as F
from ..distributed import WORLD, Group
from ..errors import ShapeError
from ..ops.creation import as_shape
from ..tensor import Parameter, Tensor
from . import init
from .module import Module
from .sizes import size


class _Normalization(Module):
    """A scale and a shift, 1 and 0 at first; in a state dict they are 1-D."""

    flat_state = True
    weight: Parameter | None
    bias: Parameter | None

    def _make_affine(self, shape: Sequence[int], affine: bool, bias: bool = True) -> None:
        self.weight = Parameter(np.ones(shape)) if affine else None
        self.bias = Parameter(np.zeros(shape)) if affine and bias else None

    def reset_parameters(self) -> None:
        """Reset the parameters to their initial values."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


class _BatchNorm(_Normalization):
    """Base class of batch normalisations; `axes` is the number of axes that an input may have."""

    axes: tuple[int, ...]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        freeze: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        if freeze and not track_running_stats:
            raise ValueError("freeze=True uses the running statistics: it needs track_running_stats=True")
        self.num_features, self.eps, self.momentum = size("num_features", num_features), eps, momentum
        self.affine, self.track_running_stats, self.freeze = affine, track_running_stats, freeze
        shape = (1, num_features, 1, 1)
        self._make_affine(shape, affine)
        self.running_mean = Tensor(np.zeros(shape)) if track_running_stats else None
        self.running_var = Tensor(np.ones(shape)) if track_running_stats else None

    def reset_running_stats(self) -> None:
        """Forget what was seen: mean 0, variance 1."""
        if self.running_mean is not None and self.running_var is not None:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)

    def reset_parameters(self) -> None:
        """Reset the parameters to their initial values, statistics included."""
        super().reset_parameters()
        self.reset_running_stats()

    def forward(self, inp: Tensor) -> Tensor:
        """Normalise; in training the running statistics follow."""
        if inp.ndim not in self.axes:
            raise ShapeError(f"{type(self).__name__} takes {self._takes()} axes, got {inp.shape}")
        tracks = self.freeze or self.track_running_stats
        if tracks and self.running_mean is None:
            raise ValueError(
                f"{type(self).__name__} was made with track_running_stats=False: it has no running statistics"
            )
        affine = (t.detach() if self.freeze and t is not None else t for t in (self.weight, self.bias))
        out = self._normalized(
            inp,
            self.running_mean if tracks else None,
            self.running_var if tracks else None,
            *affine,
            training=not tracks or (self.training and not self.freeze),
            momentum=self.momentum,
            eps=self.eps,
        )
        assert isinstance(out, Tensor)
        return out

    def _normalized(self, *given: Tensor | None, **options: Any) -> Any:
        return F.batch_norm(*given, **options)  # type: ignore[arg-type]

    def _takes(self) -> str:
        return " or ".join(map(str, self.axes))

    def _describe(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


class BatchNorm2d(_BatchNorm):
    """Normalise each channel of ``(batch, channels, height, width)`` over the batch (Ioffe and Szegedy 2015).

    Parameters
    ----------
    num_features : int
        The channels.
    eps : float
        Added to the variance.
    momentum : float
        The share of the running statistics that stays: ``momentum * running + (1 - momentum) * batch``.
    affine : bool
        Learn a scale and a shift for each channel.
    track_running_stats : bool
        Keep running statistics and use them in eval mode; without them the batch's own are used always. Where
        this is False later, they stay as they are and are not used.
    freeze : bool
        Use the running statistics in training too, and change neither them nor weight and bias, which no
        gradient reaches; needs `track_running_stats`.
    name : str, optional

    Attributes
    ----------
    weight, bias : Parameter of shape (1, num_features, 1, 1), or None
    running_mean, running_var : Tensor of shape (1, num_features, 1, 1), or None
        The variance is the unbiased one; the batch itself is normalised by the biased one.

    Examples
    --------
    >>> M.BatchNorm2d(3)(F.ones((2, 3, 4, 4))).shape
    (2, 3, 4, 4)
    """

    axes = (4,)


class BatchNorm1d(_BatchNorm):
    """`BatchNorm2d` for ``(batch, channels)`` or ``(batch, channels, length)``.

    Examples
    --------
    >>> M.BatchNorm1d(3)(F.ones((2, 3))).shape
    (2, 3)
    """

    axes = (2, 3)


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation over the batches of all ranks of a `group`, of 2 to 4 axes.

    Each rank's batch has as many samples. Without a job it is one over its own batch; the other parameters
    are those of `BatchNorm2d`.

    Examples
    --------
    >>> M.SyncBatchNorm(3)(F.ones((2, 3, 4, 4))).shape
    (2, 3, 4, 4)
    """

    axes = (2, 3, 4)

    def __init__(self, *given: Any, group: Group = WORLD, **options: Any) -> None:
        super().__init__(*given, **options)
        self.group = group

    def _normalized(self, *given: Tensor | None, **options: Any) -> Any:
        options["group"] = self.group
        return F.sync_batch_norm(*given, **options)  # type: ignore[arg-type]


class LayerNorm(_Normalization):
    """Normalise over the last axes of each sample (Ba, Kiros and Hinton 2016).

    Parameters
    ----------
    normalized_shape : int or sequence of int
        The last axes of the input.
    eps : float
        Added to the variance.
    affine : bool
        Learn a scale and a shift for each element.
    name : str, optional

    Attributes
    ----------
    weight, bias : Parameter of shape normalized_shape, or None

    Examples
    --------
    >>> M.LayerNorm(3)(F.ones((2, 3))).shape
    (2, 3)
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        affine: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        self.normalized_shape = as_shape(normalized_shape, f"{type(self).__name__}: normalized_shape")
        self.eps, self.affine = eps, affine
        self._make_affine(self.normalized_shape, affine)

    def forward(self, inp: Tensor) -> Tensor:
        """Normalise; the shape stays."""
        return F.layer_norm(inp, self.normalized_shape, self.affine, self.weight, self.bias, self.eps)

    def _describe(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, affine={self.affine}"


class RMSNorm(_Normalization):
    """Divide by the root mean square over the last axes (Zhang and Sennrich 2019).

    Parameters
    ----------
    normalized_shape : int or sequence of int
        The last axes of the input.
    eps : float
        Added to the mean square.
    affine : bool
        Learn a scale for each element.
    name : str, optional

    Attributes
    ----------
    weight : Parameter of shape normalized_shape, or None

    Examples
    --------
    >>> M.RMSNorm(3)(F.ones((2, 3))).shape
    (2, 3)
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-6,
        affine: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        self.normalized_shape = as_shape(normalized_shape, f"{type(self).__name__}: normalized_shape")
        self.eps, self.affine = eps, affine
        self._make_affine(self.normalized_shape, affine, bias=False)

    def forward(self, inp: Tensor) -> Tensor:
        """Normalise; the shape stays."""
        return F.rms_norm(inp, self.normalized_shape, self.weight, self.eps)

    def _describe(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, affine={self.affine}"


class GroupNorm(_Normalization):
    """Normalise over groups of channels of each sample (Wu and He 2018).

    Parameters
    ----------
    num_groups, num_channels : int
    eps : float
        Added to the variance.
    affine : bool
        Learn a scale and a shift for each channel.
    name : str, optional

    Attributes
    ----------
    weight, bias : Parameter of shape (num_channels,), or None

    Raises
    ------
    ShapeError
        The channels do not split into this many groups.

    Examples
    --------
    >>> M.GroupNorm(2, 4)(F.ones((1, 4, 2, 2))).shape
    (1, 4, 2, 2)
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        num_groups, num_channels = size("num_groups", num_groups), size("num_channels", num_channels)
        if not num_groups or num_channels % num_groups:
            raise ShapeError(f"num_channels = {num_channels} must be a multiple of num_groups = {num_groups}")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self._make_affine((num_channels,), affine)

    def forward(self, inp: Tensor) -> Tensor:
        """Normalise ``(batch, channels, ...)``; the shape stays."""
        return F.group_norm(inp, self.num_groups, self.affine, self.weight, self.bias, self.eps)

    def _describe(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class InstanceNorm(_Normalization):
    """Normalise each channel of each image on its own (Ulyanov, Vedaldi and Lempitsky 2016).

    Parameters
    ----------
    num_channels : int
    eps : float
        Added to the variance.
    affine : bool
        Learn a scale and a shift for each channel.
    name : str, optional

    Attributes
    ----------
    weight, bias : Parameter of shape (num_channels,), or None

    Examples
    --------
    >>> M.InstanceNorm(3)(F.ones((1, 3, 2, 2))).shape
    (1, 3, 2, 2)
    """

    def __init__(
        self, num_channels: int, eps: float = 1e-5, affine: bool = True, name: str | None = None
    ) -> None:
        super().__init__(name)
        self.num_channels, self.eps, self.affine = size("num_channels", num_channels), eps, affine
        self._make_affine((self.num_channels,), affine)

    def forward(self, inp: Tensor) -> Tensor:
        """Normalise ``(batch, channels, ...)``; the shape stays."""
        if inp.ndim < 3 or inp.shape[1] != self.num_channels:
            raise ShapeError(f"InstanceNorm({self.num_channels}): {inp.shape} is not (batch, channels, ...)")
        return F.instance_norm(inp, self.affine, self.weight, self.bias, self.eps)

    def _describe(self) -> str:
        return f"{self.num_channels}, eps={self.eps}, affine={self.affine}"
