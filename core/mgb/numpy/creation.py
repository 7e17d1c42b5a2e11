"""The array API standard's functions that make Tensors: without a dtype, of float32 or int64."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Number
from typing import Any, Literal

import numpy as np

from ..functional.matrices import tril as _tril
from ..functional.matrices import triu as _triu
from ..functional.tensor import meshgrid as _meshgrid
from ..functional.tensor import ones, ones_like, stack, zeros, zeros_like
from ..functional.tensor import zeros as empty
from ..functional.tensor import zeros_like as empty_like
from ..ir import dtypes
from ..ir.scalars import plain
from ..ops import creation, methods
from ..runtime import device as devices
from ..tensor import Tensor, as_given
from ..tensor import from_dlpack as _from_dlpack
from .data_types import astype, default

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace",
    "meshgrid", "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip


def _kind_of(*numbers: Any) -> str:
    """Return the kind of what is made of these numbers."""
    kinds = {np.asarray(plain(n)).dtype.kind if not isinstance(n, Tensor) else n.dtype.kind for n in numbers}
    return "integral" if kinds <= set("iub") else "real floating"


def asarray(obj: Any, /, *, dtype: Any = None, device: str | None = None, copy: bool | None = None) -> Tensor:
    """Return `obj` as a Tensor.

    Parameters
    ----------
    obj : Tensor, array, number, or nested sequence of numbers or Tensors
        An array keeps its dtype, unlike in ``tensor(obj)``; Python's floats become float32, integers int64.
    dtype : dtype, optional
    device : str, optional
        None is that of `obj`, or the default one.
    copy : bool, optional
        False: the Tensor `obj` itself. None: that if it is possible. True: another Tensor.

    Raises
    ------
    ValueError
        `copy` is False, and `obj` is not such a Tensor.

    Examples
    --------
    >>> mgb.numpy.asarray(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([-1.,  0.,  2.], device=xpux:0)
    """
    if not isinstance(obj, Tensor):
        if copy is False:
            raise ValueError(
                f"asarray: copy=False is only for Tensors, got {type(obj).__name__}, which is copied: leave "
                "copy out"
            )
        if isinstance(obj, list | tuple) and _holds_tensors(obj):
            parts = [asarray(one, dtype=dtype, device=device) for one in obj]
            return stack(parts, 0)
        if isinstance(obj, Number):
            return full((), obj, dtype=dtype, device=device)
        return Tensor(obj, _natural(obj) if dtype is None else dtype, device)
    made = astype(obj, obj.dtype if dtype is None else dtype, copy=copy is True, device=device)
    if copy is False and made is not obj:
        raise ValueError(
            f"asarray: copy=False cannot change dtype or device, which are {obj.dtype} and {obj.device}"
        )
    return made


def _holds_tensors(obj: Sequence[Any]) -> bool:
    return any(isinstance(x, Tensor) or (isinstance(x, list | tuple) and _holds_tensors(x)) for x in obj)


def _natural(obj: Any) -> np.dtype[Any]:
    """Return the dtype of an array, or that of what is made of numbers."""
    obj = plain(obj)
    dtype: np.dtype[Any] = as_given(obj).dtype
    if hasattr(obj, "dtype") or dtype not in dtypes.INEXACT:
        return dtype
    return dtypes.constructed(dtype)


def full(shape: creation.Shape, fill_value: Any, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Return `fill_value` everywhere; without a `dtype`, a float makes float32, an integer int64.

    Examples
    --------
    >>> mgb.numpy.full((2,), 7)
    Tensor([7, 7], dtype=int64, device=xpux:0)
    """
    if dtype is None and not isinstance(fill_value, Tensor):
        dtype = _natural(fill_value)
    return creation.full(shape, fill_value, dtype, device)


def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Return `fill_value` everywhere, with the shape, dtype and device of `x`.

    Examples
    --------
    >>> mgb.numpy.full_like(mgb.tensor([1, 2]), 7)
    Tensor([7, 7], dtype=int32, device=xpux:0)
    """
    return creation.full_like(x, fill_value, dtype, device)


def arange(
    start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: str | None = None
) -> Tensor:
    """Return ``start, start + step, ...`` up to `stop`, which is left out; of integers int64, else float32.

    Examples
    --------
    >>> mgb.numpy.arange(1, 7, 2)
    Tensor([1, 3, 5], dtype=int64, device=xpux:0)
    """
    kind = _kind_of(start, step, *(() if stop is None else (stop,)))
    return creation.arange(start, stop, step, default(dtype, kind), device)


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: str | None = None,
    endpoint: bool = True,
) -> Tensor:
    """Return `num` evenly spaced numbers from `start` to `stop`, which is left out if `endpoint` is False.

    Examples
    --------
    >>> mgb.numpy.linspace(0, 1, 5)
    Tensor([0.  , 0.25, 0.5 , 0.75, 1.  ], device=xpux:0)
    """
    return creation.linspace(start, stop, num, default(dtype, "real floating"), device, endpoint)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: str | None = None
) -> Tensor:
    """Return 1 on the `k`-th diagonal of a matrix, 0 beside it.

    Examples
    --------
    >>> mgb.numpy.eye(2, 3, k=1)
    Tensor([[0., 1., 0.],
            [0., 0., 1.]], device=xpux:0)
    """
    return creation.eye(n_rows, n_cols, default(dtype, "real floating"), device, k)


def meshgrid(*arrays: Tensor, indexing: Literal["xy", "ij"] = "xy") -> list[Tensor]:
    """Return the coordinates of a grid from those of its axes: see `mgb.functional.meshgrid`.

    Examples
    --------
    >>> x, y = mgb.numpy.meshgrid(mgb.tensor([1.0, 2.0, 3.0]), mgb.tensor([4.0, 5.0]))
    >>> x
    Tensor([[1., 2., 3.],
            [1., 2., 3.]], device=xpux:0)
    """
    return list(_meshgrid(*arrays, indexing=indexing))


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return 0 above the `k`-th diagonal of the matrices in the last two axes.

    Examples
    --------
    >>> mgb.numpy.tril(mgb.tensor([[1.0, 2.0], [4.0, 3.0]]))
    Tensor([[1., 0.],
            [4., 3.]], device=xpux:0)
    """
    return _tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return 0 below the `k`-th diagonal of the matrices in the last two axes.

    Examples
    --------
    >>> mgb.numpy.triu(mgb.tensor([[1.0, 2.0], [4.0, 3.0]]))
    Tensor([[1., 2.],
            [0., 3.]], device=xpux:0)
    """
    return _triu(x, k)


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """Return a Tensor on the memory of another library's array.

    Parameters
    ----------
    x : object with ``__dlpack__``
    device : str, optional
        Where the Tensor is to be; None is where `x` is.
    copy : bool, optional
        True: on memory of its own. False: an error where the memory of `x` does not do.

    Raises
    ------
    ValueError
        `copy` is False and `device` another one.
    ConversionError
        The dtype is none that mgb knows.

    Examples
    --------
    >>> mgb.numpy.from_dlpack(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([-1.,  0.,  2.], device=xpux:0)
    """
    made = _from_dlpack(x)
    if copy:
        made = Tensor(made._array(), made.dtype, made.device)
    if device is None or made.device == device:
        return made
    if copy is False and not devices.same_place(made.device, devices.canonical(device)):
        raise ValueError(f"from_dlpack: copy=False cannot move the array from {made.device} to {device}")
    return methods.to(made, device)
