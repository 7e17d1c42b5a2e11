"""mgb, as a user writes it."""

from __future__ import annotations

from typing import Any

import mgb.functional as F
from mgb.autodiff import GradManager


def full_sum(x: Any) -> Any:
    return x.sum()


def row_sums(x: Any) -> Any:
    return x.sum(axis=1)


def column_sums(x: Any) -> Any:
    return x.sum(axis=0)


def softmax(x: Any) -> Any:
    return F.softmax(x, axis=1)


def log_softmax(x: Any) -> Any:
    return F.logsoftmax(x, axis=1)


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    return F.layer_norm(x, x.shape[1], weight=weight, bias=bias)


def rms_norm(x: Any, weight: Any) -> Any:
    return F.rms_norm(x, x.shape[1], weight=weight)


def batch_norm(x: Any, weight: Any, bias: Any, dout: Any) -> Any:
    with GradManager().attach([x, weight, bias]) as manager:
        out: Any = F.batch_norm(x, weight=weight, bias=bias, training=True)
        manager.backward(out, dout)
    return out, *map(_taken, (x, weight, bias))


def cross_entropy(x: Any, labels: Any) -> Any:
    with GradManager().attach([x]) as manager:
        loss = F.loss.cross_entropy(x, labels)
        manager.backward(loss)
    return loss, _taken(x)


def _taken(tensor: Any) -> Any:
    """Return the gradient, which the next call is not to be added to."""
    gradient, tensor.grad = tensor.grad, None
    return gradient
