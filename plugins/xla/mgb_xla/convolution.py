"""Convolutions and their gradients. Images are NCHW, weights OIHW.

XLA's convolutions in groups take about as long as one that joins all channels, their gradients in the weights
many times that. So narrow groups are sums over the taps of the kernel, which XLA makes one loop of, and wide
groups a convolution each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

from jax import lax
from mgb.ir import Node

from .arithmetic import Word
from .shapes import Shape, Value, alike, number

Pair = tuple[int, int]

#: Channels of a group up to which it is narrow.
NARROW = 4

#: The most products in an element of a sum over taps, and the most sums in one loop: XLA compiles each.
TERMS, TOGETHER = 1000, 200


@dataclass(frozen=True)
class Window:
    """How a kernel moves over images.

    Attributes
    ----------
    stride : (int, int)
    edges : ((int, int), (int, int))
        Zeros before and after the rows, and the columns; less than 0 where some are left out.
    spread : (int, int)
        How far apart rows and columns are set before.
    dilation : (int, int)
        How far apart the taps of the kernel are.
    """

    stride: Pair
    edges: tuple[Pair, Pair]
    spread: Pair
    dilation: Pair


def _per_axis(rule: Callable[..., Pair], *along: Pair) -> tuple[Pair, Pair]:
    rows, columns = zip(*along, strict=True)
    return rule(*rows), rule(*columns)


# the words


def _conv2d(node: Node, x: Value, w: Value) -> Value:
    p = node.params
    edges = _per_axis(lambda q: (q, q), p["padding"])
    window = Window(p["stride"], edges, (1, 1), p["dilation"])
    return _convolve(x, w, node.spec.shape, p["groups"], window)


def _conv2d_grad_input(node: Node, g: Value, w: Value) -> Value:
    """Return the gradient, spread out by the stride, convolved with the mirrored kernel."""
    p = node.params

    def around(size: int, count: int, k: int, s: int, q: int, d: int) -> Pair:
        low = d * (k - 1) - q
        return low, size - (count - 1) * s - 1 - low + d * (k - 1)

    along = p["size"], g.shape[2:], w.shape[2:], p["stride"], p["padding"], p["dilation"]
    window = Window((1, 1), _per_axis(around, *along), p["stride"], p["dilation"])
    return _convolve(g, _mirrored(w, p["groups"]), node.spec.shape, p["groups"], window)


def _conv2d_grad_weight(node: Node, g: Value, x: Value) -> Value:
    p, groups = node.params, node.params["groups"]

    def around(size: int, count: int, k: int, s: int, q: int, d: int) -> Pair:
        return q, d * (k - 1) + s * (count - 1) + 1 - size - q

    along = x.shape[2:], g.shape[2:], p["kernel"], p["stride"], p["padding"], p["dilation"]
    window = Window(p["stride"], _per_axis(around, *along), (1, 1), p["dilation"])
    outputs, inputs, *kernel = node.spec.shape
    if groups > 1 and inputs * outputs // groups <= NARROW**2 and prod(kernel) <= TERMS:
        return _sums_of_taps(g, x, node.spec.shape, groups, window)
    parts = zip(_parts(g, groups, 1), _parts(x, groups, 1), strict=True)
    return lax.concatenate([_correlate(a, b, window) for a, b in parts], 0)


# the ways


def _convolve(x: Value, w: Value, shape: Shape, groups: int, window: Window) -> Value:
    """Return `x` convolved with `w`: an array of `shape`."""
    if groups > 1 and w.shape[1] > NARROW:
        parts = zip(_parts(x, groups, 1), _parts(w, groups, 0), strict=True)
        return lax.concatenate([_whole(a, b, 1, window) for a, b in parts], 1)
    if groups > 1 and prod(w.shape[1:]) <= TERMS:
        return _sum_over_taps(x, w, shape, groups, window)
    return _whole(x, w, groups, window)


def _whole(x: Value, w: Value, groups: int, window: Window) -> Value:
    return lax.conv_general_dilated(
        x,
        w,
        window.stride,
        window.edges,
        window.spread,
        window.dilation,
        ("NCHW", "OIHW", "NCHW"),
        groups,
        precision=lax.Precision.HIGHEST,
        preferred_element_type=x.dtype,
    )


def _correlate(g: Value, x: Value, window: Window) -> Value:
    """Return the images convolved with the gradient as a kernel: their batch is what is summed."""
    return lax.conv_general_dilated(
        x,
        g,
        window.dilation,
        window.edges,
        rhs_dilation=window.stride,
        dimension_numbers=("CNHW", "IOHW", "CNHW"),
        precision=lax.Precision.HIGHEST,
        preferred_element_type=x.dtype,
    )


def _parts(x: Value, groups: int, axis: int) -> list[Value]:
    """Return the arrays of each group, which are equal parts of `x` along `axis`."""
    count = x.shape[axis] // groups
    return [lax.slice_in_dim(x, k * count, (k + 1) * count, axis=axis) for k in range(groups)]


def _mirrored(w: Value, groups: int) -> Value:
    """Return the kernels from outputs to inputs."""
    outputs, inputs, *kernel = w.shape
    by_group = lax.reshape(w, (groups, outputs // groups, inputs, *kernel))
    swapped = lax.transpose(by_group, (0, 2, 1, 3, 4))
    return lax.rev(lax.reshape(swapped, (groups * inputs, outputs // groups, *kernel)), (2, 3))


# narrow groups: axes stand for images, groups, outputs and inputs of a group, rows, columns


def _sum_over_taps(x: Value, w: Value, shape: Shape, groups: int, window: Window) -> Value:
    outputs, inputs, *kernel = w.shape
    framed = _framed(x, (groups, 1, inputs), window)
    weights = lax.reshape(w, (groups, outputs // groups, inputs, *kernel))
    total = None
    for place, view in _views(framed, kernel, shape[2:], window):
        for part in range(inputs):
            pixels = lax.slice_in_dim(view, part, part + 1, axis=3)
            weight = lax.slice(
                weights, (0, 0, part, *place), (*weights.shape[:2], part + 1, *(i + 1 for i in place))
            )
            product = lax.mul(*alike(pixels, weight))
            total = product if total is None else lax.add(total, product)
    return lax.reshape(total, shape)


def _sums_of_taps(g: Value, x: Value, shape: Shape, groups: int, window: Window) -> Value:
    """Return for each tap the sum of what it meets times the gradient; many sums in one loop over images."""
    outputs, inputs, *kernel = shape
    framed = _framed(x, (groups, 1, inputs), window)
    counts = g.shape[2:]
    gradient = lax.reshape(lax.optimization_barrier(g), (len(g), groups, outputs // groups, 1, *counts))
    products = [lax.mul(*alike(view, gradient)) for _, view in _views(framed, kernel, counts, window)]
    by_image: list[Value] = []
    for start in range(0, len(products), TOGETHER):
        part = tuple(products[start : start + TOGETHER])
        by_image += lax.reduce(part, (number(0, g.dtype),) * len(part), _add_each, (4, 5))
    taps = [lax.reshape(sums, (len(g), outputs, inputs, 1)) for sums in by_image]
    return lax.reshape(lax.reduce_sum(lax.concatenate(taps, 3), (0,)), shape)


def _add_each(a: tuple[Value, ...], b: tuple[Value, ...]) -> tuple[Value, ...]:
    return tuple(map(lax.add, a, b))


def _framed(x: Value, channels: Shape, window: Window) -> Value:
    """Return the images with zeros around and between, in memory: every tap reads them again."""
    n, _, *size = x.shape
    edges = [(low, high, apart - 1) for (low, high), apart in zip(window.edges, window.spread, strict=True)]
    images = lax.reshape(x, (n, *channels, *size))
    return lax.optimization_barrier(lax.pad(images, number(0, x.dtype), [(0, 0, 0)] * 4 + edges))


def _views(framed: Value, kernel: list[int], counts: Shape, window: Window) -> Iterator[tuple[Pair, Value]]:
    """Yield the places of the taps in the kernel, and what each meets."""
    lead = framed.shape[:4]
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            starts = [at * d for at, d in zip((i, j), window.dilation, strict=True)]
            stops = [a + s * (n - 1) + 1 for a, s, n in zip(starts, window.stride, counts, strict=True)]
            yield (
                (i, j),
                lax.slice(framed, (0,) * 4 + tuple(starts), (*lead, *stops), (1,) * 4 + window.stride),
            )


WORDS: dict[str, Word] = {
    "conv2d": _conv2d,
    "conv2d_grad_input": _conv2d_grad_input,
    "conv2d_grad_weight": _conv2d_grad_weight,
}
