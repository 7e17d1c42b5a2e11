"""PyTorch, with its own functions where it has them; gradients through autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ..arrays import Arrays


def full_sum(x: Any) -> Any:
    return x.sum()


def row_sums(x: Any) -> Any:
    return x.sum(dim=1)


def column_sums(x: Any) -> Any:
    return x.sum(dim=0)


def softmax(x: Any) -> Any:
    return torch.softmax(x, dim=1)


def log_softmax(x: Any) -> Any:
    return torch.log_softmax(x, dim=1)


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    return F.layer_norm(x, (x.shape[1],), weight, bias)


def rms_norm(x: Any, weight: Any) -> Any:
    return F.rms_norm(x, (x.shape[1],), weight, 1e-6)


def batch_norm(peer: Any, arrays: Arrays) -> Callable[[], Any]:
    """Return the call that goes forward and backward; `x` of shape (N, C, H * W)."""
    *values, dout = map(peer.put, arrays)
    leaves = [value.requires_grad_() for value in values]
    forward = peer.jit(lambda x, weight, bias: F.batch_norm(x, None, None, weight, bias, training=True))

    def call() -> Any:
        out = forward(*leaves)
        return out, *torch.autograd.grad(out, leaves, dout)

    return call


def cross_entropy(peer: Any, arrays: Arrays) -> Callable[[], Any]:
    """Return the call that goes forward and backward."""
    x, labels = map(peer.put, arrays)
    x, labels = x.requires_grad_(), labels.long()
    forward = peer.jit(F.cross_entropy)

    def call() -> Any:
        loss = forward(x, labels)
        return loss, *torch.autograd.grad(loss, [x])

    return call
