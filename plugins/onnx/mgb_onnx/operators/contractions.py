"""Matrix products, sums of products, convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from mgb import dtypes
from mgb.errors import FileFormatError, ShapeError, UnsupportedError
from mgb.functional import einstein, matrices
from mgb.ops.images import contract
from mgb.ops.images.contract import window_count
from mgb.ops.layout import concat, reshape, reverse, slice_, transpose, unslice
from mgb.ops.primitives import add, cast
from mgb.tensor import Tensor

from .elementwise import ints, like
from .table import operator

#: What is added before and after each axis of an image.
Borders = list[tuple[int, int]]


@operator("MatMul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    return matrices.matmul(a, b)


@operator("Gemm")
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    out = contract.matmul(a, b, transpose_a=bool(transA), transpose_b=bool(transB))
    if alpha != 1:
        out = like(out * alpha, a)
    if c is None or not beta:
        return out
    return out + (c if beta == 1 else like(c * beta, a))


# Einstein's notation


@operator("Einsum")
def einsum(*xs: Tensor, equation: str) -> Tensor:
    """Sum by NumPy's rules."""
    try:
        return einstein.einsum(equation, *xs)
    except ShapeError as error:
        raise FileFormatError(f"Einsum: {error}") from error


@operator("Det")
def determinant(x: Tensor) -> Tensor:
    """Expand along the first row."""
    n = x.shape[-1]
    if n == 1:
        return reshape(x, shape=x.shape[:-2])
    if n > 8:
        raise UnsupportedError(f"Det: matrices of up to 8 rows are supported, got {n}")
    minors: list[Tensor] = [
        determinant(concat(x[..., 1:, :i], x[..., 1:, i + 1 :], axis=x.ndim - 1)) * x[..., 0, i] * (-1) ** i
        for i in range(n)
    ]
    return reduce(add, minors)


# convolution


def borders(
    size: Sequence[int],
    reach: Sequence[int],
    strides: Sequence[int],
    auto_pad: str,
    pads: Sequence[int] | None,
) -> Borders:
    """Return the padding before and after each axis by `auto_pad` or `pads`; `reach`: length of a window."""
    n = len(size)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        total = [max((-(-d // s) - 1) * s + r - d, 0) for d, r, s in zip(size, reach, strides)]
        small = [t // 2 for t in total]
        if auto_pad == "SAME_UPPER":
            return [(a, t - a) for a, t in zip(small, total)]
        return [(t - a, a) for a, t in zip(small, total)]
    if auto_pad not in ("NOTSET", "VALID", ""):
        raise FileFormatError(f"auto_pad {auto_pad!r} is not one of ONNX's")
    given = ints(pads) if pads is not None and auto_pad != "VALID" else (0,) * (2 * n)
    if len(given) != 2 * n:
        raise FileFormatError(f"{len(given)} pads for {n} axes")
    return list(zip(given[:n], given[n:]))


def framed(x: Tensor, edges: Borders) -> Tensor:
    """Return `x` (N, C, ...) with zeros around its images; a negative border crops."""
    if not any(a or b for a, b in edges):
        return x
    inner: list[Any] = [(0, d, 1) for d in x.shape[:2]]
    inner += [(max(-a, 0), d - max(-b, 0), 1) for (a, b), d in zip(edges, x.shape[2:])]
    x = slice_(x, window=tuple(inner))
    shape = (*x.shape[:2], *(max(a, 0) + d + max(b, 0) for (a, b), d in zip(edges, x.shape[2:])))
    outer: list[Any] = [(0, d, 1) for d in x.shape[:2]]
    outer += [(max(a, 0), max(a, 0) + d, 1) for (a, _), d in zip(edges, x.shape[2:])]
    return unslice(x, shape=shape, window=tuple(outer))


def convolved(
    x: Tensor, w: Tensor, edges: Borders, strides: Sequence[int], dilations: Sequence[int], groups: int
) -> Tensor:
    """Cross-correlate over any number of axes: beyond two, sum over the taps of the outer ones."""
    if x.ndim == 3:
        row = convolved(_outer(x), _outer(w), [(0, 0), *edges], (1, *strides), (1, *dilations), groups)
        return reshape(row, shape=(*row.shape[:2], row.shape[3]))
    if x.ndim > 4:
        return _convolved_slices(x, w, edges, strides, dilations, groups)
    if x.ndim < 3:
        raise ShapeError(
            f"a convolution needs images (N, C, ...) with at least one spatial axis, got shape {x.shape}"
        )
    even = all(a == b and a >= 0 for a, b in edges)
    padding = tuple(a for a, _ in edges) if even else (0, 0)
    return contract.conv2d(
        x if even else framed(x, edges), w,
        stride=tuple(strides), padding=padding, dilation=tuple(dilations), groups=groups,
    )  # fmt: skip


def _outer(x: Tensor) -> Tensor:
    """Insert an axis of length 1 before the first axis of the images."""
    return reshape(x, shape=(*x.shape[:2], 1, *x.shape[2:]))


def _convolved_slices(
    x: Tensor, w: Tensor, edges: Borders, strides: Sequence[int], dilations: Sequence[int], groups: int
) -> Tensor:
    x = framed(x, [edges[0], *((0, 0) for _ in edges[1:])])
    count = window_count(x.shape[2], w.shape[2], strides[0], 0, dilations[0])
    parts = []
    for tap in range(w.shape[2]):
        first = tap * dilations[0]
        rows = x[:, :, first : first + strides[0] * (count - 1) + 1 : strides[0]]
        turned = rows.transpose(0, 2, 1, *range(3, x.ndim))
        images = reshape(turned, shape=(x.shape[0] * count, x.shape[1], *x.shape[3:]))
        parts.append(convolved(images, w[:, :, tap], edges[1:], strides[1:], dilations[1:], groups))
    total = reduce(add, parts)
    out = reshape(total, shape=(x.shape[0], count, *total.shape[1:]))
    return out.transpose(0, 2, 1, *range(3, out.ndim))


def with_bias(out: Tensor, bias: Tensor | None) -> Tensor:
    """Return one number added to each channel."""
    return out if bias is None else out + reshape(bias, shape=(bias.size, *(1,) * (out.ndim - 2)))


def _ones(given: Sequence[int] | None, n: int) -> tuple[int, ...]:
    return (1,) * n if given is None else ints(given)


def _reaches(kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    return [d * (k - 1) + 1 for k, d in zip(kernel, dilations)]


@operator("Conv")
def conv(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    n = x.ndim - 2
    steps, gaps = _ones(strides, n), _ones(dilations, n)
    edges = borders(x.shape[2:], _reaches(w.shape[2:], gaps), steps, auto_pad, pads)
    return with_bias(convolved(x, w, edges, steps, gaps, group), bias)


@operator("ConvTranspose")
def conv_transpose(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """Return the images spread out by the strides, framed, and convolved with the mirrored kernel."""
    n = x.ndim - 2
    steps, gaps = _ones(strides, n), _ones(dilations, n)
    extra = (0,) * n if output_padding is None else ints(output_padding)
    reach = _reaches(w.shape[2:], gaps)
    full_size = [s * (d - 1) + r + e for d, s, r, e in zip(x.shape[2:], steps, reach, extra)]
    wanted = ints(output_shape)[-n:] if output_shape is not None else None
    if auto_pad in ("SAME_UPPER", "SAME_LOWER") and wanted is None:
        wanted = tuple(d * s for d, s in zip(x.shape[2:], steps))
    if wanted is None:
        cut = borders(x.shape[2:], reach, steps, auto_pad, pads)
    else:
        total = [f - d for f, d in zip(full_size, wanted)]
        upper = auto_pad == "SAME_UPPER"
        cut = [(t // 2, t - t // 2) if upper else (t - t // 2, t // 2) for t in total]
    spread = _spread(x, steps)
    edges = [(r - 1 - a, r - 1 - b + e) for (a, b), r, e in zip(cut, reach, extra)]
    return with_bias(convolved(spread, _mirrored(w, group), edges, (1,) * n, gaps, group), bias)


def _spread(x: Tensor, steps: Sequence[int]) -> Tensor:
    """Return the pixels of `x`, zeros between them."""
    if all(s == 1 for s in steps):
        return x
    shape = (*x.shape[:2], *((d - 1) * s + 1 for d, s in zip(x.shape[2:], steps)))
    window = (*((0, d, 1) for d in x.shape[:2]), *((0, d, s) for d, s in zip(shape[2:], steps)))
    return unslice(x, shape=shape, window=window)


def _mirrored(w: Tensor, groups: int) -> Tensor:
    """Return a kernel (C, O / groups, ...) turned round, as (O, C / groups, ...)."""
    w = reverse(w, tuple(range(2, w.ndim)))
    parts = reshape(w, shape=(groups, w.shape[0] // groups, *w.shape[1:]))
    turned = transpose(parts, axes=(0, 2, 1, *range(3, parts.ndim)))
    return reshape(turned, shape=(groups * w.shape[1], w.shape[0] // groups, *w.shape[2:]))


# products of small integers


def shifted(x: Tensor, zero: Tensor | None, axis: int) -> Tensor:
    """Return the integers of `x` less their zero point, one for all or one for each place along `axis`."""
    wide = cast(x, dtype=dtypes.int32)
    if zero is None:
        return wide
    point = cast(zero, dtype=dtypes.int32)
    if point.ndim == 1 and point.size > 1:
        point = reshape(point, shape=tuple(point.size if i == axis % x.ndim else 1 for i in range(x.ndim)))
    elif point.size == 1:
        point = reshape(point, shape=())
    return wide - point


@operator("MatMulInteger")
def matmul_integer(
    a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    return matrices.matmul(shifted(a, a_zero, -2), shifted(b, b_zero, -1))


@operator("ConvInteger")
def conv_integer(
    x: Tensor,
    w: Tensor,
    x_zero: Tensor | None = None,
    w_zero: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    return conv(
        shifted(x, x_zero, 1), shifted(w, w_zero, 0),
        auto_pad=auto_pad, dilations=dilations, group=group, pads=pads, strides=strides,
    )  # fmt: skip
