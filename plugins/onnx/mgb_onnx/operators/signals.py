"""Fourier transforms, as products with matrices of sines and cosines."""

from __future__ import annotations

import numpy as np
from mgb.errors import ShapeError
from mgb.functional import tensor as shapes
from mgb.functional.rearrange import pad
from mgb.ops.images.contract import matmul
from mgb.ops.index import index_get
from mgb.ops.layout import reshape
from mgb.storage.limits import meter
from mgb.tensor import Tensor
from mgb.tensor.apply import literal

from ..values import Host, dtype_of
from .elementwise import number
from .layout import axis_of
from .table import operator


def _waves(rows: int, columns: int, count: int, sign: float) -> tuple[Host, Host]:
    """Return the real and the imaginary part of ``exp(sign 2 pi i k n / count)``, (rows, columns)."""
    meter().value([rows, columns])
    turns = np.outer(np.arange(rows), np.arange(columns)) % count
    wave = np.exp(sign * 2j * np.pi * turns / count)
    return wave.real, wave.imag


def _transformed(x: Tensor, bins: int, inverse: bool) -> Tensor:
    """Transform along the axis before the last, which holds real or real and imaginary parts."""
    count = x.shape[-2]
    cosine, sine = (
        literal(m, x.dtype, x.device) for m in _waves(count, bins, count, 1.0 if inverse else -1.0)
    )
    real = x[..., 0]
    rows = reshape(real, shape=(real.size // count, count))
    parts = [matmul(rows, cosine), matmul(rows, sine)]
    if x.shape[-1] == 2:
        other = reshape(x[..., 1], shape=rows.shape)
        parts = [parts[0] - matmul(other, sine), parts[1] + matmul(other, cosine)]
    if inverse:
        parts = [p / count for p in parts]
    return reshape(shapes.stack(parts, -1), shape=(*x.shape[:-2], bins, 2))


def _sized(x: Tensor, axis: int, length: int) -> Tensor:
    """Return `x` cut or filled with zeros along `axis`."""
    if length <= x.shape[axis]:
        return x[(*(slice(None) for _ in range(axis)), slice(0, length))]
    return pad(x, [(0, length - d if i == axis else 0) for i, d in enumerate(x.shape)])


@operator("DFT")
def dft(
    x: Tensor,
    length: Host | None = None,
    axis: Host | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    """Transform; until opset 19 the axis is an attribute, default 1, since then an input, default -2."""
    place = axis_of("DFT", int(number(-2 if axis is None else axis)), x.ndim)
    if place == x.ndim - 1:
        raise ShapeError("DFT: the last axis holds real and imaginary parts")
    half = bool(inverse and onesided)
    count = (
        int(number(length))
        if length is not None
        else x.shape[place]
        if not half
        else 2 * (x.shape[place] - 1)
    )
    if half:
        return _real_inverse(x, place, count)
    moved = shapes.swapaxes(_sized(x, place, count), place, x.ndim - 2)
    out = _transformed(moved, count // 2 + 1 if onesided else count, bool(inverse))
    return shapes.swapaxes(out, place, x.ndim - 2)


def _real_inverse(x: Tensor, place: int, count: int) -> Tensor:
    """Transform half of a spectrum, whose other half is its conjugate, to real numbers."""
    moved = shapes.swapaxes(_sized(x, place, count // 2 + 1), place, x.ndim - 2)
    bins = moved.shape[-2]
    cosine, sine = _waves(bins, count, count, 1.0)
    twice = np.full((bins, 1), 2.0)
    twice[0] = 1
    if count % 2 == 0:
        twice[-1] = 1
    cosine, sine = cosine * twice / count, sine * twice / count
    shape = (moved.size // (bins * 2), bins)
    real, imaginary = (reshape(moved[..., i], shape=shape) for i in (0, 1))
    out = matmul(real, literal(cosine, x.dtype, x.device)) - matmul(
        imaginary, literal(sine, x.dtype, x.device)
    )
    return shapes.swapaxes(reshape(out, shape=(*moved.shape[:-2], count, 1)), place, x.ndim - 2)


@operator("STFT")
def stft(
    signal: Tensor, step: Host, window: Tensor | None = None, length: Host | None = None, *, onesided: int = 1
) -> Tensor:
    """Return the transforms of windows that begin every `step` elements."""
    if signal.ndim == 2:
        signal = reshape(signal, shape=(*signal.shape, 1))
    if window is None and length is None:
        raise ShapeError("STFT: neither a window nor a frame length is given")
    size = int(number(length)) if length is not None else window.shape[0]  # type: ignore[union-attr]
    hop = int(number(step))
    meter().value([signal.shape[1] // max(hop, 1), size])
    starts = np.arange(0, signal.shape[1] - size + 1, hop)
    rows = literal(starts[:, None] + np.arange(size), np.int64, signal.device)
    frames = index_get(signal, rows, axes=(1,), place=1)
    if window is not None:
        frames = frames * reshape(window, shape=(size, 1))
    return _transformed(frames, size // 2 + 1 if onesided else size, False)


@operator("MelWeightMatrix")
def mel_weight_matrix(
    bins: Host, length: Host, rate: Host, lower: Host, upper: Host, *, output_datatype: int = 1
) -> Host:
    """Return triangles at positions that are evenly spaced to the ear."""
    count, low, high = int(number(bins)), float(number(lower)), float(number(upper))
    spectrum = int(number(length)) // 2 + 1
    meter().check("nodes", count)
    meter().value([spectrum, count])
    first, last = (2595 * np.log10(1 + f / 700) for f in (low, high))
    mels = first + np.arange(count + 2) * (last - first) / (count + 2)
    hertz = 700 * (10 ** (mels / 2595) - 1)
    at = ((int(number(length)) + 1) * hertz // int(number(rate))).astype(np.int64)
    out = np.zeros((spectrum, count))
    for i in range(count):
        left, middle, right = at[i : i + 3]
        if left == middle:
            out[middle, i] = 1
        else:
            out[left : middle + 1, i] = (np.arange(left, middle + 1) - left) / (middle - left)
        if right > middle:
            out[middle:right, i] = (right - np.arange(middle, right)) / (right - middle)
    return out.astype(dtype_of(output_datatype, "MelWeightMatrix"))
