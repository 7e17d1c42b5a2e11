"""The methods of `Tensor` that are ops: shape, reduction, dtype, device, index; one table attaches them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import ConversionError, DeviceError, ShapeError
from ..ir import Kind, Op, Spec, dtypes
from ..runtime import device as devices
from ..runtime.precision import HIGH
from ..tensor import Tensor
from ..tensor.apply import autocasted, tensors
from .creation import as_shape, zeros_like
from .declare import declare, normalize_axis
from .elementwise import conj
from .getitem import getitem, updated
from .layout import reshape, transpose
from .primitives import cast, imag, real
from .reduce import (
    extent,
    integer_product,
    integer_sum,
    reduce_max,
    reduce_min,
    reduce_prod,
    reduce_sum,
)

Axis = int | Sequence[int] | None


def _transfer(x: Any, device: str) -> Any:
    return devices.place(x, device)


def _transfer_infer(x: Spec, device: str) -> Spec:
    return Spec(x.shape, x.dtype, device)


def _transfer_grad(g: Tensor, _y: Spec, _x: Spec, device: str) -> tuple[Tensor]:
    return (transfer(g, device=_x.device),)


transfer = declare(
    Op(
        "transfer",
        Kind.OPAQUE,
        _transfer_infer,
        _transfer,
        _transfer_grad,
        cost=lambda _node: 0,
        crosses=True,
        meaning="`x` in the memory of another device.",
    )
)


def to(self: Tensor, device: Any, dtype: Any = None) -> Tensor:
    """Return the same value on another device, as another dtype, or both.

    Parameters
    ----------
    self : Tensor
        The value.
    device : str or dtype
        A device, ``"gpu0"``; or a dtype, ``"float16"``.
    dtype : dtype, optional
        Beside a device.

    Raises
    ------
    DeviceError
        `device` is the name of neither.
    """
    where, wanted = destination(device, dtype)
    out = self if wanted is None or wanted == self.dtype else cast(self, dtype=wanted)
    return out if where is None else transfer(out, device=where)


def destination(device: Any, dtype: Any = None) -> tuple[str | None, np.dtype[Any] | None]:
    """Return the canonical name of the device and the dtype that the arguments of `to` mean.

    None: as it is.
    """
    wanted = None if dtype is None else dtypes.as_dtype(dtype)
    try:
        return devices.canonical(device), wanted
    except (DeviceError, TypeError):
        try:
            return None, dtypes.as_dtype(device)
        except ConversionError:
            known = "a device, such as 'xpux' or 'gpu0', nor a dtype, such as 'float16'"
            raise DeviceError(f"to({device!r}): that is neither {known}") from None


def to_device(self: Tensor, device: str, /, *, stream: None = None) -> Tensor:
    """Return the same value on `device`; its name has the stream.

    Raises
    ------
    ValueError
        A `stream` is given.
    """
    if stream is not None:
        raise ValueError("to_device: stream is part of the device's name, as in 'gpu0:1': leave stream out")
    return to(self, device)


def astype(self: Tensor, dtype: Any) -> Tensor:
    """Return the same values as `dtype`; a float becomes an integer by truncation."""
    return cast(self, dtype=dtypes.as_dtype(dtype))


def reshaped(self: Tensor, *shape: Any) -> Tensor:
    """Return the same elements in row-major order under another shape.

    Parameters
    ----------
    self : Tensor
        The elements.
    *shape : int, or one sequence of int
        One of them may be -1: it is worked out from the number of elements.

    Raises
    ------
    ShapeError
        The elements do not fit.
    """
    wanted = as_shape(shape[0] if len(shape) == 1 else shape, "reshape: the shape")
    if -1 in wanted:
        wanted = _without_unknown(self, wanted)
    return reshape(self, shape=wanted)


def _without_unknown(x: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    known = math.prod(d for d in shape if d != -1)
    if shape.count(-1) > 1 or not known or x.size % known:
        raise ShapeError(f"reshape: {x.shape} has {x.size} elements and does not fit in {shape}")
    return tuple(x.size // known if d == -1 else d for d in shape)


def transposed(self: Tensor, *axes: Any) -> Tensor:
    """Return the axes in another order; without arguments, reversed.

    Parameters
    ----------
    self : Tensor
        The elements.
    *axes : int, or one sequence of int
        A permutation of the axes.
    """
    order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
    if not order:
        return transpose(self, axes=tuple(range(self.ndim))[::-1])
    return transpose(
        self, axes=tuple(a + self.ndim if a < 0 else a for a in as_shape(order, "transpose: axes"))
    )


def flatten(self: Tensor, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """Return the axes from `start_axis` to `end_axis`, both included, as one.

    Examples
    --------
    >>> F.flatten(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor([-1.,  0.,  2.], device=xpux:0)
    """
    shape = self.shape or (1,)
    (start,) = normalize_axis("flatten", start_axis, len(shape))
    (end,) = normalize_axis("flatten", end_axis, len(shape))
    if start > end:
        raise ShapeError(f"flatten: axis {start_axis} comes after axis {end_axis}")
    return reshape(self, shape=(*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :]))


def reduced(name: str, reduction: Callable[..., Tensor], x: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    """Return `reduction`, known as `name`, over `axis`; the axes stay with length 1 if `keepdims` says so."""
    axes = normalize_axis(name, axis, x.ndim)
    out = reduction(x, axis=axes)
    if keepdims or not axes:
        return out
    return reshape(out, shape=tuple(d for i, d in enumerate(out.shape) if i not in axes))


def average(x: Tensor, axis: tuple[int, ...]) -> Tensor:
    """Return the mean over `axis`, which stays with length 1. 16-bit floats are rounded once, at the end."""
    (x,) = autocasted(HIGH, (x,))
    if x.dtype in dtypes.INEXACT and x.dtype not in dtypes.HALVES:
        return reduce_sum(x, axis=axis) / extent(x, axis=axis)
    mean = average(cast(x, dtype=dtypes.float32), axis)
    return cast(mean, dtype=x.dtype) if x.dtype in dtypes.HALVES else mean


def accumulated(x: Tensor, dtype: Any = None) -> Tensor:
    """Return `x` in the dtype of sums and products: 64 bits for integers, if `dtype` is None."""
    wanted = dtypes.summed(x.dtype) if dtype is None else dtypes.as_dtype(dtype)
    return x if x.dtype == wanted else cast(x, dtype=wanted)


def sum(self: Tensor, axis: Axis = None, keepdims: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the sum over `axis`, computed in `dtype`: without one, that of integers has 64 bits.

    Examples
    --------
    >>> mgb.numpy.sum(mgb.tensor([-1.0, 0.0, 2.0]))
    Tensor(1., device=xpux:0)
    """
    if dtype is None and self.dtype not in dtypes.INEXACT:
        return reduced("sum", integer_sum, self, axis, keepdims)
    return reduced("sum", reduce_sum, self if dtype is None else astype(self, dtype), axis, keepdims)


def prod(self: Tensor, axis: Axis = None, keepdims: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the product over `axis`, computed in `dtype`: without one, that of integers has 64 bits.

    Examples
    --------
    >>> mgb.numpy.prod(mgb.tensor([2.0, 3.0]))
    Tensor(6., device=xpux:0)
    """
    if dtype is None and self.dtype not in dtypes.INEXACT:
        return reduced("prod", integer_product, self, axis, keepdims)
    return reduced("prod", reduce_prod, self if dtype is None else astype(self, dtype), axis, keepdims)


def _refuse_nothing(name: str, x: Tensor, axis: Axis) -> None:
    """Reject an extreme of an empty array, like NumPy, unless the result is empty too."""
    axes = () if x.size else normalize_axis(name, axis, x.ndim)
    if axes and all(d for i, d in enumerate(x.shape) if i not in axes):
        raise ShapeError(f"{name} of an empty array: shape {x.shape}, axis {axes}")


def min(self: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the least element over `axis`; NaN if there is one."""
    _refuse_nothing("min", self, axis)
    return reduced("min", reduce_min, self, axis, keepdims)


def max(self: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the greatest element over `axis`; NaN if there is one."""
    _refuse_nothing("max", self, axis)
    return reduced("max", reduce_max, self, axis, keepdims)


def mean(self: Tensor, axis: Axis = None, keepdims: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the average over `axis`, always a float, computed in `dtype`."""
    return reduced("mean", average, self if dtype is None else astype(self, dtype), axis, keepdims)


def _setitem(self: Tensor, key: Any, value: Any) -> None:
    self._reset(updated(self, key, value))


def _reversed_axes(self: Tensor) -> Tensor:
    """Return the axes reversed."""
    return transposed(self)


def _real(self: Tensor) -> Tensor:
    """Return the real parts."""
    return real(self) if self.dtype in dtypes.COMPLEX else +self


def _imag(self: Tensor) -> Tensor:
    """Return the imaginary parts; of real numbers 0."""
    return imag(self) if self.dtype in dtypes.COMPLEX else zeros_like(self)


def _conj(self: Tensor) -> Tensor:
    """Return the conjugates; real numbers are their own."""
    return conj(self) if self.dtype in dtypes.COMPLEX else +self


def matrix_transpose(x: Any, /) -> Tensor:
    """Return the matrices in the last two axes transposed.

    Examples
    --------
    >>> mgb.numpy.matrix_transpose(mgb.tensor([[1.0, 2.0], [4.0, 3.0]]))
    Tensor([[1., 4.],
            [2., 3.]], device=xpux:0)
    """
    (x,) = tensors("matrix_transpose", (x,))
    if x.ndim < 2:
        raise ShapeError(f"matrix_transpose: needs matrices in the last two axes, got shape {x.shape}")
    return transpose(x, axes=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


# fmt: off
METHODS: dict[str, Any] = {
    "real": property(_real), "imag": property(_imag), "conj": _conj, "conjugate": _conj,
    "astype": astype, "to": to, "to_device": to_device,
    "reshape": reshaped, "transpose": transposed, "flatten": flatten,
    "T": property(_reversed_axes), "mT": property(matrix_transpose),
    "sum": sum, "prod": prod, "min": min, "max": max, "mean": mean,
    "__getitem__": getitem, "__setitem__": _setitem,
}
# fmt: on

for _name, _method in METHODS.items():
    setattr(Tensor, _name, _method)
