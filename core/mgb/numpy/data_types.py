"""The array API standard's functions of dtypes, and what a program may ask of the namespace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from ..errors import ConversionError
from ..ir import dtypes
from ..ops import methods
from ..runtime import device as devices
from ..tensor import Tensor

__all__ = ["__array_namespace_info__", "astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]

#: The dtypes that functions of the namespace choose when nobody names one.
DEFAULTS = {
    "real floating": dtypes.float32,
    "complex floating": dtypes.complex64,
    "integral": dtypes.int64,
    "indexing": dtypes.int32,
}

#: The dtypes of a kind, by the standard's names of kinds.
KINDS: dict[str, tuple[np.dtype[Any], ...]] = {
    "bool": (dtypes.bool_,),
    "signed integer": dtypes.SIGNED,
    "unsigned integer": dtypes.UNSIGNED,
    "integral": dtypes.INTEGERS,
    "real floating": dtypes.FLOATS,
    "complex floating": dtypes.COMPLEX,
    "numeric": (*dtypes.INTEGERS, *dtypes.INEXACT),
}

#: Those that the standard does not know.
_OWN = dtypes.HALVES


class FloatInfo(NamedTuple):
    """The result of `finfo`."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: np.dtype[Any]


class IntegerInfo(NamedTuple):
    """The result of `iinfo`."""

    bits: int
    max: int
    min: int
    dtype: np.dtype[Any]


def default(dtype: Any, kind: str) -> np.dtype[Any]:
    """Return `dtype`, or without one what is made of that kind."""
    return DEFAULTS[kind] if dtype is None else dtypes.as_dtype(dtype)


def dtype_of(value: Any) -> np.dtype[Any]:
    """Return the dtype of a Tensor, or the dtype that `value` names."""
    return value.dtype if isinstance(value, Tensor) else dtypes.as_dtype(value)


def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: str | None = None) -> Tensor:
    """Return `x` as `dtype`, on `device`.

    Parameters
    ----------
    x : Tensor
    dtype : dtype
        A float becomes an integer by truncation.
    copy : bool
        False: `x` itself where it is so already.
    device : str, optional

    Examples
    --------
    >>> mgb.numpy.astype(mgb.tensor([1.7, -1.7]), "int32")
    Tensor([ 1, -1], dtype=int32, device=xpux:0)
    """
    wanted = dtypes.as_dtype(dtype)
    x = x if device is None or x.device == device else methods.to(x, device)
    return x if not copy and x.dtype == wanted else methods.astype(x, wanted)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Return whether `to` holds every value of `from_`, a dtype or a Tensor.

    Examples
    --------
    >>> mgb.numpy.can_cast("int32", "float64"), mgb.numpy.can_cast("int64", "int32")
    (True, False)
    """
    return np.can_cast(dtype_of(from_), dtypes.as_dtype(to))


def finfo(type: Any, /) -> FloatInfo:
    """Return the limits of a floating-point dtype, or of a complex dtype's parts, or of a Tensor's dtype.

    Raises
    ------
    ConversionError
        It is none.

    Examples
    --------
    >>> mgb.numpy.finfo("float32").eps
    1.1920928955078125e-07
    """
    dtype = dtypes.real_of(dtype_of(type))
    if dtype not in dtypes.FLOATS:
        raise ConversionError(f"finfo: {dtype} is not a floating-point dtype: see iinfo for integers")
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    eps, most, least, normal = map(float, (info.eps, info.max, info.min, info.smallest_normal))
    return FloatInfo(int(info.bits), eps, most, least, normal, dtype)


def iinfo(type: Any, /) -> IntegerInfo:
    """Return the limits of an integer dtype, given by itself or by a Tensor.

    Raises
    ------
    ConversionError
        It is none.

    Examples
    --------
    >>> mgb.numpy.iinfo("int8").max
    127
    """
    dtype = dtype_of(type)
    if dtype not in dtypes.INTEGERS:
        raise ConversionError(f"iinfo: {dtype} is not an integer dtype: see finfo for floats")
    info = np.iinfo(dtype)
    return IntegerInfo(info.bits, int(info.max), int(info.min), dtype)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Return whether `dtype` is of a kind.

    Parameters
    ----------
    dtype : dtype
    kind : str, dtype, or a tuple of these
        ``"bool"``, ``"signed integer"``, ``"unsigned integer"``, ``"integral"``, ``"real floating"``,
        ``"complex floating"`` or ``"numeric"``.

    Raises
    ------
    ValueError
        `kind` is not one of the known kinds.

    Examples
    --------
    >>> mgb.numpy.isdtype(np.dtype("int8"), "signed integer")
    True
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    return dtypes.as_dtype(dtype) in _of_kind(kind)


def _of_kind(kind: Any) -> Sequence[np.dtype[Any]]:
    if isinstance(kind, str) and kind not in KINDS and kind not in dtypes.BY_NAME:
        raise ValueError(f"{kind!r} is not a kind of dtypes; choose one of {', '.join(KINDS)}")
    return KINDS[kind] if isinstance(kind, str) and kind in KINDS else (dtypes.as_dtype(kind),)


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """Return the dtype in which Tensors, dtypes and Python numbers meet.

    Raises
    ------
    ValueError
        There is none of them, or there are numbers alone.

    Examples
    --------
    >>> mgb.numpy.result_type("int16", "uint8").name
    'int16'
    """
    operands = [type(one) if type(one) in dtypes.WEAK else dtype_of(one) for one in arrays_and_dtypes]
    if all(isinstance(one, type) for one in operands):
        raise ValueError("result_type: needs at least one Tensor or dtype")
    return dtypes.common(operands)


class Info:
    """Inspection of the namespace: see the standard's inspection functions."""

    def capabilities(self) -> dict[str, Any]:
        """Return the optional capabilities, and whether they are available; axes may be any number."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> devices.Device:
        """Return where Tensors are made when nobody names a device."""
        return devices.named(devices.default())

    def default_dtypes(self, *, device: str | None = None) -> dict[str, np.dtype[Any]]:
        """Return the dtypes of what is made of Python numbers, and of indices."""
        return dict(DEFAULTS)

    def dtypes(self, *, device: str | None = None, kind: Any = None) -> dict[str, np.dtype[Any]]:
        """Return the standard's dtypes of a kind, or of several, that are here; without one, all of them."""
        kinds = ("bool", "numeric") if kind is None else kind if isinstance(kind, tuple) else (kind,)
        found = [dtype for one in kinds for dtype in _of_kind(one)]
        return {dtype.name: dtype for dtype in found if dtype not in _OWN}

    def devices(self) -> list[devices.Device]:
        """Return where Tensors may be."""
        names = ["xpux", *(f"gpu{i}" for i in range(devices.get_device_count("gpu")))]
        return [devices.named(devices.canonical(name)) for name in names]


def __array_namespace_info__() -> Info:
    """Return the inspection object of the namespace."""
    return Info()
