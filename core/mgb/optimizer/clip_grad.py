"""Limits on gradients, between `backward` and `step`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import reduce

from .. import functional as F
from ..ops.elementwise import squared_magnitude
from ..tensor import Tensor
from .optimizer import assign

Tensors = Tensor | Iterable[Tensor]


def clip_grad_norm(tensors: Tensors, max_norm: float, ord: float = 2.0) -> Tensor:
    """Scale the gradients of `tensors`, in place, so that together they are not longer than `max_norm`.

    Parameters
    ----------
    tensors : Tensor or iterable of Tensor
        Those without a gradient are passed over.
    max_norm : float
        The longest that they may be.
    ord : float
        The gradients count as one vector, its length is the norm of this order; ``inf``: the largest element.

    Returns
    -------
    Tensor of shape ()
        The length before.

    Examples
    --------
    >>> w = mgb.Parameter([0.0, 0.0])
    >>> w.grad = mgb.tensor([3.0, 4.0])
    >>> clip_grad_norm([w], 1.0), w.grad
    (Tensor(5., device=xpux:0), Tensor([0.5999999 , 0.79999983], device=xpux:0))
    """
    grads = _grads(tensors)
    if not grads:
        return Tensor(0.0)
    if ord == math.inf:
        norm = reduce(F.maximum, (F.max(F.abs(g)) for g in grads))
    else:
        total = sum((F.sum(_power(g, ord)) for g in grads[1:]), F.sum(_power(grads[0], ord)))
        norm = F.sqrt(total) if ord == 2.0 else total ** (1.0 / ord)
    scale = F.minimum(max_norm / (norm + 1e-6), 1.0)
    for grad in grads:
        assign(grad, grad * scale)
    return norm


def clip_grad_value(tensors: Tensors, lower: float, upper: float) -> None:
    """Limit each element of the gradients of `tensors`, in place, to the range from `lower` to `upper`.

    Parameters
    ----------
    tensors : Tensor or iterable of Tensor
        Those without a gradient are passed over.
    lower : float
        No element is below it.
    upper : float
        No element is above it.

    Examples
    --------
    >>> w = mgb.Parameter([0.0, 0.0])
    >>> w.grad = mgb.tensor([3.0, -4.0])
    >>> clip_grad_value([w], -1, 1)
    >>> w.grad
    Tensor([ 1., -1.], device=xpux:0)
    """
    for grad in _grads(tensors):
        assign(grad, F.minimum(F.maximum(grad, lower), upper))


def _grads(tensors: Tensors) -> list[Tensor]:
    listed = [tensors] if isinstance(tensors, Tensor) else tensors
    return [tensor.grad for tensor in listed if tensor.grad is not None]


def _power(grad: Tensor, ord: float) -> Tensor:
    return squared_magnitude(grad) if ord == 2.0 else F.pow(F.abs(grad), ord)
