"""``x[key]`` and ``x[key] = value`` with NumPy's meaning, in three moves: window, arrays, reshape."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import ShapeError
from ..ir import dtypes
from ..ir.scalars import SCALARS, Size, Whole, fixed
from ..ir.sizes import count, indices
from ..tensor import Tensor
from ..tensor.apply import literal, number
from .declare import broadcast_shapes
from .dynamic import dynamic_slice, dynamic_slice_set
from .index import index_get, index_set, slice_set
from .layout import Window, broadcast_to, reshape, slice_
from .primitives import cast, where


class Plan(NamedTuple):
    """A key, worked out for one shape.

    Attributes
    ----------
    wide : tuple of int or None
        The shape that is indexed, where a single bool in the key indexes an axis of its own.
    window : Window
        A range along each of its axes: what slices and integers say.
    starts : dict
        By their axes the starts of ranges that a trace follows as numbers; their ranges count from there.
    axes, arrays : tuple
        The integer arrays and the axes that they index, ascending.
    place : int
        Where the arrays' own axes stand among the axes that are left.
    inner : tuple of int
        The shape after window and arrays; integers still have their axes, with length 1, None has none yet.
    shape : tuple of int
        The shape of ``x[key]``.
    slices, reshapes : bool
        Is the window more than whole axes, and has ``x[key]`` other axes than `inner`? The form of the key
        says so, not the lengths: a trace must do the same ops for every shape.
    """

    wide: tuple[int, ...] | None
    window: Window
    starts: dict[int, Whole]
    axes: tuple[int, ...]
    arrays: tuple[Tensor, ...]
    place: int
    inner: tuple[int, ...]
    shape: tuple[int, ...]
    slices: bool
    reshapes: bool


def getitem(x: Tensor, key: Any) -> Tensor:
    """Return ``x[key]``.

    Parameters
    ----------
    x : Tensor
        What is indexed.
    key : int, bool, slice, None, Ellipsis, integer or boolean array-like, or a tuple of these
        A boolean array makes a shape that depends on its values: inside a trace they are read. In a tuple, a
        tuple is an array. A single bool is an axis of length 1, or 0, as in NumPy.

    Raises
    ------
    IndexError
        Too many indices, an index out of range, or something that is not an index.
    """
    plan = _plan(x, key)
    out = x if plan.wide is None else reshape(x, shape=plan.wide)
    if plan.slices:
        out = _sliced(out, plan)
    if plan.arrays:
        out = index_get(out, *plan.arrays, axes=plan.axes, place=plan.place)
    return reshape(out, shape=plan.shape) if out is x or plan.reshapes else out


def updated(x: Tensor, key: Any, value: Any) -> Tensor:
    """Return `x` with ``x[key] = value`` done: a new Tensor of the same shape and dtype.

    Raises
    ------
    IndexError
        As `getitem`.
    ShapeError
        `value` does not broadcast to the shape of ``x[key]``.
    """
    if type(value) in dtypes.WEAK or (type(value) in SCALARS and type(value.value) in dtypes.WEAK):
        value = number("x[key] = value", value, x.dtype, x.device)
    elif not isinstance(value, Tensor):
        value = literal(value, x.dtype, x.device)
    if value.dtype != x.dtype:
        value = cast(value, dtype=x.dtype)
    mask = _mask_alone(x, key, value)
    if mask is not None:
        return where(mask, value, x)
    plan = _plan(x, key)
    value = _fitted(value, plan)
    if plan.wide is None:
        return _written(x, value, plan)
    return reshape(_written(reshape(x, shape=plan.wide), value, plan), shape=x.shape)


def _written(x: Tensor, value: Tensor, plan: Plan) -> Tensor:
    """Return `x`, of the shape that is indexed, with `value`, which has that of the place."""
    if not plan.arrays:  # `x` is not `value`
        return _slice_set(x, value, plan) if plan.slices else +value
    if not plan.slices:
        return index_set(x, value, *plan.arrays, axes=plan.axes, place=plan.place)
    part = index_set(_sliced(x, plan), value, *plan.arrays, axes=plan.axes, place=plan.place)
    return _slice_set(x, part, plan)


def _sliced(x: Tensor, plan: Plan) -> Tensor:
    if not plan.starts:
        return slice_(x, window=plan.window)
    return dynamic_slice(x, *plan.starts.values(), axes=tuple(plan.starts), window=plan.window)


def _slice_set(x: Tensor, value: Tensor, plan: Plan) -> Tensor:
    if not plan.starts:
        return slice_set(x, value, window=plan.window)
    return dynamic_slice_set(x, value, *plan.starts.values(), axes=tuple(plan.starts), window=plan.window)


def nonzero(condition: Tensor) -> tuple[Tensor, ...]:
    """Return the indices of what is not 0, a Tensor for each axis; inside a trace the values are read.

    They are int32, along an axis of more than 2**31 elements int64.

    Examples
    --------
    >>> [part.tolist() for part in F.nonzero(mgb.tensor([0.0, 5.0, 7.0]))]
    [[1, 2]]
    """
    if condition._session is not None:
        condition._session.shapes_follow(condition)
    found = condition._array().nonzero()
    lengths = condition.shape or (1,)
    kinds = map(dtypes.of_places, lengths)
    return tuple(Tensor(i, kind, condition.device) for i, kind in zip(found, kinds, strict=True))


def _mask_alone(x: Tensor, key: Any, value: Tensor) -> Tensor | None:
    """Return a mask that can choose between `value` and `x` without a look at its values."""
    mask = None if isinstance(key, tuple) else _index_array(x, key)
    if mask is None or mask.dtype != dtypes.bool_ or mask.shape != x.shape[: mask.ndim]:
        return None
    rest = x.shape[mask.ndim :]
    if value.ndim > len(rest) or broadcast_shapes("x[mask] = value", value.shape, rest) != rest:
        return None
    return reshape(mask, shape=(*mask.shape, *(1 for _ in rest))) if rest else mask


def _fitted(value: Tensor, plan: Plan) -> Tensor:
    """Return `value` in the shape that the window or the arrays leave."""
    extra = value.ndim - len(plan.shape)
    if extra > 0 and value.shape[:extra] == (1,) * extra:
        value = reshape(value, shape=value.shape[extra:])
    try:
        value = broadcast_to(value, shape=plan.shape)
    except ShapeError:
        places = f"the {math.prod(plan.shape)} places of x[key], of shape {plan.shape}"
        message = f"x[key] = value: a value of shape {value.shape} does not broadcast to {places}"
        raise ShapeError(message) from None
    return reshape(value, shape=plan.inner) if plan.reshapes else value


def _plan(x: Tensor, key: Any) -> Plan:
    window: list[tuple[int, int, int]] = []
    inner: list[int] = []  # its lengths
    arrays: dict[int, Tensor] = {}
    starts: dict[int, Whole] = {}
    singles: list[tuple[int, int]] = []  # for each integer or array: its position in the key, its axis
    lengths: list[tuple[int, int]] = []  # for each axis of the result that no array makes: position, length
    slices = reshapes = False
    given, wide = x.shape, None
    for position, item in _items(x, key):
        axis = len(window)
        if type(item) is bool:
            given = wide = (*given[:axis], 1, *given[axis:])
            item = literal(np.zeros(int(item), np.int32), device=x.device)
        if item is None:
            reshapes = True
            lengths.append((position, 1))
        elif isinstance(item, slice):
            bounded = item.start is not None or item.stop is not None or item.step is not None
            slices = slices or bounded
            chosen, length = _range(item, given[axis])
            if type(chosen[0]) is Whole:
                starts[axis], chosen = chosen[0], (0, length * chosen[2], chosen[2])
            window.append(chosen)
            inner.append(length)
            lengths.append((position, length))
        elif isinstance(item, Tensor):
            arrays[axis] = item
            window.append((0, given[axis], 1))
            inner.append(given[axis])
            singles.append((position, axis))
        else:
            slices = reshapes = True
            start = _checked(item, axis, given[axis])
            if type(start) is Whole:
                starts[axis], start = start, 0
            window.append((start, start + 1, 1))
            inner.append(1)
            singles.append((position, axis))
    if not arrays:
        shape = tuple([d for _, d in lengths])
        return Plan(wide, tuple(window), starts, (), (), 0, tuple(inner), shape, slices, reshapes)
    place, left, shape = _with_arrays(inner, arrays, singles, lengths)
    found = tuple(arrays), tuple(arrays.values())
    return Plan(wide, tuple(window), starts, *found, place, left, shape, slices, reshapes)


def _with_arrays(
    inner: Sequence[int],
    arrays: dict[int, Tensor],
    singles: Sequence[tuple[int, int]],
    lengths: Sequence[tuple[int, int]],
) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Return `place`, `inner` and `shape` of a Plan with `arrays`.

    NumPy's rule: the axes of arrays side by side stand in their place, those of others in front.
    """
    together = singles[-1][0] - singles[0][0] + 1 == len({p for p, _ in singles})
    place = sum(i not in arrays for i in range(singles[0][1])) if together else 0
    before = sum(p < singles[0][0] for p, _ in lengths) if together else 0
    made = broadcast_shapes("x[key]", *(a.shape for a in arrays.values()))
    left = [d for i, d in enumerate(inner) if i not in arrays]
    shape = [d for _, d in lengths]
    return place, (*left[:place], *made, *left[place:]), (*shape[:before], *made, *shape[before:])


def _items(x: Tensor, key: Any) -> Iterator[tuple[int, Any]]:
    """Yield the parts of `key` with their positions; each but None is for one axis, masks become integers."""
    parts = [_part(x, p) for p in (key if isinstance(key, tuple) else (key,))]
    taken = sum(_axes_taken(p) for p in parts)
    if taken > x.ndim:
        raise IndexError(f"too many indices for tensor: it has {x.ndim} axes, but {taken} were indexed")
    dots = sum(p is Ellipsis for p in parts)
    if dots > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    axis = 0
    for position, part in enumerate(parts if dots else [*parts, Ellipsis]):
        if part is Ellipsis:
            yield from ((position, slice(None)) for _ in range(x.ndim - taken))
            axis += x.ndim - taken
        elif isinstance(part, Tensor) and part.dtype == dtypes.bool_:
            yield from ((position, index) for index in _positions(x, part, axis))
            axis += part.ndim
        else:
            yield position, part
            axis += _axes_taken(part)


def _part(x: Tensor, part: Any) -> Any:
    """Return one part of a key: None, Ellipsis, a slice, an int or a Tensor."""
    if part is None or part is Ellipsis or isinstance(part, slice):
        return part
    if type(part) is int or type(part) is Size or type(part) is Whole:
        return part
    if isinstance(part, Tensor):
        found = _index_array(x, part)
        return bool(part) if part.dtype == dtypes.bool_ and not part.ndim else found
    if type(part) is bool or isinstance(part, np.bool_) or _is_mask_of_one(part):
        return bool(part)
    array = _index_array(x, part)
    if array is not None:
        return array
    try:
        return operator.index(part)
    except TypeError:
        kind = type(part).__name__
        raise IndexError(
            f"{kind} is not an index: use integers, slices, None, '...', integer or boolean arrays"
        ) from None


def _is_mask_of_one(part: Any) -> bool:
    return isinstance(part, np.ndarray) and not part.ndim and part.dtype == np.bool_


def _index_array(x: Tensor, part: Any) -> Tensor | None:
    """Return `part` as a Tensor of integers or bools when it is an array-like, else None."""
    if isinstance(part, (list, range, tuple)):
        part = np.asarray(part) if len(part) else np.zeros(0, np.int32)
    if isinstance(part, np.ndarray):
        part = literal(part, device=x.device)
    if not isinstance(part, Tensor):
        return None
    if part.dtype != dtypes.bool_ and part.dtype not in dtypes.INTEGERS:
        raise IndexError(f"arrays used as indices must be of an integer or boolean type, got {part.dtype}")
    return part


def _axes_taken(part: Any) -> int:
    if part is None or part is Ellipsis or type(part) is bool:
        return 0
    return part.ndim if isinstance(part, Tensor) and part.dtype == dtypes.bool_ else 1


def _positions(x: Tensor, mask: Tensor, axis: int) -> tuple[Tensor, ...]:
    """Return the integer arrays that a mask stands for."""
    for i, (d, length) in enumerate(zip(mask.shape, x.shape[axis:])):
        if d != length and d != 0:  # one of no elements chooses nothing, of any axis
            raise IndexError(f"a mask of length {d} does not match axis {axis + i} of length {length}")
    return nonzero(mask)


def _range(item: slice, length: Any) -> tuple[tuple[Any, Any, Any], Any]:
    """Return the range that a slice of so many means, and its length, which is not a symbolic number."""
    if Whole in map(type, (item.start, item.stop, item.step)):
        length = fixed(length)
    chosen = indices(item, length)
    left = count(*chosen)
    if type(left) is Whole:
        left = left.fixed()
        chosen = (chosen[0], fixed(chosen[1]), chosen[2]) if type(chosen[0]) is not Whole else chosen
    return (chosen, left) if left else ((0, 0, 1), 0)


def _checked(index: Any, axis: int, length: Any) -> Any:
    if type(index) is Whole:
        length = fixed(length)
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {length}")
    return index % length
