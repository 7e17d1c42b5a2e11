"""Pooling over any number of axes: each tap of the window is a slice of the images, and the slices fold."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import reduce

import numpy as np
from mgb import dtypes
from mgb.errors import ShapeError
from mgb.ops.bodies.transcendental import pow as power
from mgb.ops.creation import full
from mgb.ops.elementwise import abs as magnitude
from mgb.ops.images import pooling
from mgb.ops.index import scatter_
from mgb.ops.layout import broadcast_to, reshape, slice_
from mgb.ops.methods import average
from mgb.ops.primitives import add, eq, lt, maximum, where
from mgb.ops.reduce import lowest, reduce_max, reduce_sum
from mgb.storage.limits import meter
from mgb.tensor import Tensor
from mgb.tensor.apply import literal

from ..values import Host
from .contractions import Borders, borders, framed
from .elementwise import ints, like
from .table import operator


class Windows:
    """The windows of one pooling over images (N, C, ...).

    Attributes
    ----------
    kernel, strides, dilations : tuple of int
    edges : list of (int, int)
        What is added around the images, and with `ceil_mode` what the last windows reach beyond that.
    counts : list of int
        How many windows there are along each axis.
    padded : list of (int, int)
        The part of `edges` that counts as padding, not as outside.
    """

    def __init__(
        self,
        size: Sequence[int],
        kernel: Sequence[int],
        strides: Sequence[int] | None,
        dilations: Sequence[int] | None,
        auto_pad: str,
        pads: Sequence[int] | None,
        ceil_mode: int,
    ) -> None:
        n = len(size)
        self.size = tuple(size)
        self.kernel = ints(kernel)
        self.strides = (1,) * n if strides is None else ints(strides)
        self.dilations = (1,) * n if dilations is None else ints(dilations)
        if len(self.kernel) != n or min(*self.kernel, *self.strides, *self.dilations, 1) < 1:
            raise ShapeError(
                f"a window of {self.kernel} with strides {self.strides} is not valid for images of "
                f"{self.size}: give at least 1 for each axis"
            )
        reach = [d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations)]
        self.padded: Borders = borders(size, reach, self.strides, auto_pad, pads)
        self.counts = []
        self.edges: Borders = []
        for d, r, s, (a, b) in zip(size, reach, self.strides, self.padded):
            room = d + a + b - r
            count = (-(-room // s) if ceil_mode else room // s) + 1
            if ceil_mode and (count - 1) * s >= d + a:
                count -= 1  # the last window would begin in the padding behind the image
            if count < 1:
                raise ShapeError(f"a window of {self.kernel} is larger than images of {self.size}")
            self.counts.append(count)
            self.edges.append((a, max(b, (count - 1) * s + r - d - a)))
        meter().check("nodes", math.prod(self.kernel))  # each tap is a step of its own
        meter().spend("operations", math.prod(self.kernel) * math.prod(self.counts))

    def taps(self, framed_images: Tensor) -> list[Tensor]:
        """Return for each tap the pixels of the framed images that it meets, one for each window."""
        return [self._tap(framed_images, offset) for offset in itertools.product(*map(range, self.kernel))]

    def _tap(self, x: Tensor, offset: Sequence[int]) -> Tensor:
        window = [(0, d, 1) for d in x.shape[:2]]
        for o, d, s, count in zip(offset, self.dilations, self.strides, self.counts):
            window.append((o * d, o * d + s * (count - 1) + 1, s))
        return slice_(x, window=tuple(window))

    def places(self) -> list[Host]:
        """Return for each tap the row-major index in the image of what it meets; outside it is -1."""
        meter().value([*self.kernel, *self.counts])
        grids = np.ix_(*(np.arange(c) * s - a for c, s, (a, _) in zip(self.counts, self.strides, self.edges)))
        out = []
        for offset in itertools.product(*map(range, self.kernel)):
            place, inside = np.zeros(self.counts, np.int64), np.ones(self.counts, bool)
            for grid, o, d, length in zip(grids, offset, self.dilations, self.size):
                at = grid + o * d
                place = place * length + at
                inside &= (at >= 0) & (at < length)
            out.append(np.where(inside, place, -1))
        return out

    def fits_op(self, ndim: int) -> bool:
        """Return whether it is what the pooling ops of mgb do: two axes, even padding, no gaps."""
        even = self.edges == self.padded and all(
            a == b and 2 * a <= k for (a, b), k in zip(self.edges, self.kernel)
        )
        return ndim == 4 and even and set(self.dilations) == {1}

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Return parameters for the pooling ops of mgb."""
        return {"kernel": self.kernel, "stride": self.strides, "padding": tuple(a for a, _ in self.edges)}


def _around(x: Tensor, edges: Borders, value: float) -> Tensor:
    """Return `x` framed with `value`."""
    if not any(a or b for a, b in edges):
        return x
    from mgb.functional.rearrange import pad

    return pad(x, [(0, 0), (0, 0), *edges], constant_value=value)


@operator("MaxPool")
def max_pool(
    x: Tensor,
    *,
    wanted: int,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    windows = Windows(x.shape[2:], kernel_shape, strides, dilations, auto_pad, pads, ceil_mode)
    if windows.fits_op(x.ndim) and wanted == 1:
        return pooling.max_pool2d(x, **windows.parameters())
    taps = windows.taps(_around(x, windows.edges, lowest(x.dtype)))
    best = reduce(maximum, taps)
    return best if wanted == 1 else (best, _winners(taps, best, windows, storage_order))


def _winners(taps: list[Tensor], best: Tensor, windows: Windows, column_major: int) -> Tensor:
    """Return where in the whole input the first maximum of each window stands."""
    images = math.prod(best.shape[:2])
    area = math.prod(windows.size)
    place = full(best.shape, 0, dtypes.int64, best.device)
    for tap, at in reversed(list(zip(taps, windows.places()))):
        if column_major:
            at = np.where(at < 0, -1, _column_major(at, windows.size))
        here = broadcast_to(literal(at, dtypes.int64, best.device), shape=best.shape)
        place = where(eq(tap, best), where(lt(here, 0), place, here), place)
    first = literal(np.arange(images) * area, dtypes.int64, best.device)
    return place + reshape(first, shape=(*best.shape[:2], *(1,) * len(windows.size)))


def _column_major(place: Host, size: Sequence[int]) -> Host:
    return np.ravel_multi_index(np.unravel_index(np.maximum(place, 0), size), size, order="F")


@operator("MaxUnpool")
def max_unpool(
    x: Tensor,
    places: Tensor,
    output_shape: Host | None = None,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """Return zeros, with each element of `x` where it came from."""
    n = x.ndim - 2
    steps = (1,) * n if strides is None else ints(strides)
    cut = borders(x.shape[2:], kernel_shape, steps, "NOTSET", pads)
    size = [(d - 1) * s + k - a - b for d, s, k, (a, b) in zip(x.shape[2:], steps, kernel_shape, cut)]
    inner = (*x.shape[:2], *size)
    flat = full((math.prod(inner),), 0, x.dtype, x.device)
    out = reshape(scatter_(flat, x.reshape(-1), places.reshape(-1), axis=0), shape=inner)
    if output_shape is None:
        return out
    return framed(out, [(0, w - d) for w, d in zip(ints(output_shape)[2:], size)])


@operator("AveragePool")
def average_pool(
    x: Tensor,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    windows = Windows(x.shape[2:], kernel_shape, strides, dilations, auto_pad, pads, ceil_mode)
    if windows.fits_op(x.ndim):
        return pooling.avg_pool2d(x, count_padding=bool(count_include_pad), **windows.parameters())
    total = reduce(add, windows.taps(framed(x, windows.edges)))
    return like(total / literal(_pixels(windows, count_include_pad), x.dtype, x.device), x)


def _pixels(windows: Windows, count_padding: int) -> Host:
    """Return how many pixels each window holds; what lies beyond the padding is never one."""
    numbers: Host = np.ones((), np.int64)
    for i, count in enumerate(windows.counts):
        low = -windows.padded[i][0] if count_padding else 0
        high = windows.size[i] + (windows.padded[i][1] if count_padding else 0)
        at = np.arange(count)[:, None] * windows.strides[i] - windows.edges[i][0]
        at = at + np.arange(windows.kernel[i]) * windows.dilations[i]
        numbers = numbers[..., None] * ((at >= low) & (at < high)).sum(axis=1)
    return numbers


@operator("LpPool")
def lp_pool(
    x: Tensor,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    p: int = 2,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    windows = Windows(x.shape[2:], kernel_shape, strides, dilations, auto_pad, pads, ceil_mode)
    powers = power(magnitude(framed(x, windows.edges)), float(p))
    return like(power(reduce(add, windows.taps(powers)), 1 / p), x)


# the whole image


def _image(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@operator("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    return like(average(x, _image(x)), x)


@operator("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Tensor:
    return reduce_max(x, axis=_image(x))


@operator("GlobalLpPool")
def global_lp_pool(x: Tensor, *, p: int = 2) -> Tensor:
    return like(power(reduce_sum(power(magnitude(x), float(p)), axis=_image(x)), 1 / p), x)
