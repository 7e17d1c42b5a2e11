"""Ops that move elements and compute nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..ir import Kind, Op, Spec
from ..ir.sizes import broadcast, count, same_shape
from ..ir.strides import broadcast_strides, collapse, row_major
from ..tensor import Tensor
from ..tensor.apply import apply
from .declare import ANY, OPS, declare
from .eager import concat as eager_concat

Shape = tuple[int, ...]


def _reshape_infer(x: Spec, shape: Shape) -> Spec:
    if Spec(shape, x.dtype).size != x.size:
        raise ShapeError(f"reshape: {x.shape} has {x.size} elements and does not fit in {shape}")
    return Spec(shape, x.dtype)


def _reshaped(old: Shape, strides: Shape, shape: Shape) -> Shape | None:
    """Return the strides of `shape`, each axis part of one run of old ones; None if that requires a copy."""
    if 0 in shape:
        return row_major(shape)
    loops = collapse(old, [strides])
    runs = iter(zip(loops.shape, loops.strides[0], strict=True))
    left, step, found = 1, 0, []
    for length in shape:
        if left == 1 and length > 1:
            left, step = next(runs)
        left, cut = divmod(left, length)
        if cut:
            return None
        found.append(left * step)
    return tuple(found)


def _reshape(x: Any, shape: Shape) -> Any:
    repeats = type(x) is np.ndarray and x.ndim > 1 and x.strides[-1] == 0 != x.strides[-2] and x.shape[-2] > 1
    few = x.shape[-1] if repeats else 1
    if 1 < few <= 4 and shape[-1] > few:
        out = np.empty(
            x.shape, x.dtype
        )  # each element a few times in a row: NumPy's copy takes four times as long
        for place in range(few):
            out[..., place] = x[..., 0]
        x = out
    return x.reshape(shape)


RESHAPE = Op(
    "reshape",
    Kind.LAYOUT,
    _reshape_infer,
    _reshape,
    lambda g, _y, _x, shape: (reshape(g, shape=_x.shape),),
    moves=_reshaped,
    meaning="The elements of `x`, in row-major order, as an array of `shape`, which holds no -1.",
)

reshape = declare(RESHAPE)


def _transpose_infer(x: Spec, axes: Shape) -> Spec:
    if sorted(axes) != list(range(x.ndim)):
        raise ShapeError(f"transpose: {axes} is not a permutation of the axes of {x.shape}")
    return Spec(tuple(x.shape[a] for a in axes), x.dtype)


TRANSPOSE = Op(
    "transpose",
    Kind.LAYOUT,
    _transpose_infer,
    lambda x, axes: np.transpose(x, axes),
    lambda g, _y, _x, axes: (transpose(g, axes=tuple(int(a) for a in np.argsort(axes))),),
    moves=lambda _shape, strides, axes: tuple(strides[a] for a in axes),
    meaning="Axis `i` of the result is axis ``axes[i]`` of `x`; `axes` is a permutation of all, none "
    "negative.",
)

transpose = declare(TRANSPOSE)


def _broadcast_infer(x: Spec, shape: Shape) -> Spec:
    if broadcast((x.shape, shape)) != shape:
        raise ShapeError(f"broadcast_to: {x.shape} does not broadcast to {shape}")
    return Spec(shape, x.dtype)


def sum_to(g: Tensor, shape: Shape) -> Tensor:
    """Undo a broadcast: sum `g` over the axes along which `shape` was stretched."""
    if same_shape(g.shape, shape):
        return g
    lead = g.ndim - len(shape)
    axis = tuple(i for i, d in enumerate(g.shape) if i < lead or (d != 1 and shape[i - lead] == 1))
    total = OPS["reduce_sum"]  # by its name: sums and broadcasts are each other's gradients
    return reshape(apply(total, g, axis=axis) if axis else g, shape=shape)


BROADCAST_TO = Op(
    "broadcast_to",
    Kind.LAYOUT,
    _broadcast_infer,
    lambda x, shape: np.broadcast_to(x, shape),
    lambda g, _y, _x, shape: (sum_to(g, _x.shape),),
    moves=lambda old, strides, shape: broadcast_strides(old, strides, shape),
    meaning="`x` repeated along axes that it lacks in front and along those where it has length 1.",
)

broadcast_to = declare(BROADCAST_TO)

#: ``(start, stop, step)`` along each axis, already clipped; a negative step counts down, `stop` -1 there
#: means "to the end".
Window = tuple[tuple[int, int, int], ...]


def slices(window: Window) -> tuple[slice, ...]:
    """Return `window` as Python slices."""
    return tuple(slice(a, None if step < 0 and b < 0 else b, step) for a, b, step in window)


def are_apart(a: Window, b: Window) -> bool:
    """Return whether no element is in both windows."""
    pairs = list(zip(a, b, strict=True))
    forwards = all(step > 0 for pair in pairs for *_, step in pair)
    return forwards and any(stop <= begin or end <= start for (start, stop, _), (begin, end, _) in pairs)


def _slice_infer(x: Spec, window: Window) -> Spec:
    if len(window) != x.ndim:
        raise ShapeError(f"slice: {len(window)} ranges for {x.ndim} axes")
    return Spec(tuple(count(a, b, step) for a, b, step in window), x.dtype)


def _sliced(_: Shape, strides: Shape, window: Window) -> Shape | None:
    if not window:  # NumPy makes a number
        return None
    return tuple(stride * step for stride, (*_ends, step) in zip(strides, window, strict=True))


SLICE = Op(
    "slice",
    Kind.LAYOUT,
    _slice_infer,
    lambda x, window: x[slices(window)],
    lambda g, _y, _x, window: (unslice(g, shape=_x.shape, window=window),),
    moves=_sliced,
    meaning="The elements of `x` in `window`: ``(start, stop, step)`` for each axis, clipped already; a "
    "negative step counts down, and `stop` -1 means to the end there.",
)

slice_ = declare(SLICE)


def cut_along(x: Tensor, axis: int, start: int, stop: int) -> Tensor:
    """Return the part of `x` from `start` to `stop` along `axis`."""
    return slice_(
        x, window=tuple((start, stop, 1) if i == axis else (0, d, 1) for i, d in enumerate(x.shape))
    )


def reverse(x: Tensor, axis: Shape) -> Tensor:
    """Return `x` with the elements along every axis in `axis` in the opposite order."""
    window = tuple((d - 1, -1, -1) if i in axis and d else (0, d, 1) for i, d in enumerate(x.shape))
    return slice_(x, window=window)


def _unslice_eager(x: Any, shape: Shape, window: Window) -> Any:
    # NumPy's `zeros` takes memory that is zero and untouched, where its `zeros_like` writes every element.
    host = isinstance(x, np.ndarray)
    out = np.zeros(shape, x.dtype) if host else np.zeros_like(x, shape=shape, order="C")
    out[slices(window)] = x
    return out


unslice = declare(
    Op(
        "unslice",
        Kind.LAYOUT,
        lambda x, shape, window: Spec(shape, x.dtype),
        _unslice_eager,
        lambda g, _y, _x, shape, window: (slice_(g, window=window),),
        meaning="Zeros of `shape` with `x` in `window`; the transpose of ``slice``, and padding.",
    )
)


def _concat_infer(*xs: Spec, axis: int) -> Spec:
    first = xs[0].shape
    rest = [(*x.shape[:axis], *x.shape[axis + 1 :]) for x in xs]
    if any(r != rest[0] or x.ndim != len(first) for r, x in zip(rest, xs, strict=True)):
        raise ShapeError(f"concat: {' and '.join(str(x.shape) for x in xs)} differ beside axis {axis}")
    return Spec((*first[:axis], sum(x.shape[axis] for x in xs), *first[axis + 1 :]), xs[0].dtype)


def _concat_parts(*shapes: Shape, axis: int) -> list[Window]:
    windows, start = [], 0
    for shape in shapes:
        stop = start + shape[axis]
        windows.append(tuple((start, stop, 1) if i == axis else (0, d, 1) for i, d in enumerate(shape)))
        start = stop
    return windows


def _concat_grad(g: Tensor, _y: Spec, *_xs: Spec, axis: int) -> tuple[Tensor, ...]:
    return tuple(slice_(g, window=window) for window in _concat_parts(*(x.shape for x in _xs), axis=axis))


concat = declare(
    Op(
        "concat",
        Kind.LAYOUT,
        _concat_infer,
        eager_concat,
        _concat_grad,
        promote=ANY.promote,
        parts=_concat_parts,
        meaning="`xs` one after the other along `axis`.",
    )
)
