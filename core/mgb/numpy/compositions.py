"""Functions of NumPy that are a few lines of ours; the arguments are NumPy's.

What has a shape that depends on values reads them, as `nonzero` does: inside a trace that splits the program.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import wraps
from math import prod
from typing import Any

import numpy as np
from ml_dtypes import finfo

from ..errors import ShapeError
from ..functional import math, rearrange, tensor
from ..functional.complex_numbers import complex, is_complex
from ..ir import dtypes
from ..ir.sizes import amount
from ..ops import elementwise as e
from ..ops.creation import along, is_single
from ..ops.declare import normalize_axis
from ..ops.index import gather_, index_get
from ..ops.layout import cut_along, reshape, transpose
from ..ops.methods import accumulated, flatten
from ..ops.operators import product
from ..ops.primitives import cast, eq, le, lt, maximum, minimum, round, sub, where
from ..ops.reduce import reduce_sum
from ..ops.scans import cumprod_, cumsum_
from ..tensor import Tensor
from ..tensor.apply import literal, tensors


def as_tensor(value: Any) -> Tensor:
    """Return `value` itself, or the literal that it is."""
    return value if isinstance(value, Tensor) else literal(value)


def on_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function whose result is not a Tensor: it reads the values."""

    @wraps(function)
    def read(*args: Any, **kwargs: Any) -> Any:
        return function(*map(_read, args), **{name: _read(value) for name, value in kwargs.items()})

    return read


def _read(value: Any) -> Any:
    """Return the array of a Tensor, or a list of those in a list, which NumPy would hand back to us."""
    if isinstance(value, list | tuple):
        return [_read(v) for v in value]
    return value.numpy() if isinstance(value, Tensor) else value


# reductions


def reduction(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return one of ours with NumPy's arguments: `dtype` is that in which it computes."""

    def reduced(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Tensor:
        a = as_tensor(a)
        return function(a if dtype is None else a.astype(dtype), axis, keepdims)

    return reduced


def reduction_from(function: Callable[..., Tensor], join: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make a `reduction` with a value to begin from."""

    def reduced(
        a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, initial: Any = None
    ) -> Tensor:
        out = function(as_tensor(a), axis, keepdims, dtype=dtype)
        return out if initial is None else join(out, initial)

    return reduced


def extreme(function: Callable[..., Tensor], join: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make a `reduction_from` without a dtype; of an empty array it is the value to begin from."""

    def reduced(a: Any, axis: Any = None, *, keepdims: bool = False, initial: Any = None) -> Tensor:
        a = as_tensor(a)
        if initial is None:
            return function(a, axis, keepdims)
        gone = normalize_axis("reduction", axis, a.ndim)
        if not all(a.shape[i] for i in gone):
            shape = tuple(1 if i in gone else d for i, d in enumerate(a.shape) if keepdims or i not in gone)
            return tensor.full(shape, initial, a.dtype, a.device)
        return join(function(a, axis, keepdims), initial)

    return reduced


def spread(function: Callable[..., Tensor], root: bool) -> Callable[..., Tensor]:
    """Make `var` or `std`, divided by ``n - ddof``."""

    def reduced(
        a: Tensor, axis: Any = None, dtype: Any = None, *, ddof: float = 0, keepdims: bool = False
    ) -> Tensor:
        a = a if dtype is None else a.astype(dtype)
        out = function(a, axis, keepdims)
        if not ddof:
            return out
        count = a.size // max(out.size, 1)
        factor = count / max(count - ddof, 0) if count > ddof else np.nan
        return out * (factor**0.5 if root else factor)

    return reduced


def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False
) -> Any:
    """Return the mean, in which an element counts as its weight says."""
    if weights is None:
        a = as_tensor(a)
        mean = math.mean(a, axis, keepdims)
        total: Any = tensor.full(mean.shape, a.size // max(mean.size, 1), mean.dtype, mean.device)
    else:
        a, share = tensors("average", (a, weights))
        if share.dtype not in dtypes.FLOATS:  # products of integers wrap
            share = cast(share, dtype=dtypes.float64 if a.dtype == dtypes.float64 else dtypes.float32)
        if share.shape != a.shape:
            places = normalize_axis("average", axis, a.ndim)
            if axis is None or share.shape != tuple(a.shape[i] for i in places):
                raise ShapeError(
                    f"average: weights of shape {share.shape} do not fit {a.shape} along axis {axis}"
                )
            share = reshape(share, shape=tuple(d if i in places else 1 for i, d in enumerate(a.shape)))
            share = tensor.broadcast_to(share, a.shape)
        total = math.sum(share, axis, keepdims)
        mean = math.sum(a * share, axis, keepdims) / total
    return (mean, total) if returned else mean


def concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Tensor:
    """Return one after the other; without an axis, flattened.

    Examples
    --------
    >>> mgb.numpy.concat([mgb.tensor([1.0, 2.0]), mgb.tensor([3.0])])
    Tensor([1., 2., 3.], device=xpux:0)
    """
    parts = [flatten(as_tensor(part)) for part in arrays] if axis is None else arrays
    return tensor.concat(parts, axis or 0)


def split(ary: Tensor, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """Split like `functional.split`, but into parts of equal lengths only."""
    (place,) = normalize_axis("split", axis, ary.ndim)
    if is_single(indices_or_sections) and ary.shape[place] % operator.index(indices_or_sections):
        raise ShapeError(
            f"split: cannot split axis {place} of shape {ary.shape} into {indices_or_sections} equal parts"
        )
    return tensor.split(ary, indices_or_sections, place)


def median(a: Tensor, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """Return the median: the middle element, or the mean of the middle two; NaN if an element is NaN."""
    axes = normalize_axis("median", axis, a.ndim)
    kept = tuple(i for i in range(a.ndim) if i not in axes)
    rows = transpose(a, axes=(*kept, *axes))
    length = prod([a.shape[i] for i in axes])
    if not length:
        raise ShapeError(f"median of an empty array: shape {a.shape}, axis {axes}")
    rows = reshape(rows, shape=(*(a.shape[i] for i in kept), length))
    rows = rows if a.dtype in dtypes.FLOATS else cast(rows, dtype=dtypes.float32)
    last = rows.ndim - 1
    ordered = math.sort(rows, dim=last)[0]
    middle = math.mean(cut_along(ordered, last, (length - 1) // 2, length // 2 + 1), last)
    greatest = reshape(cut_along(ordered, last, length - 1, length), shape=middle.shape)
    out = where(e.isnan(greatest), greatest, middle)
    return (
        reshape(out, shape=tuple(1 if i in axes else d for i, d in enumerate(a.shape))) if keepdims else out
    )


def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """Count the elements that are not 0.

    Examples
    --------
    >>> mgb.numpy.count_nonzero(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor(2, dtype=int64, device=xpux:0)
    """
    return math.sum(e.ne(as_tensor(a), 0), axis, keepdims)


# element by element


def round_even(a: Tensor, decimals: int = 0) -> Tensor:
    """Round to `decimals` digits after the point; halfway cases go to the even neighbour.

    Of complex numbers both parts are rounded.
    """
    if is_complex(a):
        return complex(round_even(a.real, decimals), round_even(a.imag, decimals))
    if decimals == 0:
        return +a if a.dtype.kind in "biu" else round(a)
    if decimals > 0:
        return +a if a.dtype.kind in "biu" else round(a * 10.0**decimals) / 10.0**decimals
    wide = cast(a, dtype=dtypes.float64) if a.dtype.kind in "biu" else a
    return cast(round(wide / 10.0**-decimals) * 10.0**-decimals, dtype=a.dtype)


def clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Tensor:
    """Return `a` within bounds; the upper one holds where they cross, and NaN among them gives NaN."""
    if (a_min is not None and min is not None) or (a_max is not None and max is not None):
        raise ValueError("clip: a bound is given twice: give either a_min or min, and either a_max or max")
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    raised = +as_tensor(a) if low is None else maximum(a, low)
    return raised if high is None else minimum(raised, high)


def nan_to_num(
    x: Tensor, copy: bool = True, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Replace NaN and the infinities by numbers: the largest there are, unless others are given."""
    if x.dtype not in dtypes.FLOATS:
        return +x
    most = float(finfo(x.dtype).max)  # type: ignore[no-untyped-call]
    out = where(eq(x, np.inf), most if posinf is None else posinf, x)
    out = where(eq(x, -np.inf), -most if neginf is None else neginf, out)
    return where(e.isnan(x), nan, out)


def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Return whether they differ by at most ``atol + rtol * abs(b)``."""
    return e.isclose(a, b, rtol=float(rtol), atol=float(atol), equal_nan=bool(equal_nan))


def interp(x: Any, xp: Any, fp: Any, left: float | None = None, right: float | None = None) -> Tensor:
    """Return the piecewise linear function through (`xp`, `fp`) at `x`; `xp` ascends."""
    x, xp, fp = tensors("interp", (x, xp, fp))
    if xp.ndim != 1 or xp.shape != fp.shape or not xp.size:
        raise ShapeError(
            f"interp: xp and fp must be vectors of the same length, got shapes {xp.shape} and {fp.shape}"
        )
    reached = le(xp, reshape(x, shape=(*x.shape, 1)))
    count = reshape(reduce_sum(cast(reached, dtype=dtypes.int32), axis=(x.ndim,)), shape=x.shape)
    after = minimum(maximum(count, min(1, xp.size - 1)), xp.size - 1)
    before = maximum(after - 1, 0)
    x0, x1, y0, y1 = (index_get(t, i, axes=(0,), place=0) for t in (xp, fp) for i in (before, after))
    width = x1 - x0
    out = y0 + (y1 - y0) * ((x - x0) / where(eq(width, 0), 1, width))
    ends = (fp[0] if left is None else left), (fp[-1] if right is None else right)
    return where(lt(x, xp[0]), ends[0], where(le(xp[-1], x), where(eq(x, xp[-1]), fp[-1], ends[1]), out))


# running sums, differences, products


def cumsum(a: Tensor, axis: int | None = None, dtype: Any = None) -> Tensor:
    """Return the sums of all elements up to each; without `axis`, of the flattened `a`."""
    a = accumulated(flatten(a) if axis is None else a, dtype)
    return cumsum_(a, axis=normalize_axis("cumsum", axis or 0, a.ndim)[0])


def cumprod(a: Tensor, axis: int | None = None, dtype: Any = None) -> Tensor:
    """Return the products of all elements up to each; without `axis`, of the flattened `a`."""
    a = accumulated(flatten(a) if axis is None else a, dtype)
    return cumprod_(a, axis=normalize_axis("cumprod", axis or 0, a.ndim)[0])


def diff(a: Tensor, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """Return each element less the one before, `n` times over; first `a` gets what is to stand at its ends.

    Examples
    --------
    >>> mgb.numpy.diff(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([1., 2.], device=xpux:0)
    """
    if n < 0:
        raise ShapeError(f"diff: n must be at least 0, got {n}")
    if n == 0:
        return a
    (place,) = normalize_axis("diff", axis, a.ndim)
    one = tuple(1 if i == place else d for i, d in enumerate(a.shape))
    ends = [e if e is None or np.ndim(e) else tensor.full(one, e, device=a.device) for e in (prepend, append)]
    parts = [part for part in (ends[0], a, ends[1]) if part is not None]
    a = a if len(parts) == 1 else tensor.concat(parts, place)
    for _ in range(n):
        length = a.shape[place]
        later, earlier = (
            cut_along(a, place, min(1, length), length),
            cut_along(a, place, 0, max(length - 1, 0)),
        )
        a = e.ne(later, earlier) if a.dtype == dtypes.bool_ else sub(later, earlier)
    return a


def outer(a: Any, b: Any) -> Tensor:
    """Return each element of `a` times each of `b`."""
    a, b = tensors("outer", (a, b))
    out: Tensor = reshape(a, shape=(a.size, 1)) * reshape(b, shape=(1, b.size))
    return out


def dot(a: Any, b: Any) -> Tensor:
    """Return the sum over the last axis of `a` and the last but one of `b`; a number multiplies."""
    a, b = tensors("dot", (a, b))
    if not a.ndim or not b.ndim:
        multiplied: Tensor = a * b
        return multiplied
    if a.ndim <= 2 and b.ndim <= 2:
        return product(a, b)
    return tensordot(a, b, ((a.ndim - 1,), (max(b.ndim - 2, 0),)))


def tensordot(a: Any, b: Any, axes: Any = 2) -> Tensor:
    """Return the sum of products over `axes`: so many last of `a` and first of `b`, or the axes of each."""
    a, b = tensors("tensordot", (a, b))
    given = (range(a.ndim - axes, a.ndim), range(axes)) if isinstance(axes, int) else axes
    left, right = (
        [normalize_axis("tensordot", i, x.ndim)[0] for i in ((g,) if isinstance(g, int) else g)]
        for g, x in zip(given, (a, b), strict=True)
    )
    if [a.shape[i] for i in left] != [b.shape[i] for i in right]:
        raise ShapeError(f"tensordot: the axes {left} of {a.shape} do not fit {right} of {b.shape}")
    rows = [i for i in range(a.ndim) if i not in left]
    columns = [i for i in range(b.ndim) if i not in right]
    inner = prod([a.shape[i] for i in left])
    shape = (*(a.shape[i] for i in rows), *(b.shape[i] for i in columns))
    a = reshape(transpose(a, axes=(*rows, *left)), shape=(prod([a.shape[i] for i in rows]), inner))
    b = reshape(
        transpose(b, axes=(*right, *columns)),
        shape=(inner, prod([b.shape[i] for i in columns])),
    )
    return reshape(product(a, b), shape=shape)


# joining


def at_least(ndim: int) -> Callable[..., Any]:
    """Make ``np.atleast_1d`` and the like."""

    def padded(*arys: Any) -> Any:
        made = [_with_axes(as_tensor(a), ndim) for a in arys]
        return made[0] if len(made) == 1 else tuple(made)

    return padded


def _with_axes(x: Tensor, ndim: int) -> Tensor:
    """Add axes in front; of a vector or a matrix, the third goes to the end, as in NumPy."""
    if x.ndim >= ndim:
        return x
    if ndim < 3:
        return reshape(x, shape=(*(1,) * (ndim - x.ndim), *x.shape))
    return reshape(x, shape=(1, x.size, 1) if x.ndim < 2 else (*x.shape, 1))


def stacked(ndim: int, axis: int) -> Callable[..., Tensor]:
    """Make ``np.vstack`` and the like."""

    def joined(tup: Sequence[Any]) -> Tensor:
        parts = [_with_axes(t, ndim) for t in tensors("concat", tup)]
        return tensor.concat(parts, 0 if parts and parts[0].ndim == 1 else axis)

    return joined


def pad(array: Tensor, pad_width: Any, mode: Any = "constant", constant_values: float = 0) -> Tensor:
    """Return a border on each side of each axis."""
    given = np.asarray(pad_width)
    if given.dtype.kind not in "iu":
        raise TypeError(f"pad: pad_width must be integers, got {pad_width!r}")
    if given.shape not in ((), (1,), (2,), (1, 1), (1, 2), (array.ndim, 1), (array.ndim, 2)):
        raise ShapeError(f"pad: pad_width {pad_width!r} is not a pair for each of the {array.ndim} axes")
    if given.size and given.min() < 0:
        raise ShapeError(f"pad: a border of {pad_width!r} elements has negative lengths")
    widths = np.broadcast_to(given, (array.ndim, 2)).tolist()
    return rearrange.pad(array, widths, mode, constant_values)


def diagonal(a: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Return the diagonal of the matrices in two axes; it becomes the last axis."""
    i, j = (normalize_axis("diagonal", axis, a.ndim)[0] for axis in (axis1, axis2))
    if i == j:
        raise ShapeError(f"diagonal: axis1 and axis2 must differ, got {axis1} twice")
    a = transpose(a, axes=(*(n for n in range(a.ndim) if n not in (i, j)), i, j))
    rows, columns = a.shape[-2:]
    length = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    places = along((length,), (0,), dtypes.int32, a.device)
    axes = (a.ndim - 2, a.ndim - 1)
    return index_get(a, places + max(-offset, 0), places + max(offset, 0), axes=axes, place=a.ndim - 2)


def trace(a: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Return the sum of the diagonal."""
    return math.sum(diagonal(a, offset, axis1, axis2), -1)


# with a look at the values


def unique(
    ar: Tensor,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    *,
    equal_nan: bool = True,
) -> Any:
    """Return the different elements in order; a gradient goes to the first of each. Reads the values."""
    flat = flatten(ar)
    _, first, inverse, counts = np.unique(ar.numpy(), True, True, True, equal_nan=equal_nan)
    firsts = Tensor(first, dtypes.int32, ar.device)
    found = [index_get(flat, firsts, axes=(0,), place=0)]
    for wanted, part in ((return_index, first), (return_inverse, inverse), (return_counts, counts)):
        found += [Tensor(part, dtypes.int32, ar.device)] if wanted else []
    return found[0] if len(found) == 1 else tuple(found)


def bincount(x: Tensor, weights: Any = None, minlength: int = 0) -> Tensor:
    """Count each number in `x`, or sum its weights. Reads the greatest."""
    x = as_tensor(x)
    if x.ndim != 1 or x.dtype not in dtypes.INTEGERS:
        raise ShapeError(f"bincount: x must be a vector of integers, got {x.dtype} of shape {x.shape}")
    values = x.numpy()
    if values.size and values.min() < 0:
        raise ShapeError(f"bincount: the numbers in x must be at least 0, got {values.min()}")
    length = max(amount(minlength, "bincount: minlength"), int(values.max()) + 1 if values.size else 0)
    share = tensor.ones(x.shape, dtypes.int32, x.device) if weights is None else as_tensor(weights)
    nothing = tensor.zeros((length,), share.dtype, x.device)
    return tensor.scatter_add(nothing, 0, x, share) if length else nothing


def histogram(
    a: Tensor, bins: Any = 10, range: Any = None, density: bool = False, weights: Any = None
) -> tuple[Tensor, Tensor]:
    """Return the counts of elements, or sums of weights, between edges, and the edges. Reads the values."""
    a = as_tensor(a)
    edges, share = (x.numpy() if isinstance(x, Tensor) else x for x in (bins, weights))
    counts, edges = np.histogram(a.numpy(), edges, range, density, share)
    of_shares = None if density or weights is None else as_tensor(weights).dtype
    of_edges = a.dtype if a.dtype == dtypes.float64 else None
    return Tensor(counts, of_edges if density else of_shares, a.device), Tensor(edges, of_edges, a.device)


def histograms(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make ``np.histogram2d`` or ``np.histogramdd``, which read the values, with Tensors as results."""

    def as_tensors(value: Any, dtype: Any) -> Any:
        several = isinstance(value, list | tuple)
        return [Tensor(v, dtype) for v in value] if several else Tensor(value, dtype)

    @wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        given = [v for x in (*args, *kwargs.values()) for v in (x if isinstance(x, list | tuple) else (x,))]
        wide = any(isinstance(v, Tensor) and v.dtype == dtypes.float64 for v in given)
        dtype = dtypes.float64 if wide else None
        return tuple(as_tensors(value, dtype) for value in on_arrays(function)(*args, **kwargs))

    return counted


def sort(a: Tensor, axis: int | None = -1, kind: str | None = None, *, stable: bool = True) -> Tensor:
    """Sort; without an axis, the flattened `a`. It is stable, whatever `kind`."""
    return math.sort(flatten(a) if axis is None else a, dim=-1 if axis is None else axis)[0]


def argsort(a: Tensor, axis: int | None = -1, kind: str | None = None, *, stable: bool = True) -> Tensor:
    """Return the indices that sort `a`, as int32. The sort is stable, whatever `kind`."""
    return math.argsort(flatten(a) if axis is None else a, axis=-1 if axis is None else axis)


def take(a: Any, indices: Any, axis: int | None = None, *, mode: str = "raise") -> Tensor:
    """Take elements by index; `mode` says whether those out of range raise, wrap around or are clipped.

    Examples
    --------
    >>> np.take(mgb.tensor([5.0, 6.0, 7.0]), [4, -1], mode="wrap").tolist()
    [6.0, 7.0]
    """
    if mode not in ("raise", "wrap", "clip"):
        raise ValueError(f"take: mode is 'raise', 'wrap' or 'clip', not {mode!r}")
    if mode != "raise":
        (places,) = tensors("take", (indices,))
        a = as_tensor(a)
        length = a.size if axis is None else a.shape[axis]
        if not length and places.size:
            raise IndexError(f"take: cannot take from the empty axis {axis} of shape {a.shape}")
        indices = places % length if mode == "wrap" else maximum(minimum(places, length - 1), 0)
    return tensor.take(a, indices, axis)


def take_along_axis(arr: Tensor, indices: Any, axis: int | None = -1) -> Tensor:
    """Gather elements, like `gather` but in NumPy's order of arguments.

    Examples
    --------
    >>> x, indices = mgb.tensor([[5.0, 6.0], [7.0, 8.0]]), mgb.tensor([[1], [0]])
    >>> mgb.numpy.take_along_axis(x, indices, 1)
    Tensor([[6.],
            [7.]], device=xpux:0)
    """
    if axis is None:
        return gather_(flatten(arr), as_tensor(indices), axis=0)
    return tensor.take_along_axis(arr, as_tensor(indices), axis)
