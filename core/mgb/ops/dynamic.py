"""Windows whose starts are values: what ``x[i]`` and ``x[i : i + 8]`` are where a trace follows ``i``.

Each op is one of those with fixed windows, takes the starts along `axes` as further operands, and has a
`window` that counts from them: ``dynamic_slice(x, i, axes=(0,), window=((0, 8, 1), ...))`` is
``slice(x, window=((i, i + 8, 1), ...))``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..ir import Kind, Op, Spec, dtypes
from ..ir.sizes import count
from ..tensor import Tensor
from ..tensor.apply import literal
from .creation import zeros
from .declare import declare, op_of
from .index import index_get, index_set, slice_set
from .layout import Shape, Window, broadcast_to, slice_, slices, unslice
from .primitives import add, where

Axes = tuple[int, ...]


def shifted(window: Window, axes: Axes, starts: Sequence[Any]) -> Window:
    """Return `window`, along `axes` counted from `starts`, as it is counted from 0."""
    at = dict(zip(axes, map(int, starts), strict=True))
    return tuple([(a + at.get(i, 0), b + at.get(i, 0), step) for i, (a, b, step) in enumerate(window)])


def _starts_in_full(arrays: int) -> Any:
    """Return dtypes that store a value in that of its target; starts are int64."""

    def promote(operands: Sequence[dtypes.Operand]) -> Sequence[np.dtype[Any]]:
        first = dtypes.common(operands[:1])
        return [first] * arrays + [dtypes.int64] * (len(operands) - arrays)

    return promote


def _fixed_part(window: Window, axes: Axes, shape: Sequence[Any]) -> Window:
    return tuple([(0, shape[i], 1) if i in axes else w for i, w in enumerate(window)])


def _places(start: Tensor, chosen: tuple[int, int, int]) -> Tensor:
    return add(literal(np.arange(*chosen, dtype=np.int64), device=start.device), start)


def _slice(x: Any, *starts: Any, axes: Axes, window: Window) -> Any:
    return x[slices(shifted(window, axes, starts))].copy()


def _slice_in_words(x: Tensor, *starts: Tensor, axes: Axes, window: Window) -> Tensor:
    out = slice_(x, window=_fixed_part(window, axes, x.shape))
    for axis, start in zip(axes, starts, strict=True):
        out = index_get(out, _places(start, window[axis]), axes=(axis,), place=axis)
    return out


def _slice_grad(
    g: Tensor, _y: Spec, _x: Spec, *starts: Tensor, axes: Axes, window: Window
) -> tuple[Tensor | None, ...]:
    grad = dynamic_unslice(g, *starts, axes=axes, shape=_x.shape, window=window)
    return (grad, *(None for _ in starts))


dynamic_slice = declare(
    Op(
        "dynamic_slice",
        Kind.OPAQUE,
        lambda x, *starts, axes, window: Spec(tuple([count(*w) for w in window]), x.dtype),
        _slice,
        _slice_grad,
        body=_slice_in_words,
        promote=_starts_in_full(1),
        cost=lambda _node: 0,
        picks=True,
        keeps_bits=True,
        meaning="As ``slice``, in a window that counts from the `starts` along `axes`; it lies within `x`.",
    )
)


def _unslice(x: Any, *starts: Any, axes: Axes, shape: Shape, window: Window) -> Any:
    eager = op_of(unslice).eager
    assert eager is not None
    return eager(x, shape=shape, window=shifted(window, axes, starts))


def _unslice_in_words(x: Tensor, *starts: Tensor, axes: Axes, shape: Shape, window: Window) -> Tensor:
    for axis, start in zip(axes, starts, strict=True):
        wide = tuple([shape[axis] if i == axis else d for i, d in enumerate(x.shape)])
        places = _places(start, window[axis])
        x = index_set(zeros(wide, x.dtype, x.device), x, places, axes=(axis,), place=axis)
    return unslice(x, shape=shape, window=_fixed_part(window, axes, shape))


def _unslice_grad(
    g: Tensor, _y: Spec, _x: Spec, *starts: Tensor, axes: Axes, shape: Shape, window: Window
) -> tuple[Tensor | None, ...]:
    return (dynamic_slice(g, *starts, axes=axes, window=window), *(None for _ in starts))


dynamic_unslice = declare(
    Op(
        "dynamic_unslice",
        Kind.OPAQUE,
        lambda x, *starts, axes, shape, window: Spec(shape, x.dtype),
        _unslice,
        _unslice_grad,
        body=_unslice_in_words,
        promote=_starts_in_full(1),
        cost=lambda _node: 0,
        keeps_bits=True,
        meaning="As ``unslice``, in a window that counts from the `starts` along `axes`; it lies within "
        "`shape`.",
    )
)


def _set(x: Any, value: Any, *starts: Any, axes: Axes, window: Window) -> Any:
    out = x.copy()
    out[slices(shifted(window, axes, starts))] = value
    return out


def _set_in_words(x: Tensor, value: Tensor, *starts: Tensor, axes: Axes, window: Window) -> Tensor:
    counts = tuple([count(*w) for w in window])
    placed, inside = (
        dynamic_unslice(broadcast_to(v, shape=counts), *starts, axes=axes, shape=x.shape, window=window)
        for v in (value, literal(True, device=x.device))
    )
    return where(inside, placed, x)


def _set_grad(
    g: Tensor, _y: Spec, _x: Spec, _value: Spec, *starts: Tensor, axes: Axes, window: Window
) -> tuple[Tensor | None, ...]:
    kept = dynamic_slice_set(g, 0, *starts, axes=axes, window=window)
    return (kept, dynamic_slice(g, *starts, axes=axes, window=window), *(None for _ in starts))


def _set_infer(x: Spec, value: Spec, *starts: Spec, axes: Axes, window: Window) -> Spec:
    return op_of(slice_set).infer(x, value, window=window)


dynamic_slice_set = declare(
    Op(
        "dynamic_slice_set",
        Kind.OPAQUE,
        _set_infer,
        _set,
        _set_grad,
        body=_set_in_words,
        promote=_starts_in_full(2),
        cost=lambda _node: 0,
        keeps_bits=True,
        meaning="As ``slice_set``, in a window that counts from the `starts` along `axes`; it lies within "
        "`x`.",
    )
)

#: What each op is where its starts are known.
FIXED: Mapping[Op, Op] = {
    op_of(dynamic): op_of(fixed)
    for dynamic, fixed in (
        (dynamic_slice, slice_),
        (dynamic_unslice, unslice),
        (dynamic_slice_set, slice_set),
    )
}


def as_fixed(params: Mapping[str, Any], starts: Sequence[Any]) -> dict[str, Any]:
    """Return the parameters of the op with a fixed window that is one of these for `starts`."""
    rest = {name: value for name, value in params.items() if name != "axes"}
    return rest | {"window": shifted(params["window"], params["axes"], starts)}
