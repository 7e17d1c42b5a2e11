"""Contractions: matmul, and 2-d convolution with its two gradients.

A convolution is run as a matrix product over *columns*: the windows that the kernel sees, laid out as a
matrix. Columns are built for a few images at a time, so that they are still in cache when the product reads
them. Images are NCHW, weights OIHW; O counts the outputs of all groups, I the inputs of one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir import Kind, Node, Op, Spec
from ...ir.sizes import broadcast
from ...runtime import forking
from ...runtime.memory import empty
from ...runtime.precision import LOW
from ...tensor import Tensor
from ...tensor.libraries import Rule
from ..declare import FIELD, NUMERIC, declare
from ..eager import windows
from ..layout import reshape

Pair = tuple[int, int]

#: Columns that live at one time, in bytes: about what one core's own caches hold.
COLUMN_BYTES = 4 << 20


#: Products by NumPy, whose BLAS has locks of its own.
_matmul = forking.short_call(np.matmul)


# matmul


def _matmul_infer(a: Spec, b: Spec, transpose_a: bool = False, transpose_b: bool = False) -> Spec:
    left = _swapped(a.shape) if transpose_a else a.shape
    right = _swapped(b.shape) if transpose_b else b.shape
    if min(len(left), len(right)) < 2 or left[-1] != right[-2]:
        raise ShapeError(f"matmul: {left} and {right} do not multiply: the inner lengths differ")
    batch = broadcast((left[:-2], right[:-2]))
    if batch is None:
        raise ShapeError(f"matmul: the leading axes of {left} and {right} do not broadcast")
    return Spec((*batch, left[-2], right[-1]), a.dtype)


def _swapped(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-2], *shape[:-3:-1])


def _matmul_eager(a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False) -> Any:
    left = a.swapaxes(-1, -2) if transpose_a else a
    right = b.swapaxes(-1, -2) if transpose_b else b
    if right.ndim == 2 < left.ndim and left.flags.c_contiguous:  # one product of many rows, not many products
        flat = _matmul(left.reshape(math.prod(left.shape[:-1]), left.shape[-1]), right)
        return flat.reshape(*left.shape[:-1], flat.shape[-1])
    return _matmul(left, right)


def _matmul_grad(
    g: Tensor, _y: Spec, a: Tensor, b: Tensor, transpose_a: bool = False, transpose_b: bool = False
) -> tuple[Tensor, Tensor]:
    if transpose_a:
        da = matmul(b, g, transpose_a=transpose_b, transpose_b=True)
    else:
        da = matmul(g, b, transpose_b=not transpose_b)
    if b.ndim == 2 < a.ndim and not transpose_a:  # `b` meets all rows of the stack: one product sums them
        a, g = (reshape(t, shape=(math.prod(t.shape[:-1]), t.shape[-1])) for t in (a, g))
    if transpose_b:
        db = matmul(g, a, transpose_a=True, transpose_b=transpose_a)
    else:
        db = matmul(a, g, transpose_a=not transpose_a)
    return da, db


def _matmul_cost(node: Node) -> int:
    """Return two operations for each pair of numbers that meet."""
    shape = node.inputs[0].spec.shape
    return 2 * node.spec.size * shape[-2 if node.params.get("transpose_a") else -1]


MATMUL = Op(
    "matmul",
    Kind.CONTRACT,
    _matmul_infer,
    Rule("matmul", _matmul_eager, _matmul_infer),
    _matmul_grad,
    promote=FIELD.promote,
    precision=LOW,
    cost=_matmul_cost,
    meaning="Products of the matrices in the last two axes, each transposed if so wanted; the axes before "
    "them broadcast. The terms of a sum are added in the order that suits; integers wrap.",
)

matmul = declare(MATMUL)


# convolution: shapes


def window_count(size: int, kernel: int, stride: int, padding: int, dilation: int = 1) -> int:
    """Count the windows of `kernel` taps along an axis of `size` elements with `padding` on both sides."""
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def window_counts(
    name: str, size: Pair, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair = (1, 1)
) -> Pair:
    """Return `window_count` along both axes.

    Raises
    ------
    ShapeError
        Not a single window fits, or a stride or dilation is below 1.
    """
    if min(*stride, *dilation, *kernel) < 1 or min(padding) < 0:
        raise ShapeError(
            f"{name}: kernel {kernel}, stride {stride} and dilation {dilation} must be at least 1, "
            f"padding {padding} at least 0"
        )
    height, width = map(window_count, size, kernel, stride, padding, dilation)
    if min(height, width) < 1:
        raise ShapeError(
            f"{name}: a kernel of {kernel} with dilation {dilation} is larger than images of {size} "
            f"with padding {padding}"
        )
    return height, width


def _conv2d_infer(x: Spec, w: Spec, stride: Pair, padding: Pair, dilation: Pair, groups: int) -> Spec:
    if x.ndim != 4 or w.ndim != 4:
        raise ShapeError(f"conv2d: needs 4 axes each, got images of {x.shape} and weights of {w.shape}")
    if x.shape[1] != w.shape[1] * groups or w.shape[0] % groups:
        raise ShapeError(
            f"conv2d: images of {x.shape} and weights of {w.shape} do not fit in {groups} group(s): "
            f"{x.shape[1]} channels, {w.shape[1]} for each group"
        )
    counts = window_counts("conv2d", x.shape[2:], w.shape[2:], stride, padding, dilation)  # type: ignore[arg-type]
    return Spec((x.shape[0], w.shape[0], *counts), x.dtype)


def _grad_input_infer(
    g: Spec, w: Spec, size: Pair, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Spec:
    x = Spec((g.shape[0], w.shape[1] * groups, *size), g.dtype)
    _same_windows("conv2d_grad_input", g, _conv2d_infer(x, w, stride, padding, dilation, groups))
    return x


def _grad_weight_infer(
    g: Spec, x: Spec, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Spec:
    w = Spec((g.shape[1], x.shape[1] // groups, *kernel), g.dtype)
    _same_windows("conv2d_grad_weight", g, _conv2d_infer(x, w, stride, padding, dilation, groups))
    return w


def _same_windows(name: str, g: Spec, y: Spec) -> None:
    if g.shape != y.shape:
        raise ShapeError(f"{name}: the gradient has shape {g.shape}, the convolution gives {y.shape}")


# convolution: columns


def pad(x: Any, padding: Pair, value: Any = 0) -> Any:
    """Return `x` (N, C, H, W) framed with `value`; `x` itself when there is nothing to add."""
    if padding == (0, 0):
        return x
    (n, c, h, w), (ph, pw) = x.shape, padding
    out = np.full_like(x, value, shape=(n, c, h + 2 * ph, w + 2 * pw))
    out[:, :, ph : ph + h, pw : pw + w] = x
    return out


def _windows(x: Any, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Any:
    """Return a view (N, C, kh, kw, oh, ow) of the elements that each tap of the kernel meets."""
    window_counts("conv2d", x.shape[2:], kernel, stride, padding, dilation)
    return windows(pad(x, padding), kernel, stride, dilation)


def _batches(images: int, bytes_each: int) -> Iterator[slice]:
    """Yield ranges of images whose columns fit in `COLUMN_BYTES` together."""
    step = max(1, min(images, COLUMN_BYTES // max(1, bytes_each)))
    return (slice(i, min(i + step, images)) for i in range(0, images, step))


def taps(kernel: Pair, stride: Pair, dilation: Pair, counts: Pair) -> Iterator[tuple[int, int, slice, slice]]:
    """Yield for each tap (i, j) of a kernel the rows and columns that it meets."""
    (sh, sw), (dh, dw) = stride, dilation
    for i in range(kernel[0]):
        rows = slice(i * dh, i * dh + sh * (counts[0] - 1) + 1, sh)
        for j in range(kernel[1]):
            yield i, j, rows, slice(j * dw, j * dw + sw * (counts[1] - 1) + 1, sw)


# convolution: eager rules


def _new(shape: tuple[int, ...], like: Any) -> Any:
    """Return an array that is to be filled; of the pool, where `like` is NumPy's."""
    return empty(shape, like.dtype) if type(like) is np.ndarray else np.empty_like(like, shape=shape)


def _conv2d_eager(x: Any, w: Any, stride: Pair, padding: Pair, dilation: Pair, groups: int) -> Any:
    windows = _windows(x, w.shape[2:], stride, padding, dilation)
    n, c, kh, kw, oh, ow = windows.shape
    depth, outputs = c // groups * kh * kw, len(w)
    weight = w.reshape(groups, outputs // groups, depth)
    out = _new((n, groups, outputs // groups, oh * ow), x)
    for part in _batches(n, c * kh * kw * oh * ow * x.dtype.itemsize):
        columns = windows[part].reshape(-1, groups, depth, oh * ow)
        _matmul(weight, columns, out=out[part])
    return out.reshape(n, outputs, oh, ow)


def _grad_weight_eager(
    g: Any, x: Any, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Any:
    windows = _windows(x, kernel, stride, padding, dilation).transpose(1, 2, 3, 0, 4, 5)
    c, kh, kw, n, oh, ow = windows.shape
    depth, outputs = c // groups * kh * kw, g.shape[1]
    gradient = g.transpose(1, 0, 2, 3)
    out = np.zeros_like(g, shape=(groups, outputs // groups, depth))
    for part in _batches(n, c * kh * kw * oh * ow * x.dtype.itemsize):
        columns = windows[:, :, :, part].reshape(groups, depth, -1)
        out += _matmul(gradient[:, part].reshape(groups, outputs // groups, -1), columns.swapaxes(1, 2))
    return out.reshape(outputs, c // groups, kh, kw)


def _grad_input_eager(
    g: Any, w: Any, size: Pair, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Any:
    reach = tuple(d * (k - 1) for d, k in zip(dilation, w.shape[2:], strict=True))
    gathered = w.shape[0] * size[0] * size[1]
    scattered = w.shape[1] * groups * g.shape[2] * g.shape[3]
    # To scatter is to read and write what is added to: it costs about as much as to gather two elements.
    if gathered <= 2 * scattered and all(p <= r for p, r in zip(padding, reach, strict=True)):
        return _gather_gradient(g, w, size, stride, padding, dilation, groups)
    return _scatter_gradient(g, w, size, stride, padding, dilation, groups)


def _gather_gradient(
    g: Any, w: Any, size: Pair, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Any:
    """Return the gradient, spread out by the stride and framed, convolved with the mirrored kernel."""
    (n, outputs, oh, ow), (kh, kw), (sh, sw), (dh, dw) = g.shape, w.shape[2:], stride, dilation
    top, left = dh * (kh - 1) - padding[0], dw * (kw - 1) - padding[1]
    spread = np.zeros_like(g, shape=(n, outputs, size[0] + dh * (kh - 1), size[1] + dw * (kw - 1)))
    spread[:, :, top : top + sh * (oh - 1) + 1 : sh, left : left + sw * (ow - 1) + 1 : sw] = g
    per_group = w.reshape(groups, outputs // groups, -1, kh, kw)[:, :, :, ::-1, ::-1].swapaxes(1, 2)
    mirrored = per_group.reshape(-1, outputs // groups, kh, kw)
    return _conv2d_eager(spread, mirrored, (1, 1), (0, 0), dilation, groups)


def _scatter_gradient(
    g: Any, w: Any, size: Pair, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Any:
    """Return the columns of the gradient, added tap by tap to where they were read."""
    (n, outputs, oh, ow), (kh, kw), (ph, pw) = g.shape, w.shape[2:], padding
    channels = w.shape[1] * groups
    weight = w.reshape(groups, outputs // groups, -1).swapaxes(1, 2)
    gradient = g.reshape(n, groups, outputs // groups, oh * ow)
    framed = np.zeros_like(g, shape=(n, channels, size[0] + 2 * ph, size[1] + 2 * pw))
    for part in _batches(n, channels * kh * kw * oh * ow * g.dtype.itemsize):
        columns = _matmul(weight, gradient[part]).reshape(-1, channels, kh, kw, oh, ow)
        for i, j, rows, cols in taps((kh, kw), stride, dilation, (oh, ow)):
            framed[part, :, rows, cols] += columns[:, :, i, j]
    return framed[:, :, ph : ph + size[0], pw : pw + size[1]]


# convolution: the three ops, each the others' gradient


def _conv2d_grad(g: Tensor, _y: Spec, x: Tensor, w: Tensor, **window: Any) -> tuple[Tensor, Tensor]:
    return (
        conv2d_grad_input(g, w, size=x.shape[2:], **window),
        conv2d_grad_weight(g, x, kernel=w.shape[2:], **window),
    )


def _grad_input_grad(
    h: Tensor, _y: Spec, g: Tensor, w: Tensor, size: Pair, **window: Any
) -> tuple[Tensor, Tensor]:
    return conv2d(h, w, **window), conv2d_grad_weight(g, h, kernel=w.shape[2:], **window)


def _grad_weight_grad(
    h: Tensor, _y: Spec, g: Tensor, x: Tensor, kernel: Pair, **window: Any
) -> tuple[Tensor, Tensor]:
    return conv2d(x, h, **window), conv2d_grad_input(g, h, size=x.shape[2:], **window)


def _window_cost(images: Node, weights: Node) -> int:
    """Return each element of the convolved images meets the weights of one output channel."""
    return 2 * images.spec.size * math.prod(weights.spec.shape[1:])


conv2d = declare(
    Op(
        "conv2d",
        Kind.CONTRACT,
        _conv2d_infer,
        Rule("conv2d", _conv2d_eager, _conv2d_infer),
        _conv2d_grad,
        promote=NUMERIC.promote,
        precision=LOW,
        cost=lambda node: _window_cost(node, node.inputs[1]),
        meaning="Cross-correlation of images (N, C, H, W), with `padding` zeros on both sides, and weights "
        "(O, C / groups, kh, kw): each group of channels meets its own O / groups of these.",
    )
)

conv2d_grad_input = declare(
    Op(
        "conv2d_grad_input",
        Kind.CONTRACT,
        _grad_input_infer,
        Rule("conv2d_grad_input", _grad_input_eager, _grad_input_infer),
        _grad_input_grad,
        promote=NUMERIC.promote,
        precision=LOW,
        cost=lambda node: _window_cost(node.inputs[0], node.inputs[1]),
        meaning="The transpose of `conv2d` in its images, of (H, W) = `size`.",
    )
)

conv2d_grad_weight = declare(
    Op(
        "conv2d_grad_weight",
        Kind.CONTRACT,
        _grad_weight_infer,
        Rule("conv2d_grad_weight", _grad_weight_eager, _grad_weight_infer),
        _grad_weight_grad,
        promote=NUMERIC.promote,
        cost=lambda node: _window_cost(node.inputs[0], node),
        meaning="The transpose of `conv2d` in the weights, of (kh, kw) = `kernel`.",
    )
)
