"""Sampling images at places that are data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
from mgb import dtypes
from mgb.errors import FileFormatError, ShapeError, UnsupportedError
from mgb.functional import tensor as shapes
from mgb.ops import elementwise as words
from mgb.ops.creation import along, full
from mgb.ops.images.contract import matmul
from mgb.ops.index import index_add, index_get
from mgb.ops.layout import reshape, transpose
from mgb.ops.methods import average
from mgb.ops.primitives import add, cast, floor, le, logical_and, lt, maximum, minimum, mul, round, where
from mgb.ops.reduce import reduce_max
from mgb.storage.limits import meter
from mgb.tensor import Tensor
from mgb.tensor.apply import literal

from ..values import Host
from .contractions import borders, framed, with_bias
from .elementwise import ints, like
from .table import operator


def _pixels(x: Tensor, places: Sequence[Tensor], padding: str) -> Tensor:
    """Gather pixels of images (N, C, ...) at whole `places`, one Tensor (N, ...) per axis: (N, C, ...)."""
    inside: Tensor | None = None
    indices = []
    for place, length in zip(places, x.shape[2:]):
        if padding == "zeros":
            here = logical_and(le(0, place), lt(place, length))
            inside = here if inside is None else logical_and(inside, here)
        indices.append(cast(minimum(maximum(place, 0), length - 1), dtype=dtypes.int32))
    batch = along(places[0].shape, (0,), dtypes.int32, x.device)
    axes = (0, *range(2, x.ndim))
    found = index_get(x, batch, *indices, axes=axes, place=0)  # (N, ..., C)
    found = transpose(found, axes=(0, found.ndim - 1, *range(1, found.ndim - 1)))
    return found if inside is None else where(shapes.expand_dims(inside, 1), found, 0)


def _reflected(x: Tensor, low: float, high: float) -> Tensor:
    """Return `x` mirrored at `low` and `high` until it lies between them."""
    span = high - low
    if span == 0:
        return x * 0 + low
    offset = words.abs(x - low)
    turns = floor(offset / span)
    rest = offset - turns * span
    odd = turns - 2 * floor(turns / 2)
    return where(lt(0, odd), high - rest, low + rest)


def _linear_weights(t: Tensor) -> list[Tensor]:
    return [1 - t, t]


def _cubic_weights(t: Tensor, a: float = -0.75) -> list[Tensor]:
    """Return Keys' kernel (1981) at the four pixels around a position `t` after the second."""

    def near(d: Tensor) -> Tensor:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Tensor) -> Tensor:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


#: For each mode the weights of the pixels around a place, and where the first of them stands.
_KERNELS: dict[str, tuple[Callable[[Tensor], list[Tensor]], int]] = {
    "linear": (_linear_weights, 0),
    "bilinear": (_linear_weights, 0),
    "cubic": (_cubic_weights, -1),
    "bicubic": (_cubic_weights, -1),
}


@operator("GridSample")
def grid_sample(
    x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Tensor:
    """Read images at the points of `grid`, whose coordinates are -1 ... 1, the last axis first."""
    size = x.shape[2:]
    edges = [(0.0, d - 1.0) if align_corners else (-0.5, d - 0.5) for d in size]
    points = [
        (grid[..., len(size) - 1 - i] + 1) / 2 * (high - low) + low for i, (low, high) in enumerate(edges)
    ]

    def folded(places: list[Tensor]) -> list[Tensor]:
        return [_reflected(p, *e) for p, e in zip(places, edges)] if padding_mode == "reflection" else places

    if mode == "nearest":
        return _pixels(x, [round(p) for p in folded(points)], padding_mode)
    if mode not in _KERNELS:
        raise FileFormatError(f"GridSample: the mode {mode!r} is not one of ONNX's")
    weights_of, first = _KERNELS[mode]
    bases = [floor(p) for p in points]
    weights = [weights_of(p - b) for p, b in zip(points, bases)]
    parts = []
    for choice in itertools.product(range(len(weights[0])), repeat=len(size)):
        places = folded([b + (first + c) for b, c in zip(bases, choice)])
        weight = reduce(mul, [w[c] for w, c in zip(weights, choice)])
        parts.append(_pixels(x, places, padding_mode) * shapes.expand_dims(weight, 1))
    return like(reduce(add, parts), x)


@operator("AffineGrid")
def affine_grid(theta: Tensor, size: Host, *, align_corners: int = 0) -> Tensor:
    """Return the points that `theta` (N, d, d + 1) sends the pixels of images of `size` to."""
    lengths = ints(size)[2:]
    meter().value([*lengths, len(lengths) + 1])
    axes = [np.linspace(-1, 1, d) if align_corners else (2 * np.arange(d) + 1) / d - 1 for d in lengths]
    grids = np.meshgrid(*axes, indexing="ij")
    points = np.stack([*reversed(grids), np.ones(lengths)], -1).reshape(-1, len(lengths) + 1)
    out = matmul(literal(points, theta.dtype, theta.device), theta, transpose_b=True)
    return reshape(out, shape=(theta.shape[0], *lengths, len(lengths)))


@operator("RoiAlign")
def roi_align(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    """Return the mean or maximum of points in the cells of each region (He et al. 2017)."""
    half = 0.5 if coordinate_transformation_mode == "half_pixel" else 0.0
    left, top, right, bottom = (rois[:, i] * spatial_scale - half for i in range(4))
    sides = []
    for start, stop, count in ((top, bottom, output_height), (left, right, output_width)):
        length = stop - start if half else maximum(stop - start, 1)
        if sampling_ratio <= 0:
            each = int(np.ceil((length / count).numpy()).max(initial=1))
        else:
            each = sampling_ratio
        meter().value([count, each])
        cell = literal((np.arange(count * each) + 0.5) / each, x.dtype, x.device)
        sides.append((start.reshape(-1, 1) + cell * (length / count).reshape(-1, 1), each))
    (rows, down), (columns, across) = sides
    values = _points(x, batch_indices, rows, columns, add if mode == "avg" else maximum)
    shape = (values.shape[0], values.shape[1], output_height, down, output_width, across)
    cells = reshape(values, shape=shape)
    out = average(cells, (3, 5)) if mode == "avg" else reduce_max(cells, axis=(3, 5))
    return reshape(out, shape=(shape[0], shape[1], output_height, output_width))


def _points(x: Tensor, batch: Tensor, rows: Tensor, columns: Tensor, meet: Callable[..., Tensor]) -> Tensor:
    """Return (regions, C, rows, columns): the four pixels around each point, weighted, as they `meet`.

    Points more than a pixel outside are 0.
    """
    height, width = x.shape[2:]
    image = reshape(batch, shape=(batch.size, 1, 1))
    y, x_at = shapes.expand_dims(rows, 2), shapes.expand_dims(columns, 1)
    inside = logical_and(logical_and(le(-1, y), le(y, height)), logical_and(le(-1, x_at), le(x_at, width)))
    y, x_at = minimum(maximum(y, 0), height - 1), minimum(maximum(x_at, 0), width - 1)
    low_y, low_x = floor(y), floor(x_at)
    parts = []
    for dy, dx in itertools.product((0, 1), repeat=2):
        at_y, at_x = (
            cast(minimum(low + d, length - 1), dtype=dtypes.int32)
            for low, d, length in ((low_y, dy, height), (low_x, dx, width))
        )
        found = index_get(x, image, at_y, at_x, axes=(0, 2, 3), place=0)
        wy, wx = y - low_y, x_at - low_x
        weight = (wy if dy else 1 - wy) * (wx if dx else 1 - wx)
        parts.append(transpose(found, axes=(0, 3, 1, 2)) * shapes.expand_dims(where(inside, weight, 0), 1))
    return reduce(meet, parts)


@operator("Col2Im")
def col2im(
    x: Tensor,
    image_shape: Host,
    block_shape: Host,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """Add columns back to the pixels that they were read from."""
    size, block = ints(image_shape), ints(block_shape)
    n = len(size)
    steps, gaps = ((1,) * n if v is None else ints(v) for v in (strides, dilations))
    edges = borders(size, block, steps, "NOTSET", pads)
    whole = [d + a + b for d, (a, b) in zip(size, edges)]
    counts = [(w - d * (k - 1) - 1) // s + 1 for w, k, s, d in zip(whole, block, steps, gaps)]
    if x.shape[1] % math.prod(block) or x.shape[2] != math.prod(counts):
        raise ShapeError(f"Col2Im: columns of {x.shape} do not fit blocks of {block} in images of {size}")
    channels = x.shape[1] // math.prod(block)
    columns = reshape(x, shape=(x.shape[0] * channels, math.prod(block), x.shape[2]))
    meter().value([math.prod(block), math.prod(counts)])
    place = np.zeros((math.prod(block), math.prod(counts)), np.int64)
    for i in range(n):
        tap = np.unravel_index(np.arange(math.prod(block)), block)[i][:, None] * gaps[i]
        window = np.unravel_index(np.arange(math.prod(counts)), counts)[i][None, :] * steps[i]
        place = place * whole[i] + tap + window
    zero = full((x.shape[0] * channels, math.prod(whole)), 0, x.dtype, x.device)
    where_to = literal(place, dtypes.int64, x.device)
    images = reshape(
        index_add(zero, columns, where_to, axes=(1,), place=1), shape=(x.shape[0], channels, *whole)
    )
    return framed(images, [(-a, -b) for a, b in edges])


@operator("DeformConv")
def deform_conv(
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    offset_group: int = 1,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """Return a convolution whose taps read between the pixels, each moved by its own offset (Dai et al.

    2017).
    """
    kernel = w.shape[2:]
    if len(kernel) != 2:
        raise UnsupportedError(f"DeformConv: images have 2 axes here, got {len(kernel)}")
    steps, gaps = ((1, 1) if v is None else ints(v) for v in (strides, dilations))
    edges = borders(x.shape[2:], kernel, steps, "NOTSET", pads)
    n, taps, counts = x.shape[0], math.prod(kernel), offset.shape[2:]
    meter().value([taps, *counts])
    moved = reshape(offset, shape=(n * offset_group, taps, 2, *counts))
    places = []
    for i in (0, 1):
        tap = np.unravel_index(np.arange(taps), kernel)[i] * gaps[i]
        window = np.arange(counts[i]) * steps[i] - edges[i][0]
        start = tap[:, None, None] + (window[:, None] if i == 0 else window[None, :])
        places.append(moved[:, :, i] + literal(start, x.dtype, x.device))
    images = reshape(x, shape=(n * offset_group, x.shape[1] // offset_group, *x.shape[2:]))
    low = [floor(p) for p in places]
    near = [_linear_weights(p - b) for p, b in zip(places, low)]
    parts = [
        _pixels(images, [low[0] + i, low[1] + j], "zeros") * shapes.expand_dims(near[0][i] * near[1][j], 1)
        for i, j in itertools.product((0, 1), repeat=2)
    ]
    read = reduce(add, parts)  # (n * offset groups, channels of one, taps, rows, columns)
    if mask is not None:
        read = read * reshape(mask, shape=(n * offset_group, 1, taps, *counts))
    depth = x.shape[1] // group * taps
    columns = reshape(read, shape=(n, group, depth, math.prod(counts)))
    out = matmul(reshape(w, shape=(group, w.shape[0] // group, depth)), columns)
    return with_bias(reshape(out, shape=(n, w.shape[0], *counts)), bias)
