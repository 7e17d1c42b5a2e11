"""Images of another size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..ir import dtypes
from ..ir.sizes import whole
from ..ops.creation import as_shape
from ..ops.index import index_get
from ..ops.layout import reshape, transpose
from ..ops.primitives import cast
from ..tensor import Tensor
from ..tensor.apply import literal

__all__ = ["interpolate", "pixel_shuffle"]

#: How many axes of the image each mode takes; None is any number.
_AXES = {"nearest": None, "linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}

#: The slope that fixes the cubic among Keys' (1981).
_SLOPE = -0.75


def interpolate(
    inp: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "bilinear",
    align_corners: bool | None = None,
) -> Tensor:
    """Resize images (N, C, ...); integers are interpolated as float32.

    Parameters
    ----------
    inp : Tensor
        Of shape (N, C, L), (N, C, H, W) or (N, C, D, H, W).
    size : int or sequence of int, optional
        The lengths of the result; one number serves all axes.
    scale_factor : float or sequence of float, optional
        How many times larger, rounded down; give either this or `size`.
    mode : str
        ``nearest``, ``linear``, ``bilinear``, ``trilinear`` or ``bicubic``.
    align_corners : bool, optional
        The centres of the outermost elements stay, instead of their edges. Not for ``nearest``.

    Raises
    ------
    ValueError
        `mode` is not one of the known modes, or `align_corners` is given for ``nearest``.
    ShapeError
        The image has other axes, or a length is missing, negative, or of an image without elements.

    Examples
    --------
    >>> F.interpolate(mgb.tensor([[[[1.0, 2.0]]]]), scale_factor=2, mode="nearest").shape
    (1, 1, 2, 4)
    """
    if mode not in _AXES:
        raise ValueError(f"interpolate: {mode!r} is not a mode; choose one of {', '.join(_AXES)}")
    if mode == "nearest" and align_corners is not None:
        raise ValueError("interpolate: align_corners is not for mode 'nearest'")
    axes = inp.ndim - 2
    if axes < 1 or _AXES[mode] not in (None, axes):
        raise ShapeError(f"interpolate: mode {mode!r} does not take images of shape {inp.shape}")
    lengths = _lengths(inp.shape[2:], size, scale_factor)
    out = inp if inp.dtype in dtypes.FLOATS or mode == "nearest" else cast(inp, dtype=dtypes.float32)
    for axis, new in enumerate(lengths, 2):
        if new != out.shape[axis]:
            out = _along(out, axis, new, mode, bool(align_corners))
    return +inp if out is inp else out


def _lengths(
    old: tuple[int, ...], size: int | Sequence[int] | None, factor: float | Sequence[float] | None
) -> tuple[int, ...]:
    if (size is None) == (factor is None):
        raise ShapeError("interpolate: give either size or scale_factor")
    if factor is not None:
        given_factors = np.asarray(factor, np.float64)
        if given_factors.ndim > 1 or not np.isfinite(given_factors).all():
            message = f"interpolate: scale_factor is a finite number, or one for each axis, got {factor}"
            raise ShapeError(message)
        factors = given_factors.tolist() if given_factors.ndim else [float(given_factors)] * len(old)
        new = tuple(int(d * f) for d, f in zip(old, factors, strict=False))
    else:
        assert size is not None
        given = _whole(size)
        new, factors = given * len(old) if len(given) == 1 else given, list(given)
    if len(new) != len(old) or (len(factors) not in (1, len(old))) or min(new) < 1 or 0 in old:
        raise ShapeError(
            f"interpolate: cannot resize images of {old} to {new}: give a length of at least 1 for each axis"
        )
    return new


def _whole(size: int | Sequence[int]) -> tuple[int, ...]:
    lengths = size.numpy() if isinstance(size, Tensor) else np.asarray(size)
    if lengths.dtype.kind not in "iu" or lengths.ndim > 1:
        raise ShapeError(f"interpolate: size must be an integer, or one for each axis, got {size!r}")
    return as_shape(size, "interpolate: size")


def _along(x: Tensor, axis: int, count: int, mode: str, corners: bool) -> Tensor:
    """Return `count` elements along `axis`, each a sum of a few old ones."""
    length = x.shape[axis]
    places = np.arange(count, dtype=np.float64)
    if mode == "nearest":
        return _read(x, axis, np.floor(places * length / count))
    if corners:
        at = places * ((length - 1) / max(count - 1, 1))
    else:
        at = (places + 0.5) * (length / count) - 0.5
        at = at if mode == "bicubic" else np.maximum(at, 0)
    first = np.floor(at)
    shape = tuple(count if i == axis else 1 for i in range(x.ndim))
    total: Any = None
    for step, weights in _taps(at - first, mode == "bicubic"):
        part = _read(x, axis, first + step) * literal(weights.reshape(shape), x.dtype, x.device)
        total = part if total is None else total + part
    out: Tensor = total
    return out


def _read(x: Tensor, axis: int, places: np.ndarray[Any, Any]) -> Tensor:
    inside = literal(np.clip(places, 0, x.shape[axis] - 1), dtypes.int32, x.device)
    return index_get(x, inside, axes=(axis,), place=axis)


def _taps(t: np.ndarray[Any, Any], cubic: bool) -> list[tuple[int, np.ndarray[Any, Any]]]:
    """List the neighbours and their weights at the distance `t` after the one at 0."""
    if not cubic:
        return [(0, 1 - t), (1, t)]
    return [(step, _keys(np.abs(t - step))) for step in (-1, 0, 1, 2)]


def _keys(d: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Evaluate Keys' cubic at the distance `d`, of 2 at most."""
    near = ((_SLOPE + 2) * d - (_SLOPE + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d - 4
    weights: np.ndarray[Any, Any] = np.where(d <= 1, near, _SLOPE * far)
    return weights


def pixel_shuffle(inp: Tensor, upscale_factor: int) -> Tensor:
    """Spread channels over the image: (..., C r r, H, W) becomes (..., C, H r, W r) (Shi et al. 2016).

    Raises
    ------
    ShapeError
        The channels do not divide into squares of `upscale_factor`.

    Examples
    --------
    >>> F.pixel_shuffle(F.ones((1, 4, 2, 2)), 2).shape
    (1, 1, 4, 4)
    """
    r = whole(upscale_factor, "pixel_shuffle: upscale_factor")
    if inp.ndim < 3 or r < 1 or inp.shape[-3] % (r * r):
        raise ShapeError(f"pixel_shuffle: the channels of shape {inp.shape} must be a multiple of {r} * {r}")
    *rest, channels, height, width = inp.shape
    n = len(rest)
    parts = reshape(inp, shape=(*rest, channels // (r * r), r, r, height, width))
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return reshape(transpose(parts, axes=order), shape=(*rest, channels // (r * r), height * r, width * r))
