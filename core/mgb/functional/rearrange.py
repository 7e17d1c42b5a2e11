"""Repeating, turning and padding."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..apply import literal
from ..errors import ShapeError
from ..ops.creation import Shape, as_shape, full, is_single, ones_like
from ..ops.declare import normalize_axis
from ..ops.index import index_get
from ..ops.layout import broadcast_to, concat, cut_along, reshape, reverse, unslice
from ..ops.methods import flatten
from ..ops.primitives import where
from ..tensor import Tensor
from .options import choice

__all__ = ["flip", "pad", "repeat", "roll", "tile"]


def repeat(inp: Tensor, repeats: Any, axis: int | None = None) -> Tensor:
    """Each element `repeats` times in a row, along `axis`; without `axis`, of the flattened `inp`.

    Parameters
    ----------
    inp : Tensor
        The elements.
    repeats : int, sequence of int, or an integer Tensor of 0 axes or 1
        One number for all, or one for each place along `axis`.
    axis : int, optional
        None is the flattened `inp`.
    """
    if axis is None:
        inp, axis = flatten(inp), 0
    place = normalize_axis("repeat", axis, inp.ndim)[0]
    if not is_single(repeats):
        rows = np.repeat(np.arange(inp.shape[place]), np.asarray(repeats))
        made = Tensor if isinstance(repeats, Tensor) else literal
        return index_get(inp, made(rows, dtypes.int32, inp.device), axes=(place,), place=place)
    repeats = operator.index(repeats)
    head, tail = inp.shape[: place + 1], inp.shape[place + 1 :]
    spread = broadcast_to(reshape(inp, shape=(*head, 1, *tail)), shape=(*head, repeats, *tail))
    return reshape(spread, shape=(*head[:-1], head[-1] * repeats, *tail))


def tile(inp: Tensor, reps: Shape) -> Tensor:
    """The whole of `inp`, `reps[i]` times along axis i; the last of `reps` is for the last axis."""
    times = as_shape(reps)
    ndim = max(inp.ndim, len(times))
    times = (1,) * (ndim - len(times)) + times
    shape = (1,) * (ndim - inp.ndim) + inp.shape
    column = tuple(n for d in shape for n in (1, d))
    spread = tuple(n for t, d in zip(times, shape) for n in (t, d))
    out = broadcast_to(reshape(inp, shape=column), shape=spread)
    return reshape(out, shape=tuple(t * d for t, d in zip(times, shape)))


def flip(inp: Tensor, axis: Shape | None = None) -> Tensor:
    """The elements along `axis` in the opposite order; None turns every axis."""
    return reverse(inp, normalize_axis("flip", axis, inp.ndim))


def roll(inp: Tensor, shift: Shape, axis: Shape | None = None) -> Tensor:
    """Every element moved on by `shift` along `axis`; what leaves the end comes in at the start.

    Parameters
    ----------
    inp : Tensor
        The elements.
    shift : int or sequence of int
        How far, towards the end.
    axis : int, sequence of int or None
        As many as there are shifts; None rolls the flattened `inp`.
    """
    if axis is None:
        return reshape(roll(flatten(inp), shift, 0), shape=inp.shape)
    shifts, axes = as_shape(shift), as_shape(axis)
    if len(shifts) == 1:
        shifts = shifts * len(axes)
    if len(shifts) != len(axes):
        raise ShapeError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    for by, along in zip(shifts, axes):
        (place,) = normalize_axis("roll", along, inp.ndim)
        length = inp.shape[place]
        cut = length - by % length if length else 0
        inp = concat(cut_along(inp, place, cut, length), cut_along(inp, place, 0, cut), axis=place)
    return +inp


def pad(
    src: Tensor,
    pad_width: Sequence[Sequence[int]],
    mode: str = "constant",
    constant_value: float = 0.0,
) -> Tensor:
    """`src` with a border.

    Parameters
    ----------
    src : Tensor
        What gets the border.
    pad_width : sequence of (int, int)
        How many elements go before and after, for each axis; negative ones take elements away.
    mode : str
        ``constant``: `constant_value`. ``edge`` or ``replicate``: the nearest element. ``reflect``:
        the mirror image, whose mirror stands on the outermost element. ``symmetric``: it stands behind that
        element. ``circular`` or ``wrap``: the other end. In letters of any case.
    constant_value : float
        What a ``constant`` border is made of.

    Raises
    ------
    ValueError
        There is no such mode.
    ShapeError
        A border for each axis is wanted; ``reflect`` needs an axis longer than its borders.
    """
    mode = choice("pad", mode, ("constant", "edge", "replicate", "reflect", "symmetric", "circular", "wrap"))
    widths = [(int(a), int(b)) for a, b in pad_width]
    if len(widths) != src.ndim:
        raise ShapeError(f"pad: {len(widths)} pairs for the {src.ndim} axes of {src.shape}")
    src, widths = _cropped(src, widths)
    if mode == "constant":
        return _pad_constant(src, widths, constant_value)
    for axis, (before, after) in enumerate(widths):
        if before or after:
            rows = _border(src.shape[axis], before, after, mode)
            src = index_get(src, literal(rows, dtypes.int32, src.device), axes=(axis,), place=axis)
    return src


def _cropped(x: Tensor, widths: Sequence[tuple[int, int]]) -> tuple[Tensor, list[tuple[int, int]]]:
    """What negative borders leave, and those that are to be added."""
    for axis, (before, after) in enumerate(widths):
        if min(before, after) < 0:
            start, stop = max(-before, 0), x.shape[axis] - max(-after, 0)
            if start > stop:
                raise ShapeError(f"pad: {before}, {after} takes away more than axis {axis} of {x.shape} has")
            x = cut_along(x, axis, start, stop)
    return x, [(max(before, 0), max(after, 0)) for before, after in widths]


def _pad_constant(x: Tensor, widths: Sequence[tuple[int, int]], value: float) -> Tensor:
    shape = tuple(a + d + b for (a, b), d in zip(widths, x.shape))
    window = tuple((a, a + d, 1) for (a, _), d in zip(widths, x.shape))
    out = unslice(x, shape=shape, window=window)
    if value == 0:
        return out
    inside = unslice(ones_like(x, dtypes.bool_), shape=shape, window=window)
    return where(inside, out, full((), value, x.dtype, x.device))


def _border(length: int, before: int, after: int, mode: str) -> Any:
    """The places of the axis that the padded one shows."""
    places = np.arange(-before, length + after)
    if mode in ("circular", "wrap"):
        return places % length
    if mode == "symmetric":
        turned = places % (2 * length)
        return np.minimum(turned, 2 * length - 1 - turned)
    if mode != "reflect":
        return np.clip(places, 0, length - 1)
    if max(before, after) >= length:
        message = f"pad: reflect needs an axis longer than its borders, got {length} for {before} and {after}"
        raise ShapeError(message)
    return np.abs((length - 1) - np.abs((length - 1) - places))
