"""The same in float64, as the formulas stand in books: what every contestant is compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import log_softmax as scipy_log_softmax
from scipy.special import softmax as scipy_softmax


def full_sum(x: Any) -> Any:
    return np.asarray(x.sum())


def row_sums(x: Any) -> Any:
    return x.sum(axis=1)


def column_sums(x: Any) -> Any:
    return x.sum(axis=0)


def softmax(x: Any) -> Any:
    return scipy_softmax(x, axis=1)


def log_softmax(x: Any) -> Any:
    return scipy_log_softmax(x, axis=1)


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    normal = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    return normal * weight + bias


def rms_norm(x: Any, weight: Any) -> Any:
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-6) * weight


def batch_norm(x: Any, weight: Any, bias: Any, dout: Any) -> Any:
    axes = (0, 2)
    scale = 1 / np.sqrt(x.var(axis=axes, keepdims=True) + 1e-5)
    normal = (x - x.mean(axis=axes, keepdims=True)) * scale
    dweight, dbias = (dout * normal).sum(axis=axes), dout.sum(axis=axes)
    dnormal = dout * weight[:, None]
    centred = dnormal - dnormal.mean(axis=axes, keepdims=True)
    dx = scale * (centred - normal * (dnormal * normal).mean(axis=axes, keepdims=True))
    return normal * weight[:, None] + bias[:, None], dx, dweight, dbias


def cross_entropy(x: Any, labels: Any) -> Any:
    logs = scipy_log_softmax(x, axis=1)
    rows = np.arange(len(x))
    gradient = np.exp(logs)
    gradient[rows, labels] -= 1
    return np.asarray(-logs[rows, labels].mean()), gradient / len(x)
