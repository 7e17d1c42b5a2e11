"""Resizing images: along each axis, a matrix from the old places to the new ones, made on the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from mgb import dtypes
from mgb.errors import FileFormatError
from mgb.ops.creation import full
from mgb.ops.images.contract import matmul
from mgb.ops.layout import reshape, transpose
from mgb.ops.primitives import cast, where
from mgb.storage.limits import meter
from mgb.tensor import Tensor
from mgb.tensor.apply import literal

from ..values import Host
from .elementwise import ints, like
from .layout import axis_of, taken
from .table import operator

#: Where the new place `i` lies on an old axis: ``(i, scale, old length, new length, roi) -> place``. The new
#: length that two of them ask for is ``scale * old``, which need not be whole.
_PLACES: dict[str, Callable[[Host, float, float, float, Sequence[float]], Host]] = {
    "half_pixel": lambda i, s, old, new, roi: (i + 0.5) / s - 0.5,
    "half_pixel_symmetric": lambda i, s, old, new, roi: old / 2 * (1 - new / (s * old)) + (i + 0.5) / s - 0.5,
    "pytorch_half_pixel": lambda i, s, old, new, roi: (i + 0.5) / s - 0.5 if s * old != 1 else i - 0.5,
    "align_corners": lambda i, s, old, new, roi: i * (old - 1) / (s * old - 1) if s * old != 1 else i * 0,
    "asymmetric": lambda i, s, old, new, roi: i / s,
    "tf_half_pixel_for_nn": lambda i, s, old, new, roi: (i + 0.5) / s,
    "tf_crop_and_resize": lambda i, s, old, new, roi: (
        (roi[0] + i * (roi[1] - roi[0]) / (s * old - 1)) * (old - 1)
        if s * old != 1
        else i + (roi[0] + roi[1]) / 2 * (old - 1)
    ),
}

_NEAREST: dict[str, Callable[[Host], Host]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _linear(distance: Host) -> Host:
    weight: Host = np.maximum(1 - np.abs(distance), 0)
    return weight


def _cubic(distance: Host, a: float) -> Host:
    """Evaluate Keys' kernel (1981)."""
    d = np.abs(distance)
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _matrix(
    places: Host,
    length: int,
    kernel: Callable[[Host], Host],
    support: int,
    scale: float,
    exclude_outside: int,
) -> Host:
    """Return rows of weights that make the values at `places` of those at 0 ... length - 1.

    With a `scale` below 1 the kernel is as much wider: that is the antialiasing.
    """
    reach = math.ceil(support / scale)
    meter().value([len(places), 2 * reach])
    meter().value([len(places), length])
    base = np.floor(places)[:, None] + np.arange(-reach + 1, reach + 1)
    weights = kernel((base - places[:, None]) * scale)
    if exclude_outside:
        weights = np.where((base >= 0) & (base < length), weights, 0)
    if exclude_outside or scale < 1:
        weights = weights / weights.sum(axis=1, keepdims=True)
    matrix = np.zeros((len(places), length))
    columns = np.clip(base, 0, length - 1).astype(np.int64)
    np.add.at(matrix, (np.arange(len(places))[:, None], columns), weights)
    return matrix


def _multiplied(x: Tensor, matrix: Host, axis: int) -> Tensor:
    """Return `x` with a matrix applied along `axis`."""
    order = (*(i for i in range(x.ndim) if i != axis), axis)
    rows = transpose(x, axes=order)
    weight = literal(matrix, x.dtype, x.device)
    flat = reshape(rows, shape=(rows.size // max(rows.shape[-1], 1), rows.shape[-1]))
    out = reshape(matmul(flat, weight, transpose_b=True), shape=(*rows.shape[:-1], len(matrix)))
    return transpose(out, axes=tuple(int(i) for i in np.argsort(order)))


@operator("Resize")
def resize(
    x: Tensor,
    roi: Host | None = None,
    scales: Host | None = None,
    sizes: Host | None = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    """Return one axis after another; lengths that stay are left alone."""
    given = list(range(x.ndim)) if axes is None else [axis_of("Resize", a, x.ndim) for a in axes]
    old = [x.shape[a] for a in given]
    factors, new = _lengths(old, scales, sizes, keep_aspect_ratio_policy)
    cropped = coordinate_transformation_mode == "tf_crop_and_resize"
    regions = (
        np.reshape(roi, (2, -1)).T.tolist() if cropped and roi is not None else [[0.0, 1.0]] * len(given)
    )
    style = _Style(mode, nearest_mode, cubic_coeff_a, bool(antialias), exclude_outside)
    out = x if x.dtype in dtypes.FLOATS or mode == "nearest" else cast(x, dtype=dtypes.float32)
    for axis, length, count, factor, region in zip(given, old, new, factors, regions):
        if factor == 1 and count == length and region == [0.0, 1.0]:
            continue
        meter().value([count])
        place_of = _PLACES[coordinate_transformation_mode]
        places = place_of(np.arange(count, dtype=np.float64), factor, length, count, region)
        out = style.along(out, axis, places, factor)
        if cropped:
            out = _outside(out, axis, (places < 0) | (places > length - 1), extrapolation_value)
    return like(out, x)


@dataclass(frozen=True, slots=True)
class _Style:
    """How values are made from their neighbours: the attributes of Resize of these names."""

    mode: str
    nearest_mode: str
    cubic_coeff_a: float
    antialias: bool
    exclude_outside: int

    def along(self, x: Tensor, axis: int, places: Host, factor: float) -> Tensor:
        """Return `x` read at `places` along `axis`."""
        length = x.shape[axis]
        if self.mode == "nearest":
            rows = np.clip(_NEAREST[self.nearest_mode](places), 0, length - 1)
            return taken(x, rows.astype(np.int64), axis)
        if self.mode not in ("linear", "cubic"):
            raise FileFormatError(f"Resize: the mode {self.mode!r} is not one of ONNX's")
        support = 2 if self.mode == "cubic" else 1
        scale = min(factor, 1.0) if self.antialias else 1.0
        return _multiplied(
            x, _matrix(places, length, self._kernel, support, scale, self.exclude_outside), axis
        )

    def _kernel(self, distance: Host) -> Host:
        return _cubic(distance, self.cubic_coeff_a) if self.mode == "cubic" else _linear(distance)


def _outside(x: Tensor, axis: int, mask: Host, value: float) -> Tensor:
    """Return `x` with `value` where the `mask` along `axis` says so."""
    shape = tuple(len(mask) if i == axis else 1 for i in range(x.ndim))
    return where(literal(mask.reshape(shape), dtypes.bool_, x.device), full((), value, x.dtype, x.device), x)


def _lengths(
    old: Sequence[int], scales: Host | None, sizes: Host | None, policy: str
) -> tuple[list[float], list[int]]:
    """Return for each axis the factor and the new length."""
    if scales is not None and np.size(scales):
        factors = [float(s) for s in np.ravel(scales)]
        return factors, [math.floor(d * s) for d, s in zip(old, factors)]
    if sizes is None:
        raise FileFormatError("Resize: neither scales nor sizes are given")
    wanted = ints(sizes)
    factors = [n / d for n, d in zip(wanted, old)]
    if policy == "stretch":
        return factors, list(wanted)
    factor = min(factors) if policy == "not_larger" else max(factors)
    return [factor] * len(old), [math.floor(d * factor + 0.5) for d in old]


@operator("Upsample")
def upsample(x: Tensor, scales: Host, *, mode: str = "nearest") -> Tensor:
    return resize(
        x, None, scales, coordinate_transformation_mode="asymmetric", nearest_mode="floor", mode=mode
    )
