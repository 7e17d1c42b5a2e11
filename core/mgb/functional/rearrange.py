"""Repeating, turning and padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..ir import dtypes
from ..ir.sizes import amount, whole
from ..ops.creation import Shape, as_shape, full, is_single
from ..ops.declare import normalize_axis
from ..ops.index import index_get
from ..ops.layout import broadcast_to, concat, cut_along, reshape, reverse, unslice
from ..ops.methods import flatten
from ..tensor import Tensor
from ..tensor.apply import literal
from .options import choice

__all__ = ["flip", "pad", "repeat", "roll", "tile"]


def repeat(inp: Tensor, repeats: Any, axis: int | None = None) -> Tensor:
    """Return each element `repeats` times in a row, along `axis`; without `axis`, of the flattened `inp`.

    Parameters
    ----------
    inp : Tensor
        The elements.
    repeats : int, sequence of int, or an integer Tensor of 0 axes or 1
        One number for all, or one for each place along `axis`.
    axis : int, optional
        None is the flattened `inp`.

    Examples
    --------
    >>> F.repeat(mgb.tensor([5, -7]), mgb.tensor([3, 2]))
    Tensor([ 5,  5,  5, -7, -7], dtype=int32, device=xpux:0)
    """
    if axis is None:
        inp, axis = flatten(inp), 0
    place = normalize_axis("repeat", axis, inp.ndim)[0]
    if not is_single(repeats):
        rows = np.repeat(np.arange(inp.shape[place]), np.asarray(repeats))
        made = Tensor if isinstance(repeats, Tensor) else literal
        return index_get(inp, made(rows, dtypes.int32, inp.device), axes=(place,), place=place)
    repeats = amount(repeats, "repeat: repeats")
    head, tail = inp.shape[: place + 1], inp.shape[place + 1 :]
    spread = broadcast_to(reshape(inp, shape=(*head, 1, *tail)), shape=(*head, repeats, *tail))
    return reshape(spread, shape=(*head[:-1], head[-1] * repeats, *tail))


def tile(inp: Tensor, reps: Shape) -> Tensor:
    """Return the whole of `inp`, `reps[i]` times along axis i; the last of `reps` is for the last axis.

    Examples
    --------
    >>> F.tile(mgb.tensor([5, -7]), mgb.tensor([3, 2]))
    Tensor([[ 5, -7,  5, -7],
            [ 5, -7,  5, -7],
            [ 5, -7,  5, -7]], dtype=int32, device=xpux:0)
    """
    times = as_shape(reps, "tile: reps")
    ndim = max(inp.ndim, len(times))
    times = (1,) * (ndim - len(times)) + times
    shape = (1,) * (ndim - inp.ndim) + inp.shape
    column = tuple(n for d in shape for n in (1, d))
    spread = tuple(n for t, d in zip(times, shape) for n in (t, d))
    out = broadcast_to(reshape(inp, shape=column), shape=spread)
    return reshape(out, shape=tuple(t * d for t, d in zip(times, shape)))


def flip(inp: Tensor, axis: Shape | None = None) -> Tensor:
    """Return the elements along `axis` in the opposite order; None turns every axis.

    Examples
    --------
    >>> F.flip(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([ 2.,  0., -1.], device=xpux:0)
    """
    return reverse(inp, normalize_axis("flip", axis, inp.ndim))


def roll(inp: Tensor, shift: Shape, axis: Shape | None = None) -> Tensor:
    """Return every element moved on by `shift` along `axis`; what leaves the end comes in at the start.

    Parameters
    ----------
    inp : Tensor
        The elements.
    shift : int or sequence of int
        How far, towards the end.
    axis : int, sequence of int or None
        As many as there are shifts; None rolls the flattened `inp`.

    Examples
    --------
    >>> F.roll(mgb.tensor([1, 2, 3]), 1)
    Tensor([3, 1, 2], dtype=int32, device=xpux:0)
    """
    if axis is None:
        return reshape(roll(flatten(inp), shift, 0), shape=inp.shape)
    shifts, axes = as_shape(shift, "roll: shift"), as_shape(axis, "roll: axis")
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
    """Return `src` with a border.

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
        `mode` is not one of the known modes.
    ShapeError
        A border for each axis is wanted; ``reflect`` needs an axis longer than its borders.

    Examples
    --------
    >>> F.pad(mgb.tensor([1.0, 2.0]), ((1, 0),))
    Tensor([0., 1., 2.], device=xpux:0)
    """
    mode = choice("pad", mode, ("constant", "edge", "replicate", "reflect", "symmetric", "circular", "wrap"))
    widths = [(whole(a, "pad: pad_width"), whole(b, "pad: pad_width")) for a, b in pad_width]
    if len(widths) != src.ndim:
        raise ShapeError(f"pad: {len(widths)} pairs for the {src.ndim} axes of {src.shape}")
    src, widths = _cropped(src, widths)
    if mode == "constant" and constant_value == 0:
        shape = tuple(a + d + b for (a, b), d in zip(widths, src.shape))
        return unslice(src, shape=shape, window=tuple((a, a + d, 1) for (a, _), d in zip(widths, src.shape)))
    for axis, (before, after) in enumerate(widths):
        first = _end(src, axis, before, False, mode, constant_value)
        last = _end(src, axis, after, True, mode, constant_value)
        if first is None or last is None:
            rows = _border(src.shape[axis], before, after, mode)
            src = index_get(src, literal(rows, dtypes.int32, src.device), axes=(axis,), place=axis)
        elif before or after:
            parts = ([first] if before else []) + [src] + ([last] if after else [])
            src = concat(*parts, axis=axis)
    return src


def _end(x: Tensor, axis: int, width: int, last: bool, mode: str, value: float) -> Tensor | None:
    """Return `width` elements before or after those along `axis`; None where they wrap around twice."""
    length = x.shape[axis]
    shape = tuple(width if i == axis else d for i, d in enumerate(x.shape))
    if mode == "constant":
        return full(shape, value, x.dtype, x.device)
    if mode in ("edge", "replicate"):
        edge = cut_along(x, axis, length - 1, length) if last else cut_along(x, axis, 0, 1)
        return broadcast_to(edge, shape=shape) if length else None
    skipped = int(mode == "reflect")
    if width + skipped > length:
        return None
    from_end = last != (mode in ("circular", "wrap"))
    start = length - width - skipped if from_end else skipped
    found = cut_along(x, axis, start, start + width)
    return found if mode in ("circular", "wrap") else reverse(found, (axis,))


def _cropped(x: Tensor, widths: Sequence[tuple[int, int]]) -> tuple[Tensor, list[tuple[int, int]]]:
    """Crop `x` by the negative borders; return it and the borders that remain to be added."""
    for axis, (before, after) in enumerate(widths):
        if min(before, after) < 0:
            start, stop = max(-before, 0), x.shape[axis] - max(-after, 0)
            if start > stop:
                raise ShapeError(
                    f"pad: borders ({before}, {after}) crop more than axis {axis} of shape {x.shape} has"
                )
            x = cut_along(x, axis, start, stop)
    return x, [(max(before, 0), max(after, 0)) for before, after in widths]


def _border(length: int, before: int, after: int, mode: str) -> Any:
    """Return the places of the axis that the padded one shows."""
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
