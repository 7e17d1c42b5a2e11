"""Loops for Numba as one would write them by hand: ``loop(*outputs, *inputs)``, over all cores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import prange

ZERO, ONE = np.float32(0), np.float32(1)
LAYER_EPSILON, RMS_EPSILON, BATCH_EPSILON = np.float32(1e-5), np.float32(1e-6), np.float32(1e-5)

#: Columns that one core adds up at a time: their sums stay in its first cache.
BLOCK = 1024


def full_sum(out: Any, x: Any) -> None:
    total = 0.0
    for i in prange(x.shape[0]):
        row = ZERO
        for j in range(x.shape[1]):
            row += x[i, j]
        total += row
    out[()] = total


def row_sums(out: Any, x: Any) -> None:
    for i in prange(x.shape[0]):
        row = ZERO
        for j in range(x.shape[1]):
            row += x[i, j]
        out[i] = row


def column_sums(out: Any, x: Any) -> None:
    columns = x.shape[1]
    for block in prange((columns + BLOCK - 1) // BLOCK):
        start, stop = block * BLOCK, min(columns, (block + 1) * BLOCK)
        for j in range(start, stop):
            out[j] = ZERO
        for i in range(x.shape[0]):
            for j in range(start, stop):
                out[j] += x[i, j]


def softmax(out: Any, x: Any) -> None:
    for i in prange(x.shape[0]):
        top, total = x[i, 0], ZERO
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        for j in range(x.shape[1]):
            out[i, j] = math.exp(x[i, j] - top)
            total += out[i, j]
        scale = ONE / total
        for j in range(x.shape[1]):
            out[i, j] *= scale


def log_softmax(out: Any, x: Any) -> None:
    for i in prange(x.shape[0]):
        top, total = x[i, 0], ZERO
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        for j in range(x.shape[1]):
            total += math.exp(x[i, j] - top)
        shift = top + math.log(total)
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] - shift


def layer_norm(out: Any, x: Any, weight: Any, bias: Any) -> None:
    count = np.float32(x.shape[1])
    for i in prange(x.shape[0]):
        total, square = ZERO, ZERO
        for j in range(x.shape[1]):
            total += x[i, j]
        mean = total / count
        for j in range(x.shape[1]):
            square += (x[i, j] - mean) * (x[i, j] - mean)
        scale = ONE / math.sqrt(square / count + LAYER_EPSILON)
        for j in range(x.shape[1]):
            out[i, j] = (x[i, j] - mean) * scale * weight[j] + bias[j]


def rms_norm(out: Any, x: Any, weight: Any) -> None:
    count = np.float32(x.shape[1])
    for i in prange(x.shape[0]):
        square = ZERO
        for j in range(x.shape[1]):
            square += x[i, j] * x[i, j]
        scale = ONE / math.sqrt(square / count + RMS_EPSILON)
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] * scale * weight[j]


def batch_norm(
    out: Any, dx: Any, dweight: Any, dbias: Any, x: Any, weight: Any, bias: Any, dout: Any
) -> None:
    """Forward and backward; `x` of shape (N, C, H * W)."""
    images, channels, pixels = x.shape
    count = np.float32(images * pixels)
    for c in prange(channels):
        total, square = ZERO, ZERO
        for n in range(images):
            part = ZERO  # sums of sums: millions of small numbers would get lost in one large one
            for p in range(pixels):
                part += x[n, c, p]
            total += part
        mean = total / count
        for n in range(images):
            part = ZERO
            for p in range(pixels):
                part += (x[n, c, p] - mean) * (x[n, c, p] - mean)
            square += part
        scale = ONE / math.sqrt(square / count + BATCH_EPSILON)
        along, across = ZERO, ZERO
        for n in range(images):
            part, other = ZERO, ZERO
            for p in range(pixels):
                normal = (x[n, c, p] - mean) * scale
                out[n, c, p] = normal * weight[c] + bias[c]
                part += dout[n, c, p] * normal
                other += dout[n, c, p]
            along, across = along + part, across + other
        dweight[c], dbias[c] = along, across
        for n in range(images):
            for p in range(pixels):
                normal = (x[n, c, p] - mean) * scale
                dx[n, c, p] = weight[c] * scale * (dout[n, c, p] - (across + normal * along) / count)


def cross_entropy(loss: Any, dx: Any, x: Any, labels: Any) -> None:
    """Forward and backward."""
    rows, total_loss = np.float32(x.shape[0]), 0.0
    for i in prange(x.shape[0]):
        top, total = x[i, 0], ZERO
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        for j in range(x.shape[1]):
            dx[i, j] = math.exp(x[i, j] - top)
            total += dx[i, j]
        scale = ONE / (total * rows)
        for j in range(x.shape[1]):
            dx[i, j] *= scale
        dx[i, labels[i]] -= ONE / rows
        total_loss += math.log(total) - (x[i, labels[i]] - top)
    loss[()] = total_loss / rows
