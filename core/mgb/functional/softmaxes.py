"""Softmax and its logarithm, without overflow: the maximum is subtracted first, and gets no gradient."""

from __future__ import annotations

from collections.abc import Sequence

from ..ops.declare import normalize_axis
from ..ops.elementwise import isfinite
from ..ops.layout import reshape
from ..ops.primitives import where
from ..ops.reduce import Axes, reduce_max, reduce_sum
from ..ops.transcendental import exp, log
from ..tensor import Tensor

__all__ = ["log_softmax", "logsoftmax", "logsumexp", "softmax"]


def _axes(name: str, axis: int | Sequence[int] | None, ndim: int) -> Axes:
    """`axis`; None is axis 0 of tensors with 0, 1 or 3 axes, and axis 1 of others."""
    if axis is None:
        axis = 0 if ndim in (0, 1, 3) else 1
    return normalize_axis(name, axis if ndim else (), ndim)


def softmax(inp: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """``exp(x) / sum(exp(x))`` over `axis`, without overflow.

    None is axis 0 of tensors with 0, 1 or 3 axes, and axis 1 of others.
    """
    axes = _axes("softmax", axis, inp.ndim)
    weights = exp(inp - reduce_max(inp.detach(), axis=axes))
    out: Tensor = weights / reduce_sum(weights, axis=axes)
    return out


def logsumexp(inp: Tensor, axis: int | Sequence[int] | None, keepdims: bool = False) -> Tensor:
    """``log(sum(exp(x)))`` over `axis`, without overflow; None is every axis."""
    axes = normalize_axis("logsumexp", axis, inp.ndim)
    top = reduce_max(inp.detach(), axis=axes)
    top = where(isfinite(top), top, 0)
    out: Tensor = log(reduce_sum(exp(inp - top), axis=axes)) + top
    return out if keepdims else reshape(out, shape=tuple(d for i, d in enumerate(inp.shape) if i not in axes))


def logsoftmax(inp: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """``log(softmax(x))`` over `axis`, accurate where the softmax is near 0; see `softmax`."""
    out: Tensor = inp - logsumexp(inp, _axes("logsoftmax", axis, inp.ndim), keepdims=True)
    return out


log_softmax = logsoftmax
