"""NumPy's functions that turn, cut, join and choose, of a few lines of ours; the arguments are NumPy's."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..functional import math, matrices, rearrange, tensor
from ..ops import elementwise as e
from ..ops.creation import is_single
from ..ops.declare import broadcast_shapes, normalize_axis
from ..ops.layout import reshape, reverse
from ..ops.methods import flatten
from ..ops.primitives import eq, floor, logical_and, where
from ..tensor import Tensor
from ..tensor.apply import tensors
from . import compositions as c

__all__ = [
    "append", "apply_along_axis", "apply_over_axes", "argpartition", "array_split", "block",
    "broadcast_arrays", "choose", "column_stack", "compress", "delete", "diagflat", "dsplit", "ediff1d",
    "extract", "fix", "fliplr", "flipud", "hsplit", "inner", "insert", "isneginf", "isposinf",
    "lexsort", "partition", "piecewise", "ptp", "ravel_multi_index", "resize", "rollaxis", "rot90",
    "select", "trim_zeros", "unravel_index", "unwrap", "vander", "vsplit",
]  # fmt: skip


# turned and cut


def rot90(m: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Tensor:
    """Rotate `k` times by a quarter, from the first of `axes` towards the second."""
    m = c.as_tensor(m)
    first, second = (normalize_axis("rot90", axis, m.ndim)[0] for axis in axes)
    if first == second:
        raise ValueError(f"rot90: axes must be two different axes, got {tuple(axes)}")
    if k % 4 == 2:
        return reverse(m, (first, second))
    if k % 4 == 0:
        return tensor.copy(m)
    turned = reverse(m, (second,)) if k % 4 == 1 else reverse(m, (first,))
    return tensor.swapaxes(turned, first, second)


def fliplr(m: Any) -> Tensor:
    """Return the columns the other way round."""
    return rearrange.flip(c.as_tensor(m), 1)


def flipud(m: Any) -> Tensor:
    """Return the rows the other way round."""
    return rearrange.flip(c.as_tensor(m), 0)


def rollaxis(a: Any, axis: int, start: int = 0) -> Tensor:
    """Move `axis` before the axis `start`."""
    a = c.as_tensor(a)
    (place,) = normalize_axis("rollaxis", axis, a.ndim)
    if not -a.ndim <= start <= a.ndim:
        raise ShapeError(f"rollaxis: start = {start} is out of range (valid: {-a.ndim}..{a.ndim})")
    start = start + a.ndim if start < 0 else start
    return tensor.moveaxis(a, place, start - (place < start))


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """Split into parts whose lengths differ by 1 at most, the longer ones first, or at the indices."""
    ary = c.as_tensor(ary)
    (place,) = normalize_axis("array_split", axis, ary.ndim)
    length = int(ary.shape[place])
    if not is_single(indices_or_sections) or operator.index(indices_or_sections) <= length:
        return tensor.split(ary, indices_or_sections, place)
    some = tensor.split(ary, length, place) if length else []
    empty = ary[(slice(None),) * place + (slice(0, 0),)]
    return some + [empty] * (operator.index(indices_or_sections) - length)


def split_along(axis: int) -> Callable[..., list[Tensor]]:
    """Make ``np.vsplit`` and the like."""

    def parts(ary: Any, indices_or_sections: Any) -> list[Tensor]:
        ary = c.as_tensor(ary)
        return c.split(ary, indices_or_sections, 0 if axis == 1 and ary.ndim == 1 else axis)

    return parts


vsplit, hsplit, dsplit = split_along(0), split_along(1), split_along(2)


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Tensor:
    """Return the differences of all elements in a row, between what is put at the ends."""
    rows = c.diff(flatten(c.as_tensor(ary)))
    ends = [None if x is None else flatten(c.as_tensor(x)).astype(rows.dtype) for x in (to_begin, to_end)]
    return tensor.concat([part for part in (ends[0], rows, ends[1]) if part is not None])


def trim_zeros(filt: Any, trim: str = "fb") -> Tensor:
    """Return a vector without the zeros at its ends. Reads the values."""
    row: Tensor = c.as_tensor(filt)
    (places,) = np.nonzero(row.numpy())
    if not places.size:
        return row[:0]
    start = int(places[0]) if "f" in trim.lower() else 0
    return row[start : int(places[-1]) + 1 if "b" in trim.lower() else None]


# joined


def column_stack(tup: Sequence[Any]) -> Tensor:
    """Put arrays side by side; a vector is a column."""
    parts = map(c.as_tensor, tup)
    return tensor.concat([reshape(x, shape=(x.size, 1)) if x.ndim < 2 else x for x in parts], 1)


def append(arr: Any, values: Any, axis: int | None = None) -> Tensor:
    """Return `values` behind `arr`; without an axis, both in a row."""
    return c.concatenate(tensors("append", (arr, values)), axis)


def block(arrays: Any) -> Tensor:
    """Assemble blocks in nested lists, the innermost side by side along the last axis."""

    def depth(x: Any) -> int:
        return 1 + max(map(depth, x)) if isinstance(x, list) else 0

    def parts(x: Any) -> list[Tensor]:
        return [one for part in x for one in parts(part)] if isinstance(x, list) else [c.as_tensor(x)]

    deep = depth(arrays)
    ndim = max(deep, *(x.ndim for x in parts(arrays)))

    def joined(x: Any, left: int) -> Tensor:
        if not isinstance(x, list):
            one = c.as_tensor(x)
            return reshape(one, shape=(*(1,) * (ndim - one.ndim), *one.shape))
        return tensor.concat([joined(part, left - 1) for part in x], ndim - left)

    return joined(arrays, deep)


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Tensor:
    """Return `values` before the places `obj`, which are those in `arr`."""
    arr, values = tensors("insert", (arr, values))
    arr, place = (flatten(arr), 0) if axis is None else (arr, normalize_axis("insert", axis, arr.ndim)[0])
    length = int(arr.shape[place])
    places = np.arange(length)[obj] if isinstance(obj, slice) else np.asarray(obj)
    places = places.nonzero()[0] if places.dtype == bool else places
    count = places.size
    if count == 1:
        values = reshape(values, shape=(*(1,) * (arr.ndim - values.ndim), *values.shape))
        values = tensor.moveaxis(values, 0, place) if not places.ndim else values
        count = int(values.shape[place])
    marks = np.insert(np.arange(length), places.item() if places.size == 1 else places, -1 - np.arange(count))
    shape = tuple(count if i == place else d for i, d in enumerate(arr.shape))
    both = tensor.concat([tensor.broadcast_to(values.astype(arr.dtype), shape), arr], place)
    return tensor.take(both, np.where(marks < 0, -1 - marks, marks + count), place)


def delete(arr: Any, obj: Any, axis: int | None = None) -> Tensor:
    """Remove the elements at the positions `obj`: an index, a slice, indices or a mask."""
    arr = c.as_tensor(arr)
    arr, place = (flatten(arr), 0) if axis is None else (arr, normalize_axis("delete", axis, arr.ndim)[0])
    kept = np.delete(np.arange(int(arr.shape[place])), np.asarray(obj) if isinstance(obj, Tensor) else obj)
    return tensor.take(arr, kept, place)


def resize(a: Any, new_shape: Any) -> Tensor:
    """Return the elements in a row, again and again, under another shape."""
    flat = flatten(c.as_tensor(a))
    shape = (new_shape,) if isinstance(new_shape, int) else tuple(new_shape)
    if not flat.size:
        return tensor.zeros(shape, flat.dtype, flat.device)
    return reshape(tensor.take(flat, np.arange(int(np.prod(shape))) % flat.size, 0), shape=shape)


def broadcast_arrays(*args: Any) -> tuple[Tensor, ...]:
    """Return each as large as all of them together."""
    given = tensors("broadcast_arrays", args)
    shape = broadcast_shapes("broadcast_arrays", *(x.shape for x in given))
    return tuple(tensor.broadcast_to(x, shape) for x in given)


def diagflat(v: Any, k: int = 0) -> Tensor:
    """Return a matrix with all elements of `v` on its `k`-th diagonal."""
    return matrices.diag(flatten(c.as_tensor(v)), k)


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Tensor:
    """Return the powers of the elements of a vector, in rows."""
    x = c.as_tensor(x)
    count = int(x.shape[0]) if N is None else N
    columns = [tensor.ones_like(x)]
    for _ in range(count - 1):
        columns.append(columns[-1] * x)
    columns = columns[:count]
    return tensor.stack(columns if increasing else columns[::-1], 1) if count else tensor.zeros((x.size, 0))


# chosen


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Tensor:
    """Select from the choices that of the first condition that is true."""
    if len(condlist) != len(choicelist) or not condlist:
        raise ValueError(
            f"select: condlist and choicelist must have the same length, at least 1, got {len(condlist)} and "
            f"{len(choicelist)}"
        )
    out = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        out = where(condition, choice, out)
    return c.as_tensor(out)


def choose(a: Any, choices: Any, *, mode: str = "raise") -> Tensor:
    """Pick each element from the choice numbered in `a`; `mode` handles other numbers."""
    a = c.as_tensor(a)
    given = list(choices) if not isinstance(choices, Tensor) else [choices[i] for i in range(len(choices))]
    if mode == "wrap":
        a = a % len(given)
    elif mode == "clip":
        a = c.clip(a, 0, len(given) - 1)
    elif bool(math.any((a < 0) | (a >= len(given)))):
        raise ValueError(
            f"choose: an index is out of range for {len(given)} choices: give mode='wrap' or 'clip'"
        )
    return select([eq(a, i) for i in range(len(given))], given)


def compress(condition: Any, a: Any, axis: int | None = None) -> Tensor:
    """Return the elements where the vector `condition` is true. Reads the condition."""
    (places,) = np.nonzero(np.asarray(condition))
    return tensor.take(flatten(c.as_tensor(a)) if axis is None else c.as_tensor(a), places, axis or 0)


def extract(condition: Any, arr: Any) -> Tensor:
    """Return the elements where the condition is true. Reads the condition."""
    return compress(flatten(c.as_tensor(condition)), arr)


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Tensor:
    """Apply the function, or take the number, of the last condition that is true; else the last one.

    Examples
    --------
    >>> np.piecewise(mgb.tensor([-1.0, 2.0]), [mgb.tensor([True, False])], [lambda x: -x, 5.0])
    Tensor([1., 5.], device=xpux:0)
    """
    x = c.as_tensor(x)
    conditions = condlist if isinstance(condlist, list | tuple) else [condlist]
    if np.ndim(conditions[0]) == 0 and x.ndim:
        conditions = [np.asarray(conditions)]
    if len(funclist) not in (len(conditions), len(conditions) + 1):
        raise ValueError(
            f"piecewise: {len(conditions)} conditions need as many functions or one more, got {len(funclist)}"
        )
    found = [f(x, *args, **kw) if callable(f) else f for f in funclist]
    out = found[-1] if len(found) > len(conditions) else 0
    for condition, value in zip(conditions, found):
        out = where(condition, value, out)
    return tensor.broadcast_to(c.as_tensor(out).astype(x.dtype), x.shape)


# in order


def partition(a: Any, kth: Any, axis: int | None = -1) -> Tensor:
    """Sort like `sort`, which puts every element at its place."""
    return c.sort(c.as_tensor(a), axis)


def argpartition(a: Any, kth: Any, axis: int | None = -1) -> Tensor:
    """Return `argsort`, which puts every element at its place."""
    return c.argsort(c.as_tensor(a), axis)


def lexsort(keys: Any, axis: int = -1) -> Tensor:
    """Return int32 indices that sort by the last of the keys, then by those before it."""
    given = [c.as_tensor(k) for k in keys]
    order = c.argsort(given[0], axis)
    for key in given[1:]:
        order = tensor.take_along_axis(order, c.argsort(tensor.take_along_axis(key, order, axis), axis), axis)
    return order


def unravel_index(indices: Any, shape: Sequence[int]) -> tuple[Tensor, ...]:
    """Convert flat indices to indices along each axis of `shape`."""
    rest, found = c.as_tensor(indices), []
    for length in reversed(tuple(shape)):
        found.append(rest % length)
        rest = rest // length
    return tuple(reversed(found))


def ravel_multi_index(multi_index: Sequence[Any], dims: Sequence[int], mode: str = "raise") -> Tensor:
    """Convert indices along each axis of `dims` to flat indices; `mode` handles those out of range."""
    out: Any = 0
    for index, length in zip(multi_index, dims, strict=True):
        place = c.as_tensor(index)
        if mode == "wrap":
            place = place % length
        elif mode == "clip":
            place = c.clip(place, 0, length - 1)
        elif bool(math.any((place < 0) | (place >= length))):
            raise ValueError(
                f"ravel_multi_index: an index is out of range for length {length}: give mode='wrap' or 'clip'"
            )
        out = out * length + place
    return c.as_tensor(out)


# element by element


def unwrap(p: Any, discont: float | None = None, axis: int = -1, *, period: float = 2 * np.pi) -> Tensor:
    """Remove the jumps of angles: whole periods are taken off a difference above `discont`."""
    p = c.as_tensor(p)
    (place,) = normalize_axis("unwrap", axis, p.ndim)
    steps = c.diff(p, axis=place)
    half = period / 2
    wrapped = (steps + half) - period * floor((steps + half) / period) - half
    wrapped = where(logical_and(eq(wrapped, -half), steps > 0), half, wrapped)
    change = where(e.abs(steps) < (half if discont is None else discont), 0, wrapped - steps)
    first = tensor.zeros_like(p[(slice(None),) * place + (slice(0, 1),)])
    smooth: Tensor = p + c.cumsum(tensor.concat([first, change], place), place)
    return smooth


def fix(x: Any) -> Tensor:
    """Return the next whole number towards 0; integers stay as they are."""
    x = c.as_tensor(x)
    return +x if x.dtype.kind in "biu" else e.trunc(x)


def infinite(sign: int) -> Callable[[Any], Tensor]:
    """Make ``np.isposinf`` or ``np.isneginf``."""

    def found(x: Any) -> Tensor:
        return eq(c.as_tensor(x), sign * np.inf)

    return found


isposinf, isneginf = infinite(1), infinite(-1)


def ptp(a: Any, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """Return the greatest less the least."""
    a = c.as_tensor(a)
    spread: Tensor = math.max(a, axis, keepdims) - math.min(a, axis, keepdims)
    return spread


def inner(a: Any, b: Any) -> Tensor:
    """Return the sum of products over the last axes."""
    a, b = tensors("inner", (a, b))
    if not a.ndim or not b.ndim:
        scaled: Tensor = a * b
        return scaled
    return c.tensordot(a, b, ((a.ndim - 1,), (b.ndim - 1,)))


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Tensor:
    """Apply `func1d` to each vector along `axis`, one after the other: `mgb.vmap` does all at once."""
    arr = c.as_tensor(arr)
    (place,) = normalize_axis("apply_along_axis", axis, arr.ndim)
    last = tensor.moveaxis(arr, place, -1)
    rest = tuple(map(int, last.shape[:-1]))
    found = [c.as_tensor(func1d(last[index], *args, **kwargs)) for index in np.ndindex(rest)]
    out = reshape(tensor.stack(found, 0), shape=(*rest, *found[0].shape))
    ends = range(len(rest), out.ndim)
    return tensor.moveaxis(out, tuple(ends), tuple(place + i for i in range(len(ends)))) if ends else out


def apply_over_axes(func: Callable[..., Any], a: Any, axes: Any) -> Tensor:
    """Apply ``func(a, axis)`` over one of the axes after the other, which stay with length 1."""
    out = c.as_tensor(a)
    for axis in (axes,) if isinstance(axes, int) else axes:
        found = c.as_tensor(func(out, axis))
        out = found if found.ndim == out.ndim else tensor.expand_dims(found, axis)
    return out
