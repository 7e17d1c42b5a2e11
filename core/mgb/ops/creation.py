"""Creation of arrays from constants and ``iota``, so that they fuse with their readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..ir import Spec, dtypes
from ..ir.sizes import Size, whole
from ..runtime import device as devices
from ..tensor import Tensor
from ..tensor.apply import literal
from .layout import broadcast_to
from .primitives import cast, eq, iota

Shape = int | Sequence[int]


def as_shape(shape: Any, name: str = "a shape") -> tuple[int, ...]:
    """Return `shape`, given as an integer, a sequence or an integer Tensor, as a tuple.

    Raises
    ------
    ConversionError
        Something in it is not an integer; the message begins with `name`, the function and its argument.
    """
    if isinstance(shape, (Tensor, np.ndarray)) and shape.ndim:
        shape = shape.tolist()
    if isinstance(shape, (tuple, list)):
        for d in shape:
            if type(d) is not int:
                return tuple(whole(d, f"{name}, each") for d in shape)
        return tuple(shape)
    return (whole(shape, name),)


def is_single(number: Any) -> bool:
    """Return whether it is one number, and no sequence or array of them."""
    if isinstance(number, Tensor | np.ndarray):
        return not number.ndim
    return isinstance(number, str) or not isinstance(number, Sequence)


def _device(device: str | None) -> str:
    return devices.canonical(device or "xpux")


def full(shape: Shape, value: Any, dtype: Any = None, device: str | None = None) -> Tensor:
    """Return `value` everywhere.

    Parameters
    ----------
    shape : int or sequence of int
        Of the result.
    value : scalar or Tensor
        Broadcasts to `shape`.
    dtype : dtype, optional
        Of the result; None is that of ``tensor(value)``: float32, int32 or bool for a scalar.
    device : str, optional
        None is the default device.

    Examples
    --------
    >>> F.full((2, 2), 7)
    Tensor([[7, 7],
            [7, 7]], dtype=int32, device=xpux:0)
    """
    if not isinstance(value, Tensor):
        value = literal(value, dtype, _device(device))
    elif dtype is not None and value.dtype != dtypes.as_dtype(dtype):
        value = cast(value, dtype=dtypes.as_dtype(dtype))
    return broadcast_to(value, shape=as_shape(shape, "full: shape"))


def zeros(shape: Shape, dtype: Any = None, device: str | None = None) -> Tensor:
    """Return 0 everywhere, of float32 without a `dtype`; see `full`.

    Examples
    --------
    >>> F.zeros((2,))
    Tensor([0., 0.], device=xpux:0)
    """
    return full(shape, 0, dtype or dtypes.float32, device)


def ones(shape: Shape, dtype: Any = None, device: str | None = None) -> Tensor:
    """Return 1 everywhere, of float32 without a `dtype`; see `full`.

    Examples
    --------
    >>> F.ones((2,))
    Tensor([1., 1.], device=xpux:0)
    """
    return full(shape, 1, dtype or dtypes.float32, device)


def full_like(inp: Tensor | Spec, value: Any, dtype: Any = None, device: str | None = None) -> Tensor:
    """Return `value` everywhere, with the shape, dtype and device of `inp`.

    Examples
    --------
    >>> F.full_like(mgb.tensor([1, 2]), 7)
    Tensor([7, 7], dtype=int32, device=xpux:0)
    """
    return full(inp.shape, value, dtype or inp.dtype, device or inp.device)


def zeros_like(inp: Tensor | Spec, dtype: Any = None, device: str | None = None) -> Tensor:
    """Return 0 everywhere, with the shape, dtype and device of `inp`.

    Examples
    --------
    >>> F.zeros_like(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([0., 0., 0.], device=xpux:0)
    """
    return full_like(inp, 0, dtype, device)


def ones_like(inp: Tensor | Spec, dtype: Any = None, device: str | None = None) -> Tensor:
    """Return 1 everywhere, with the shape, dtype and device of `inp`.

    Examples
    --------
    >>> F.ones_like(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([1., 1., 1.], device=xpux:0)
    """
    return full_like(inp, 1, dtype, device)


def arange(
    start: float | Tensor = 0,
    stop: float | Tensor | None = None,
    step: float | Tensor = 1,
    dtype: Any = "float32",
    device: str | None = None,
) -> Tensor:
    """Return ``start, start + step, ...`` below `stop`; ``arange(n)`` counts from 0 to n - 1.

    Each may be a 0-d Tensor; how many there are depends on its value, which is read inside a trace.

    Returns
    -------
    Tensor of shape (ceil((stop - start) / step),)

    Raises
    ------
    ValueError
        `step` is 0.

    Examples
    --------
    >>> F.arange(3)
    Tensor([0., 1., 2.], device=xpux:0)
    """
    if stop is None:
        start, stop = 0, start
    first, last, by = (t.item() if isinstance(t, Tensor) else t for t in (start, stop, step))
    if by == 0:
        raise ValueError("arange: step must not be 0")
    wanted = dtypes.as_dtype(dtype)
    count = max(0, _steps(last - first, by))
    places = iota(shape=(count,), dtype=wanted, device=_device(device))
    if isinstance(step, Tensor) or step != 1:
        places = cast(places * _term(step, wanted), dtype=wanted)
    if isinstance(start, Tensor) or start != 0:
        places = cast(places + _term(start, wanted), dtype=wanted)
    return places


def _steps(way: Any, by: Any) -> int:
    """Return ``ceil(way / by)``, followed where `way` is a size."""
    steps: int = -(-way // by) if type(way) is Size and type(by) is int else int(np.ceil(way / by))
    return steps


def _term(number: Any, dtype: np.dtype[Any]) -> Any:
    """Return a Tensor as it is, since its value may vary between calls; one of integers gets `dtype`."""
    return cast(number, dtype=dtype) if getattr(number, "dtype", None) in dtypes.INTEGERS else number


def _length(name: str, length: Any) -> int:
    count: int = whole(length, "linspace: num")
    if count < 0:
        raise ShapeError(f"{name}: a length must be at least 0, got {length}")
    return count


def linspace(
    start: Any,
    stop: Any,
    num: int,
    dtype: Any = "float32",
    device: str | None = None,
    endpoint: bool = True,
) -> Tensor:
    """Return `num` evenly spaced numbers from `start` to `stop`, both of them included exactly.

    Parameters
    ----------
    start, stop : float or 0-d Tensor
        The first and the last number.
    num : int
        How many.
    dtype : dtype
        Of the result.
    device : str, optional
        None is the default device.
    endpoint : bool
        False: `stop` is left out.

    Examples
    --------
    >>> F.linspace(0, 1, 3)
    Tensor([0. , 0.5, 1. ], device=xpux:0)
    """
    wanted = dtypes.as_dtype(dtype)
    computed = wanted if wanted in dtypes.FLOATS else dtypes.float32
    count = _length("linspace", num)
    steps = max(count - bool(endpoint), 1)
    part = iota(shape=(count,), dtype=computed, device=_device(device)) / float(steps)
    return cast(start * (1 - part) + stop * part, dtype=wanted)


def eye(
    N: Shape, M: int | None = None, dtype: Any = "float32", device: str | None = None, k: int = 0
) -> Tensor:
    """Return 1 on a diagonal of a matrix, 0 beside it.

    Parameters
    ----------
    N : int, or a sequence of one or two
        The rows, or rows and columns.
    M : int, optional
        The columns; as many as rows when they are not given.
    dtype : dtype
        Of the result.
    device : str, optional
        None is the default device.
    k : int
        Which diagonal: positive ones are above the main one.

    Examples
    --------
    >>> F.eye(2)
    Tensor([[1., 0.],
            [0., 1.]], device=xpux:0)
    """
    given = as_shape(N, "eye: N") if M is None else (N, M)
    if len(given) not in (1, 2):
        raise ShapeError(f"eye: give rows and columns, at most two numbers, got {given}")
    height, width = (_length("eye", n) for n in (given[0], given[-1]))
    where = _device(device)
    rows = iota(shape=(height, 1), dtype=dtypes.int32, device=where)
    columns = iota(shape=(1, width), dtype=dtypes.int32, device=where)
    k = max(-height, min(k, width))
    return cast(eq(rows + k if k else rows, columns), dtype=dtypes.as_dtype(dtype))


def along(shape: Sequence[int], axis: Sequence[int], dtype: Any, device: str) -> Tensor:
    """Return each element's row-major place among the axes in `axis`; length 1 along the others."""
    places = tuple(d if i in axis else 1 for i, d in enumerate(shape))
    return iota(shape=places, dtype=dtypes.as_dtype(dtype), device=str(device))
