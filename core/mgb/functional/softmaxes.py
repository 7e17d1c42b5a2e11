"""Softmax and its logarithm, without overflow: the maximum is subtracted first, and gets no gradient.

The gradients are closed forms: that of softmax reads its result, that of logsumexp its operand and its
maximum. So a training step stores no exponentials for them, and where both ways are one kernel, it takes each
exponential once. 16-bit floats are computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..autodiff import Function
from ..ops.bodies.floats import widen_halves
from ..ops.bodies.transcendental import exp, log
from ..ops.declare import normalize_axis
from ..ops.elementwise import isfinite
from ..ops.layout import reshape
from ..ops.primitives import where
from ..ops.reduce import Axes, reduce_max, reduce_sum
from ..runtime.precision import HIGH
from ..tensor import Tensor
from ..tensor.apply import autocasted

__all__ = ["log_softmax", "logsoftmax", "logsumexp", "softmax"]


def _axes(name: str, axis: int | Sequence[int] | None, ndim: int) -> Axes:
    """Return `axis`; None is axis 0 of tensors with 0, 1 or 3 axes, and axis 1 of others."""
    if axis is None:
        axis = 0 if ndim in (0, 1, 3) else 1
    return normalize_axis(name, axis if ndim else (), ndim)


def softmax(inp: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """Return ``exp(x) / sum(exp(x))`` over `axis`, without overflow.

    None is axis 0 of tensors with 0, 1 or 3 axes, and axis 1 of others.

    Examples
    --------
    >>> F.softmax(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([0.04201007, 0.11419519, 0.8437947 ], device=xpux:0)
    """
    out: Tensor = _Softmax(_axes("softmax", axis, inp.ndim))(inp)
    return out


class _Softmax(Function):
    precision = HIGH

    def __init__(self, axes: Axes) -> None:
        self.axes = axes

    def forward(self, *inputs: Tensor) -> Tensor:
        self.y = _shares(*inputs, axis=self.axes)
        return self.y

    def backward(self, *output_grads: Tensor) -> Tensor:
        return _gradient_of_shares(self.y, *output_grads, axis=self.axes)


@widen_halves
def _shares(x: Tensor, *, axis: Axes) -> Tensor:
    weights = exp(x - reduce_max(x, axis=axis))
    out: Tensor = weights * (1 / reduce_sum(weights, axis=axis))  # one division a row
    return out


@widen_halves
def _gradient_of_shares(y: Tensor, dy: Tensor, *, axis: Axes) -> Tensor:
    out: Tensor = y * (dy - reduce_sum(dy * y, axis=axis))
    return out


def logsumexp(inp: Tensor, axis: int | Sequence[int] | None, keepdims: bool = False) -> Tensor:
    """Return ``log(sum(exp(x)))`` over `axis`, without overflow; None is every axis.

    Examples
    --------
    >>> F.logsumexp(mgb.tensor([[1.0, 2.0], [4.0, 3.0]]), axis=1)
    Tensor([2.3132617, 4.3132615], device=xpux:0)
    """
    axes = normalize_axis("logsumexp", axis, inp.ndim)
    out: Tensor = _LogSumExp(axes)(inp)
    return out if keepdims else reshape(out, shape=tuple(d for i, d in enumerate(inp.shape) if i not in axes))


class _LogSumExp(Function):
    precision = HIGH

    def __init__(self, axes: Axes) -> None:
        self.axes = axes

    def forward(self, *inputs: Tensor) -> Tensor:
        (self.x,) = inputs
        top = reduce_max(self.x, axis=self.axes)
        self.top = where(isfinite(top), top, 0)
        return _log_of_total(self.x, self.top, axis=self.axes)

    def backward(self, *output_grads: Tensor) -> Tensor:
        return _gradient_of_log(self.x, self.top, *output_grads, axis=self.axes)


def _weights(x: Tensor, top: Tensor, axis: Axes) -> tuple[Tensor, Tensor]:
    """Return exponentials in proportion to the softmax, and their sum; any constant `top` gives the same."""
    weights = exp(x - top)
    return weights, reduce_sum(weights, axis=axis)


@widen_halves
def _log_of_total(x: Tensor, top: Tensor, *, axis: Axes) -> Tensor:
    _each, total = _weights(x, top, axis)
    return log(total) + top


@widen_halves
def _gradient_of_log(x: Tensor, top: Tensor, dy: Tensor, *, axis: Axes) -> Tensor:
    weights, total = _weights(x, top, axis)
    out: Tensor = weights * (dy / total)
    return out


def logsoftmax(inp: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """Return ``log(softmax(x))`` over `axis`, accurate where the softmax is near 0; see `softmax`.

    Examples
    --------
    >>> F.log_softmax(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([-3.169846  , -2.169846  , -0.16984606], device=xpux:0)
    """
    (inp,) = autocasted(HIGH, (inp,))
    return _log_of_shares(inp, axis=_axes("logsoftmax", axis, inp.ndim))


@widen_halves
def _log_of_shares(x: Tensor, *, axis: Axes) -> Tensor:
    out: Tensor = x - logsumexp(x, axis, keepdims=True)
    return out


log_softmax = logsoftmax
