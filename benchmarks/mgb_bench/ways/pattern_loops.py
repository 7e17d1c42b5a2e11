"""The same for Numba as one would write them by hand: ``loop(*outputs, *inputs)``, over all cores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import prange

from .loops import ONE, ZERO

HALF, TWO, QUARTER = np.float32(0.5), np.float32(2), np.float32(0.25)
BYTE, MEAN, SPREAD = np.float32(255), np.float32(0.45), np.float32(0.22)
CENT, WINDOW, NEAR, TINY = np.float32(0.01), 16, np.float32(0.1), np.float32(1e-6)
FLAT, FIRST, SECOND = np.float32(1e-5), np.float32(0.02), np.float32(0.03)

#: Columns that one core goes through at a time.
BLOCK = 128


def planes(out: Any, pixels: Any) -> None:
    n, height, width, channels = pixels.shape
    for k in prange(n * channels):
        i, c = k // channels, k % channels
        for y in range(height):
            for x in range(width):
                out[i, c, y, x] = (np.float32(pixels[i, y, x, c]) / BYTE - MEAN) / SPREAD


def rotary(out: Any, x: Any, cos: Any, sin: Any) -> None:
    n, rows, length = x.shape
    for k in prange(n * rows):
        i, r = k // rows, k % rows
        for j in range(length // 2):
            a, b, c, s = x[i, r, 2 * j], x[i, r, 2 * j + 1], cos[r, j], sin[r, j]
            out[i, r, 2 * j] = a * c - b * s
            out[i, r, 2 * j + 1] = b * c + a * s


def complex_product(out: Any, x: Any, y: Any) -> None:
    for i in prange(x.shape[0]):
        a, b, c, d = x[i, 0], x[i, 1], y[i, 0], y[i, 1]
        out[i, 0] = a * c - b * d
        out[i, 1] = a * d + b * c


def plus_transpose(out: Any, x: Any, y: Any) -> None:
    n, m = x.shape
    for block in prange((n + 31) // 32):
        for start in range(0, m, 32):
            for i in range(block * 32, min(n, block * 32 + 32)):
                for j in range(start, min(m, start + 32)):
                    out[i, j] = x[i, j] + y[j, i]


def mirrored_mean(out: Any, x: Any) -> None:
    n, height, width = x.shape
    for k in prange(n * height):
        p, i = k // height, k % height
        above, below = abs(i - 1), i + 1 if i + 1 < height else height - 2
        for j in range(width):
            left, right = abs(j - 1), j + 1 if j + 1 < width else width - 2
            out[p, i, j] = QUARTER * (x[p, above, j] + x[p, below, j] + x[p, i, left] + x[p, i, right])


def shuffled(first: Any, second: Any, x: Any, y: Any) -> None:
    n, c, height, width = x.shape
    for k in prange(2 * n * c):
        i, to = k // (2 * c), k % (2 * c)
        for p in range(height):
            for q in range(width):
                value = x[i, to // 2, p, q] if to % 2 == 0 else max(y[i, to // 2, p, q], ZERO)
                if to < c:
                    first[i, to, p, q] = value * HALF
                else:
                    second[i, to - c, p, q] = value + ONE


def patches(out: Any, x: Any) -> None:
    n, channels = x.shape[:2]
    columns = x.shape[3] // 16
    for k in prange(n * out.shape[1]):
        i, patch = k // out.shape[1], k % out.shape[1]
        top, left = patch // columns * 16, patch % columns * 16
        for y in range(16):
            for j in range(16):
                for c in range(channels):
                    place = (y * 16 + j) * channels + c
                    out[i, patch, place] = x[i, c, top + y, left + j] * QUARTER - HALF


def paths(out: Any, steps: Any) -> None:
    for i in prange(steps.shape[0]):
        total = ZERO
        for j in range(steps.shape[1]):
            total += steps[i, j] * CENT
            out[i, j] = math.exp(total)


def box_filter(out: Any, x: Any) -> None:
    for i in prange(x.shape[0]):
        total = ZERO
        for j in range(1, WINDOW + 1):
            total += x[i, j]
        out[i, 0] = total / np.float32(WINDOW)
        for j in range(1, out.shape[1]):
            total += x[i, j + WINDOW] - x[i, j]
            out[i, j] = total / np.float32(WINDOW)


def drawdown(out: Any, x: Any) -> None:
    for i in prange(x.shape[0]):
        top = x[i, 0]
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
            out[i, j] = ONE - x[i, j] / top


def coloured(out: Any, table: Any, pixels: Any) -> None:
    for i in prange(pixels.shape[0]):
        out[i] = table[pixels[i]] * TWO + ONE


def embedding_bag(out: Any, table: Any, words: Any) -> None:
    for i in prange(words.shape[0]):
        for d in range(table.shape[1]):
            out[i, d] = ZERO
        for j in range(words.shape[1]):
            row = words[i, j]
            for d in range(table.shape[1]):
                out[i, d] += table[row, d]


def segment_means(out: Any, values: Any, ids: Any) -> None:
    count = out.shape[0]
    for part in prange(64):
        start = np.searchsorted(ids, part * count // 64)
        stop = np.searchsorted(ids, (part + 1) * count // 64)
        totals, numbers = np.zeros(count // 64 + 1, np.float32), np.zeros(count // 64 + 1, np.float32)
        first = part * count // 64
        for i in range(start, stop):
            totals[ids[i] - first] += values[i] * values[i]
            numbers[ids[i] - first] += ONE
        for k in range(first, (part + 1) * count // 64):
            out[k] = totals[k - first] / (numbers[k - first] + TINY)


def pair_forces(out: Any, points: Any, pairs: Any) -> None:
    for i in prange(pairs.shape[0]):
        a, b = pairs[i, 0], pairs[i, 1]
        x, y, z = points[a, 0] - points[b, 0], points[a, 1] - points[b, 1], points[a, 2] - points[b, 2]
        r = x * x + y * y + z * z + NEAR
        weight = ONE / (r * r * r)
        out[i, 0], out[i, 1], out[i, 2] = x * weight, y * weight, z * weight


def confident(place: Any, chance: Any, x: Any) -> None:
    for i in prange(x.shape[0]):
        top, at, total = x[i, 0], 0, ZERO
        for j in range(1, x.shape[1]):
            if x[i, j] > top:
                top, at = x[i, j], j
        for j in range(x.shape[1]):
            total += math.exp(x[i, j] - top)
        place[i], chance[i] = at, ONE / total


def column_logsumexp(out: Any, x: Any) -> None:
    rows, columns = x.shape
    for block in prange((columns + BLOCK - 1) // BLOCK):
        start, stop = block * BLOCK, min(columns, (block + 1) * BLOCK)
        top, total = np.full(BLOCK, -np.inf, np.float32), np.zeros(BLOCK, np.float32)
        for i in range(rows):
            for j in range(start, stop):
                top[j - start] = max(top[j - start], x[i, j])
        for i in range(rows):
            for j in range(start, stop):
                total[j - start] += math.exp(x[i, j] - top[j - start])
        for j in range(start, stop):
            out[j] = math.log(total[j - start]) + top[j - start]


def standardized(out: Any, x: Any) -> None:
    rows, columns = x.shape
    for block in prange((columns + BLOCK - 1) // BLOCK):
        start, stop = block * BLOCK, min(columns, (block + 1) * BLOCK)
        mean, square = np.zeros(BLOCK, np.float32), np.zeros(BLOCK, np.float32)
        for i in range(rows):
            for j in range(start, stop):
                mean[j - start] += x[i, j]
        mean /= np.float32(rows)
        for i in range(rows):
            for j in range(start, stop):
                d = x[i, j] - mean[j - start]
                square[j - start] += d * d
        scale = ONE / np.sqrt(square / np.float32(rows) + FLAT)
        for i in range(rows):
            for j in range(start, stop):
                out[i, j] = (x[i, j] - mean[j - start]) * scale[j - start]


def logistic_gradient(out: Any, x: Any, y: Any, weights: Any) -> None:
    rows, columns = x.shape
    parts = np.zeros((64, columns), np.float32)
    for part in prange(64):
        for i in range(part * rows // 64, (part + 1) * rows // 64):
            total = ZERO
            for j in range(columns):
                total += x[i, j] * weights[j]
            d = ONE / (ONE + math.exp(-total)) - y[i]
            for j in range(columns):
                parts[part, j] += x[i, j] * d
    out[:] = parts.sum(axis=0) / np.float32(rows)


def gemver(new: Any, z: Any, out: Any, a: Any, u: Any, v: Any, x: Any, y: Any) -> None:
    n, m = a.shape
    for block in prange((m + BLOCK - 1) // BLOCK):
        start, stop = block * BLOCK, min(m, (block + 1) * BLOCK)
        total = np.zeros(BLOCK, np.float32)
        for i in range(n):
            for j in range(start, stop):
                new[i, j] = a[i, j] + u[i] * v[j]
                total[j - start] += new[i, j] * y[i]
        for j in range(start, stop):
            z[j] = FIRST * total[j - start] + x[j]
    for i in prange(n):
        row = ZERO
        for j in range(m):
            row += new[i, j] * z[j]
        out[i] = SECOND * row


def small_products(out: Any, x: Any, y: Any) -> None:
    count, rows, inner = x.shape
    for n in prange(count):
        for i in range(rows):
            for j in range(y.shape[2]):
                out[n, i, j] = ONE
            for k in range(inner):
                for j in range(y.shape[2]):
                    out[n, i, j] += x[n, i, k] * y[n, k, j]


def great_circle(out: Any, a: Any, b: Any, c: Any, d: Any) -> None:
    for i in prange(out.shape[0]):
        s, t = math.sin((c[i] - a[i]) * HALF), math.sin((d[i] - b[i]) * HALF)
        out[i] = TWO * math.asin(math.sqrt(s * s + math.cos(a[i]) * math.cos(c[i]) * t * t))
