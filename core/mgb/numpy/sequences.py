"""Functions of NumPy on samples in a row, of a few lines of ours; the arguments are NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..functional import math, tensor
from ..ir import dtypes
from ..ops.declare import normalize_axis
from ..ops.images.contract import conv2d
from ..ops.layout import concat, cut_along, reshape, reverse
from ..ops.order import searchsorted_
from ..ops.primitives import cast, le, sqrt, where
from ..tensor import Tensor
from ..tensor.apply import tensors
from .compositions import clip, diagonal
from .linalg import cross as upright
from .linalg import matrix_transpose


def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Tensor:
    """Return where each of `v` goes in the ascending vector `a`, before what equals it or behind, as int32.

    `sorter` has the places of `a` in ascending order.

    Examples
    --------
    >>> mgb.numpy.searchsorted(mgb.tensor([1.0, 3.0]), mgb.tensor([2.0, 5.0]))
    Tensor([1, 2], dtype=int32, device=xpux:0)
    """
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side is 'left' or 'right', not {side!r}")
    a, v = tensors("searchsorted", (a, v))
    a = a if sorter is None else tensor.take(a, sorter, 0)
    return searchsorted_(a, v, right=side == "right")


def digitize(x: Any, bins: Any, right: bool = False) -> Tensor:
    """Return between which edges each element lies, as int32; the edges ascend or descend."""
    x, bins = tensors("digitize", (x, bins))
    if bins.ndim != 1 or not bins.size:
        raise ShapeError(f"digitize: bins must be a non-empty vector, got shape {bins.shape}")
    up = searchsorted_(bins, x, right=not right)
    down = bins.shape[0] - searchsorted_(reverse(bins, (0,)), x, right=not right)
    return where(le(bins[0], bins[-1]), up, down).astype("int32")


def kron(a: Any, b: Any) -> Tensor:
    """Multiply `b` by each element of `a`, side by side."""
    a, b = tensors("kron", (a, b))
    ndim = max(a.ndim, b.ndim)
    left, right = ((1,) * (ndim - x.ndim) + x.shape for x in (a, b))
    a = reshape(a, shape=tuple(n for d in left for n in (d, 1)))
    b = reshape(b, shape=tuple(n for d in right for n in (1, d)))
    return reshape(a * b, shape=tuple(m * n for m, n in zip(left, right)))


def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Tensor:
    """Return the vectors of three elements that stand upright on those of `a` and `b`."""
    one, other, result = (axisa, axisb, axisc) if axis is None else (axis,) * 3
    a, b = tensors("cross", (a, b))
    return tensor.moveaxis(upright(tensor.moveaxis(a, one, -1), tensor.moveaxis(b, other, -1)), -1, result)


# sums of products of neighbours


def _correlated(a: Tensor, v: Tensor, mode: str) -> Tensor:
    """Return the products of `a` with the shorter `v`, moved along it."""
    if a.ndim != 1 or v.ndim != 1 or not a.size or not v.size:
        raise ShapeError(f"convolve: needs non-empty vectors, got shapes {a.shape} and {v.shape}")
    length, taps = a.shape[0], v.shape[0]
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"convolve: mode is 'full', 'same' or 'valid', not {mode!r}")
    images, weights = (reshape(x, shape=(1, 1, 1, x.shape[0])) for x in (a, v))
    padding = (0, 0) if mode == "valid" else (0, taps - 1)
    out = conv2d(images, weights, stride=(1, 1), padding=padding, dilation=(1, 1), groups=1)
    out = reshape(out, shape=(out.shape[-1],))
    start = (taps - 1) // 2
    return cut_along(out, 0, start, start + length) if mode == "same" else out


def convolve(a: Any, v: Any, mode: str = "full") -> Tensor:
    """Return the convolution of two vectors: the product of polynomials, if these are their coefficients."""
    a, v = tensors("convolve", (a, v))
    if a.size < v.size:
        a, v = v, a
    return _correlated(a, reverse(v, (0,)), mode)


def correlate(a: Any, v: Any, mode: str = "valid") -> Tensor:
    """Return the inner products of `v` with the parts of `a`."""
    a, v = tensors("correlate", (a, v))
    return reverse(_correlated(v, a, mode), (0,)) if a.size < v.size else _correlated(a, v, mode)


# slopes and areas


def _spacing(step: Any, f: Tensor, axis: int) -> Any:
    """Return the distances of neighbours: a number, or a Tensor that stands along `axis`."""
    if np.ndim(step) == 0:
        return step
    (places,) = tensors("gradient", (step,))
    if places.ndim != 1 or places.shape[0] != f.shape[axis]:
        raise ShapeError(
            f"gradient: coordinates of shape {places.shape} do not fit axis {axis} of shape {f.shape}"
        )
    steps = places[1:] - places[:-1]
    return reshape(steps, shape=tuple(steps.shape[0] if i == axis else 1 for i in range(f.ndim)))


def _slope(f: Tensor, h: Any, axis: int, edge_order: int) -> Tensor:
    """Return a slope of second order inside and of `edge_order` at the ends (Quarteroni et al.)."""
    n = f.shape[axis]
    if n <= edge_order:
        raise ShapeError(f"gradient: axis {axis} of {f.shape} needs at least {edge_order + 1} elements")

    def at(x: Any, start: int, stop: int) -> Any:
        return cut_along(x, axis, start, stop) if isinstance(x, Tensor) and x.ndim else x

    change = (at(f, 1, n) - at(f, 0, n - 1)) / h
    first, last = at(change, 0, 1), at(change, n - 2, n - 1)
    if n == 2:
        return concat(first, last, axis=axis)
    before, after = at(h, 0, n - 2), at(h, 1, n - 1)
    inner = (at(change, 0, n - 2) * after + at(change, 1, n - 1) * before) / (before + after)
    if edge_order == 2:
        first = first + (first - at(inner, 0, 1))
        last = last + (last - at(inner, n - 3, n - 2))
    return concat(first, inner, last, axis=axis)


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Return the slope along each axis, by central differences.

    Parameters
    ----------
    f : Tensor
    *varargs : float or vector
        The distance of neighbours, for all axes or for each, or where the elements stand along the axis.
    axis : int or sequence of int, optional
        None is every axis.
    edge_order : int
        1 or 2, at the ends.

    Returns
    -------
    Tensor, or a tuple of one for each axis
    """
    (f,) = tensors("gradient", (f,))
    f = f if f.dtype in dtypes.FLOATS else cast(f, dtype=dtypes.float32)
    given = tuple(range(f.ndim)) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    axes = [normalize_axis("gradient", i, f.ndim)[0] for i in given]
    if len(varargs) not in (0, 1, len(axes)) or edge_order not in (1, 2):
        raise TypeError(f"gradient: {len(varargs)} distances for {len(axes)} axes, or edge_order not 1 or 2")
    steps = varargs or (1.0,)
    steps = steps * len(axes) if len(steps) == 1 else steps
    found = tuple(_slope(f, _spacing(h, f, i), i, edge_order) for h, i in zip(steps, axes))
    return found[0] if len(found) == 1 else found


def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Tensor:
    """Return the area under the line through `y`, whose elements are `dx` apart or stand at `x`."""
    (y,) = tensors("trapezoid", (y,))
    (place,) = normalize_axis("trapezoid", axis, y.ndim)
    n = y.shape[place]
    middle = (cut_along(y, place, 1, n) + cut_along(y, place, 0, n - 1)) * 0.5
    if x is None:
        return math.sum(middle * dx, place)
    (x,) = tensors("trapezoid", (x,))
    along = x.ndim - 1 if x.ndim == 1 else place
    steps = cut_along(x, along, 1, n) - cut_along(x, along, 0, n - 1)
    if x.ndim == 1:
        steps = reshape(steps, shape=tuple(n - 1 if i == place else 1 for i in range(y.ndim)))
    return math.sum(middle * steps, place)


# how variables vary together


def vdot(a: Any, b: Any) -> Tensor:
    """Return the product of all elements with the conjugates of those in `a`."""
    a, b = tensors("vdot", (a, b))
    return math.sum(tensor.flatten(a).conj() * tensor.flatten(b))


def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None) -> Tensor:
    """Return the covariances of variables, each a row, or a column if not `rowvar`."""
    rows = [_variables(x, rowvar) for x in ((m,) if y is None else (m, y))]
    x = rows[0] if len(rows) == 1 else concat(*tensors("cov", rows), axis=0)
    x = x if x.dtype in dtypes.FLOATS else cast(x, dtype=dtypes.float32)
    rest = x - math.mean(x, 1, keepdims=True)
    less = (0 if bias else 1) if ddof is None else ddof
    return tensor.squeeze((rest @ rest.T) / (x.shape[1] - less))


def _variables(x: Any, rowvar: bool) -> Tensor:
    (x,) = tensors("cov", (x,))
    if x.ndim > 2:
        raise ShapeError(f"cov: the samples of variables have one or two axes, not shape {x.shape}")
    x = reshape(x, shape=(1, x.size)) if x.ndim < 2 else x
    return x if rowvar or x.shape[0] == 1 else matrix_transpose(x)


def corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Tensor:
    """Return the covariances divided by the deviations: Pearson's coefficients."""
    c = cov(x, y, rowvar)
    if not c.ndim:
        alone: Tensor = c / c
        return alone
    deviation = sqrt(diagonal(c))
    return clip(c / deviation[:, None] / deviation[None, :], -1.0, 1.0)
