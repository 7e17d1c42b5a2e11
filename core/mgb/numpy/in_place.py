"""NumPy's functions that write into an array: a Tensor gets a new value; the arguments are NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..functional import tensor
from ..ops.index import scatter
from ..ops.layout import reshape
from ..ops.methods import flatten
from ..ops.primitives import where
from ..ops.scatter import scatter_reduce
from ..tensor import Tensor
from ..tensor.apply import tensors
from . import compositions as c

__all__ = [
    "copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask",
]  # fmt: skip


def copyto(dst: Tensor, src: Any, *, where: Any = True) -> None:
    """Copy `src` into `dst`, where `where` is true."""
    new = tensor.broadcast_to(c.as_tensor(src).astype(dst.dtype), dst.shape)
    dst[...] = new if where is True else tensor.where(where, new, dst)


def putmask(a: Tensor, mask: Any, values: Any) -> None:
    """Write the values, repeated, where the mask is true."""
    values = flatten(c.as_tensor(values)).astype(a.dtype)
    every = tensor.take(values, np.arange(a.size) % values.size, 0)
    a[...] = where(c.as_tensor(mask), reshape(every, shape=a.shape), a)


def place(arr: Tensor, mask: Any, vals: Any) -> None:
    """Write the values, one after the other, where the mask is true."""
    mask = flatten(c.as_tensor(mask)).astype("bool")
    values = flatten(c.as_tensor(vals)).astype(arr.dtype)
    if not values.size:
        return
    turn = (c.cumsum(mask.astype("int32")) - 1) % values.size
    arr[...] = reshape(where(mask, tensor.take(values, turn, 0), flatten(arr)), shape=arr.shape)


def put(a: Tensor, ind: Any, v: Any) -> None:
    """Write the values, one after the other, at flat indices."""
    (places,) = tensors("put", (ind,))
    places, values = flatten(places), flatten(c.as_tensor(v)).astype(a.dtype)
    flat = +flatten(a)
    flat[places] = tensor.take(values, np.arange(places.size) % values.size, 0)
    a[...] = reshape(flat, shape=a.shape)


def put_along_axis(arr: Tensor, indices: Any, values: Any, axis: int | None) -> None:
    """Write the values where `take_along_axis` takes."""
    (indices,) = tensors("put_along_axis", (indices,))
    flat, along = (flatten(arr), 0) if axis is None else (arr, axis)
    source = tensor.broadcast_to(c.as_tensor(values).astype(arr.dtype), indices.shape)
    arr[...] = reshape(scatter(flat, along, indices, source), shape=arr.shape)


def fill_diagonal(a: Tensor, val: Any, wrap: bool = False) -> None:
    """Write the values along the diagonal; `wrap` starts again below a square."""
    columns = a.shape[1] if a.ndim == 2 else a.shape[0]
    step = columns + 1 if a.ndim == 2 else 1 + sum(columns**i for i in range(1, a.ndim))
    end = a.size if wrap or a.ndim > 2 else columns * columns
    places = np.arange(0, min(int(end), a.size), step)
    put(a, places, val)


def at(fold: str, sign: int = 1) -> Callable[[Tensor, Any, Any], None]:
    """Make ``np.add.at`` and the like: values are reduced into elements, as often as an index occurs."""

    def folded(a: Tensor, indices: Any, b: Any) -> None:
        places = reshape(tensor.arange(a.size, dtype="int32", device=a.device), shape=a.shape)[indices]
        values = tensor.broadcast_to(c.as_tensor(b).astype(a.dtype), places.shape)
        values = values if sign > 0 else -values
        a[...] = reshape(scatter_reduce(flatten(a), 0, flatten(places), flatten(values), fold), shape=a.shape)

    return folded
