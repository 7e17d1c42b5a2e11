"""`vmap` of the ops that look across axes: on images, by arrays of indices, on matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir import Node
from ..ir.dtypes import int32
from ..ops.creation import along
from ..ops.layout import reshape, transpose
from ..tensor import Tensor
from ..tensor.apply import apply
from .batching import RULES, Value, aligned, full, moved

# images


def _merged(value: Value, size: int) -> Tensor:
    """Merge the batch into the first axis."""
    x = full(value, size)
    shape = x.spec.shape
    return reshape(x, shape=(size * shape[1], *shape[2:]))


def _images(node: Node, size: int, values: Sequence[Value]) -> Tensor:
    """Batch an op that treats each image by itself, and has no other operands."""
    out = apply(node.op, *(_merged(v, size) for v in values), **node.params)
    return reshape(out, shape=(size, *node.spec.shape))


def _channels(value: Value, size: int) -> Tensor:
    """Return the channels of all elements side by side."""
    x = moved(full(value, size), 0, 1)
    images, _, channels, *rest = x.spec.shape
    return reshape(x, shape=(images, size * channels, *rest))


def _convolution(second: Callable[[Value, int], Tensor], gives_images: bool) -> Any:
    """Batch a convolution: the first operand has images, as the second one if `_channels` combines it.

    Where the weights are the same for all elements these are more images, else more groups of channels.
    """

    def rule(node: Node, size: int, values: Sequence[Value]) -> Tensor:
        params = dict(node.params)
        if gives_images and not values[1].batched:
            out = apply(node.op, _merged(values[0], size), values[1].tensor, **params)
            return reshape(out, shape=(size, *node.spec.shape))
        params["groups"] *= size
        out = apply(node.op, _channels(values[0], size), second(values[1], size), **params)
        if gives_images:
            images, channels, *rest = node.spec.shape
            return moved(reshape(out, shape=(images, size, channels, *rest)), 1, 0)
        return reshape(out, shape=(size, *node.spec.shape))

    return rule


# indexing by arrays


def _index(node: Node, size: int, values: Sequence[Value], count: int) -> tuple[list[Tensor], dict[str, Any]]:
    """Return the indices and the parameters for a batch.

    Indices that differ get one of the element before them: all have their axes behind the batch, `count` of
    them, and stand first.
    """
    axes, place = node.params["axes"], node.params["place"]
    further = tuple(a + 1 for a in axes)
    if not any(v.batched for v in values):
        return [v.tensor for v in values], {"axes": further, "place": place + 1}
    element = along((size, *(1,) * count), (0,), int32, node.spec.device)
    return [element, *(aligned(v, count) for v in values)], {"axes": (0, *further), "place": 0}


def _index_get(node: Node, size: int, values: Sequence[Value]) -> Tensor:
    count, place = max(i.spec.ndim for i in node.inputs[1:]), node.params["place"]
    indices, params = _index(node, size, values[1:], count)
    out = apply(node.op, full(values[0], size), *indices, **params)
    if params["place"]:
        return out
    inner, rest = range(1, 1 + count), range(1 + count, out.ndim)
    return transpose(out, axes=(0, *rest[:place], *inner, *rest[place:]))


def _index_put(node: Node, size: int, values: Sequence[Value]) -> Tensor:
    """Return the value that is put has the axes of the indices behind `place` others."""
    count, place = max(i.spec.ndim for i in node.inputs[2:]), node.params["place"]
    indices, params = _index(node, size, values[2:], count)
    ndim = node.spec.ndim - len(node.params["axes"]) + count
    value = aligned(values[1], ndim)
    if not params["place"]:
        value = reshape(value, shape=(*(1,) * (1 + ndim - value.ndim), *value.spec.shape))
        rest = range(1, value.ndim)
        inner = rest[place : place + count]
        value = transpose(value, axes=(0, *inner, *rest[:place], *rest[place + count :]))
    return apply(node.op, full(values[0], size), value, *indices, **params)


def _slice_set(node: Node, size: int, values: Sequence[Value]) -> Tensor:
    x, value = values
    window = ((0, size, 1), *node.params["window"])
    return apply(node.op, full(x, size), aligned(value, node.spec.ndim), window=window)


# matrices


def _as_it_is(node: Node, _size: int, values: Sequence[Value]) -> Tensor:
    """Batch an op of one operand to which its axes are all the same."""
    return apply(node.op, values[0].tensor, **node.params)


def _stacked(node: Node, _size: int, values: Sequence[Value]) -> Tensor:
    """Batch an op on the matrices in the last two axes, before which stacks broadcast."""
    ndim = max(i.spec.ndim for i in node.inputs)
    return apply(node.op, *(aligned(v, ndim) for v in values), **node.params)


RULES |= {
    "conv2d": _convolution(_merged, gives_images=True),
    "conv2d_grad_input": _convolution(_merged, gives_images=True),
    "conv2d_grad_weight": _convolution(_channels, gives_images=False),
    "index_get": _index_get,
    "index_set": _index_put,
    "index_add": _index_put,
    "slice_set": _slice_set,
    "labels": _as_it_is,
    "transfer": _as_it_is,
    **dict.fromkeys(
        "max_pool2d_places max_pool2d max_pool2d_grad max_pool2d_pick avg_pool2d avg_pool2d_grad "
        "adaptive_avg_pool2d adaptive_avg_pool2d_grad".split(),
        _images,
    ),
    **dict.fromkeys(
        "matmul solve solve_triangular lstsq inv pinv cholesky det cofactor slogdet qr svd svdvals eigh "
        "eigvalsh eig eigvals".split(),
        _stacked,
    ),
}
