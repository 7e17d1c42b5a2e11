"""Helpers of eager rules, for what NumPy does not do in one call.

Eager rules serve NumPy's arrays and CuPy's: NumPy's functions hand over to CuPy where it has one of that name
and those parameters. New arrays are made in the likeness of one that is given.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from ..ir import dtypes
from ..runtime import memory
from ..runtime.device import array_module
from ..tensor import ready_to_round


def fma(a: Any, b: Any, c: Any) -> Any:
    """Return ``a * b + c``; one rounding or two, as the machine likes."""
    return a * b + c


def real(x: Any) -> Any:
    return np.real(x).copy()


def imag(x: Any) -> Any:
    return np.imag(x).copy()


def complex_of_parts(a: Any, b: Any) -> Any:
    like = (
        b if isinstance(a, np.generic) else a
    )  # a constant may be a number of NumPy's beside arrays of a GPU
    shape = np.broadcast_shapes(a.shape, b.shape)
    parts = np.empty_like(like, order="C", shape=(*shape, 2))
    parts[..., 0], parts[..., 1] = a, b
    return parts.view(dtypes.complex_of(a.dtype)).reshape(shape)


def where(condition: Any, a: Any, b: Any) -> Any:
    """Return ``np.where(condition, a, b)``; where it is large five times as fast, by bits and no branches."""
    shape, dtype = np.shape(condition), a.dtype
    alike = dtype == b.dtype and dtype.itemsize in _BITS and all(x.shape in (shape, ()) for x in (a, b))
    if type(condition) is not np.ndarray or condition.size < _CHOICES or not alike:
        return np.where(condition, a, b)
    out, bits = memory.empty(shape, dtype), _BITS[dtype.itemsize]
    flat, chosen = out.reshape(-1).view(bits), condition.reshape(-1)
    a, b = (x.reshape(-1).view(bits) for x in (a, b))
    for start in range(0, chosen.size, BLOCK):
        part = slice(start, start + BLOCK)
        mask, base = chosen[part].astype(bits), b[part] if b.size > 1 else b
        np.negative(mask, out=mask)
        np.bitwise_xor(a[part] if a.size > 1 else a, base, out=flat[part])
        flat[part] &= mask
        flat[part] ^= base
    return out


#: Elements from which bits are worth it, and integers of as many bytes.
_CHOICES = 1 << 12
_BITS = {4: np.int32, 8: np.int64}


def cast(x: Any, dtype: np.dtype[Any]) -> Any:
    """Cast; a float is truncated. What a value out of range, or NaN, gives depends on the machine."""
    dtypes.check_cast(x.dtype, dtype)
    return ready_to_round(x, dtype).astype(dtype)


def take(x: Any, index: Any, axis: int) -> Any:
    """Return ``x.take(index, axis)``, for large results on memory that was used before."""
    index = index.astype(np.intp, copy=False)
    shape, length = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), x.shape[axis]
    if not _is_large(shape, x) or index.min() < -length or index.max() >= length:
        return x.take(index, axis)  # it says which index is out of range
    return np.take(x, index, axis, out=memory.empty(shape, x.dtype), mode="wrap")


def concat(*xs: Any, axis: int) -> Any:
    """Return ``np.concatenate(xs, axis)``, for large results on memory that was used before."""
    length = sum(x.shape[axis] for x in xs)
    shape = (*xs[0].shape[:axis], length, *xs[0].shape[axis + 1 :])
    out = memory.empty(shape, xs[0].dtype) if _is_large(shape, xs[0]) else None
    return np.concatenate(xs, axis, out=out)


def _is_large(shape: tuple[int, ...], like: Any) -> bool:
    """Return whether a fresh array of `shape` costs page faults."""
    return isinstance(like, np.ndarray) and math.prod(shape) * like.itemsize >= memory.SMALL


def bitcast(x: Any, dtype: np.dtype[Any]) -> Any:
    return np.copy(x, order="C").reshape(-1).view(dtype).reshape(x.shape)


def iota(shape: tuple[int, ...], dtype: np.dtype[Any], device: str = "xpux:0") -> Any:
    return array_module(device).arange(math.prod(shape)).astype(dtype).reshape(shape)


#: Dtypes whose sums CuPy cannot make at places that stand several times, and those that serve them: with as
#: many bits the sum has the same bits, with more it is cut off.
_SUMMED_AS = {
    **dict.fromkeys((dtypes.bool_, dtypes.int8, dtypes.int16, dtypes.uint8, dtypes.uint16), dtypes.int32),
    dtypes.int64: dtypes.uint64,
}


def add_at(x: Any, key: Any, value: Any) -> Any:
    """Return `x` with `value` added at ``x[key]``, several times where a place stands several times."""
    summed = x.dtype if isinstance(x, np.ndarray) else _SUMMED_AS.get(x.dtype, x.dtype)
    out = x.astype(summed, order="C")  # a copy, of the same dtype too
    np.add.at(out, key, value.astype(summed, copy=False))
    return out.astype(x.dtype, copy=False)


#: Elements from which sorting the rows is worth it.
_MANY = 1 << 15

#: Elements of a row from which that is quicker.
_WIDE = 8

#: How many values that go to one row are added side by side with those of other rows.
_FEW = 16

#: Elements of a row from which a call for each row is quicker than a walk across the rows.
_LONG = 1 << 8


def add_to_rows(x: Any, rows: Any, value: Any) -> Any:
    """Return `x` with ``value[k]`` added to ``x[rows[k]]``, where it is large 6 times as fast as `add_at`.

    The values of each row are summed in their order.
    """
    much = math.prod(x.shape[1:]) >= _WIDE and rows.size * math.prod(x.shape[1:]) >= _MANY
    if not (much and type(x) is np.ndarray and x.dtype.kind in "fiu" and x.dtype.itemsize >= 4):
        return add_at(x, (rows,), value)
    short = np.uint16 if len(x) <= 1 << 16 else np.intp  # which NumPy sorts ten times as fast
    places = np.arange(len(x), dtype=short).take(rows.reshape(-1))  # of the rows, counted from the start
    parts = np.broadcast_to(value, (*rows.shape, *x.shape[1:])).reshape(len(places), -1)
    counts = np.bincount(places)
    most_first = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    starts = (counts.cumsum() - counts)[most_first]
    out = x.reshape(len(x), -1).copy()
    out[most_first] += _summed_runs(parts, np.argsort(places, kind="stable"), starts, counts[most_first])
    return out.reshape(x.shape)


def _summed_runs(parts: Any, order: Any, starts: Any, counts: Any) -> Any:
    """Return for each start the sum of so many rows of ``parts[order]``; `counts` fall."""
    sums = parts.take(order[starts], axis=0)
    for k in range(1, min(_FEW, counts[0])):
        longer = np.count_nonzero(counts > k)
        sums[:longer] += parts.take(order[starts[:longer] + k], axis=0)
    for run in range(np.count_nonzero(counts > _FEW)):
        rows = order[starts[run] : starts[run] + counts[run]]
        np.add.reduce(parts.take(rows, axis=0), axis=0, out=sums[run])
    return sums


def accumulate(ufunc: np.ufunc, x: Any, axis: int) -> Any:
    """Return all elements up to each, joined by `ufunc`.

    By rows where these are long: NumPy goes along `axis`, through a cache line for each element.
    """
    if type(x) is not np.ndarray:
        return _doubled(ufunc, x.copy(), axis)
    if axis == x.ndim - 1 or math.prod(x.shape) < _LONG * x.shape[axis]:
        return ufunc.accumulate(x, axis=axis, dtype=x.dtype)
    out = np.empty(x.shape, x.dtype)
    rows, sums = np.moveaxis(x, axis, 0), np.moveaxis(out, axis, 0)
    sums[:1] = rows[:1]
    for k in range(1, len(rows)):
        ufunc(sums[k - 1], rows[k], out=sums[k])
    return out


def _doubled(ufunc: np.ufunc, out: Any, axis: int) -> Any:
    """Run `accumulate` in place by functions that CuPy has: a step for each doubling of the length."""
    rows, reach = np.moveaxis(out, axis, 0), 1
    while reach < len(rows):
        rows[reach:] = ufunc(rows[:-reach], rows[reach:])
        reach *= 2
    return out


def shl(x: Any, count: Any) -> Any:
    return np.left_shift(x, count & (x.dtype.itemsize * 8 - 1))


def shr(x: Any, count: Any) -> Any:
    return np.right_shift(x, count & (x.dtype.itemsize * 8 - 1))


def mulhi(a: Any, b: Any) -> Any:
    bits = a.dtype.itemsize * 8
    if bits < 64:
        wide = np.dtype(f"{a.dtype.kind}{2 * a.dtype.itemsize}")
        return (a.astype(wide) * b.astype(wide) >> wide.type(bits)).astype(a.dtype)
    if type(a) is np.ndarray and a.dtype.kind == "u" and b.ndim == 0 and b.item() >> 32 == 0:
        return _mulhi_by_word(a, b)
    half, mask = a.dtype.type(32), a.dtype.type(0xFFFFFFFF)
    al, ah, bl, bh = a & mask, a >> half, b & mask, b >> half
    low = (al.astype(np.uint64) * bl.astype(np.uint64) >> np.uint64(32)).astype(a.dtype)
    middle = ah * bl + low
    other = al * bh + (middle & mask)
    return ah * bh + (middle >> half) + (other >> half)


#: Elements that stay in a core's own cache between the steps of an eager rule.
BLOCK = 1 << 14


def _mulhi_by_word(a: Any, b: Any) -> Any:
    """Return `mulhi` of numbers of 64 bits and one of 32, block by block."""
    half, mask, out = np.uint64(32), np.uint64(0xFFFFFFFF), np.empty(a.shape, a.dtype)
    flat, written, low = a.reshape(-1), out.reshape(-1), np.empty(min(BLOCK, a.size), a.dtype)
    for start in range(0, a.size, BLOCK):
        part, high = flat[start : start + BLOCK], written[start : start + BLOCK]
        below = np.bitwise_and(part, mask, out=low[: part.size])
        below *= b
        below >>= half
        np.right_shift(part, half, out=high)
        high *= b
        high += below
        high >>= half
    return out


def clip(x: Any, low: Any, high: Any) -> Any:
    """Return `x` within the bounds, the lower one first; NumPy's function, where zeros come out the same."""
    if type(x) is np.ndarray and low.size == high.size == 1 and low <= high and high != 0:
        if low != 0 or x.dtype.kind != "f":
            return np.clip(x, low, high)
        if not np.signbit(low):
            return np.clip(x, low, high) + low  # -0 becomes 0
    return np.where(np.less_equal(x, low), low, np.where(np.less(high, x), high, x))


def windows(x: Any, kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]) -> Any:
    """Return a view (N, C, kh, kw, oh, ow) of the elements of images (N, C, H, W) that each tap meets."""
    counts = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)
    ]
    steps = x.strides[2:]
    between = [d * step for d, step in zip(dilation, steps, strict=True)]
    onwards = [s * step for s, step in zip(stride, steps, strict=True)]
    if isinstance(x, np.ndarray):
        strided = partial(np.lib.stride_tricks.as_strided, writeable=False)
    else:
        strided = array_module("gpu0").lib.stride_tricks.as_strided
    return strided(x, (*x.shape[:2], *kernel, *counts), (*x.strides[:2], *between, *onwards))


def erf(x: Any) -> Any:
    from scipy import special

    return special.erf(x)
