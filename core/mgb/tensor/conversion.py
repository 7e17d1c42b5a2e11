"""Data of users as arrays that a Tensor may hold."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..errors import ConversionError
from ..ir import dtypes
from ..runtime import device as devices
from ..runtime import memory
from .float_errors import quietly
from .rounding import ready_to_round

_KNOWN = frozenset(dtypes.BY_NAME.values())


def as_given(data: Any) -> Any:
    """Return `data` as an array of its own dtype, which mgb must know; not copied if it is one.

    The bytes of its numbers may stand in any order.
    """
    try:
        if isinstance(data, np.ndarray):
            array = data if issubclass(type(data), np.ndarray) else _standing_for(data)
        else:
            on_gpu = hasattr(data, "__cuda_array_interface__")
            array = devices.adopt(data) if on_gpu else np.array(data)
        if array.dtype not in _KNOWN:  # no values are converted: None would become NaN, "1" a number
            array = np.array(array, dtypes.as_dtype(array.dtype))
    except (TypeError, ValueError) as error:
        raise ConversionError(f"cannot make a Tensor of {type(data).__name__}: {error}") from error
    return array


def _standing_for(data: Any) -> Any:
    """Return the array that `data` stands for, which only says that it is one."""
    return data.measured


def as_array(data: Any, dtype: Any = None) -> Any:
    """Copy `data` into a fresh array of a dtype that mgb knows; an array of a GPU is copied on that GPU."""
    array = as_given(data)
    wanted = dtypes.as_dtype(dtype) if dtype is not None else dtypes.constructed(array.dtype)
    if dtype is None:
        return converted(array, wanted, array is not data)
    return _cast(array, wanted, array is not data)


def converted(array: Any, dtype: np.dtype[Any], own: bool) -> Any:
    """Return `array` as a fresh one of `dtype`, or itself where it is our `own`.

    Raises
    ------
    ConversionError
        It holds 64-bit integers, and one of them does not fit.
    """
    if array.dtype == dtypes.int64 and dtype == dtypes.int32 and not _fits(array):
        raise ConversionError("a value does not fit in int32: give a dtype, such as dtype='int64'")
    return _cast(array, dtype, own)


def _fits(array: Any) -> bool:
    info = np.iinfo(np.int32)
    return bool(not array.size or (info.min <= array.min() and array.max() <= info.max))


def _cast(array: Any, dtype: np.dtype[Any], own: bool) -> Any:
    if not isinstance(array, np.ndarray):
        with array.device:
            return array.astype(dtype, order="C", copy=True)
    if array.dtype == dtype:
        return array if own else _copied(array, dtype)
    dtypes.check_cast(array.dtype, dtype)
    array = quietly(ready_to_round, (array, dtype), {})
    return quietly(array.astype if own else partial(_copied, array), (dtype,), {})


#: The plain shape, also of a class that has another word for it.
_shape_of = np.ndarray.shape.__get__


def _copied(array: Any, dtype: Any) -> Any:
    """Return a row-major copy that begins at a cache line: vectors read it in half the accesses."""
    copy = memory.empty(_shape_of(array), dtype)
    copy[...] = array
    return copy


def exportable(array: Any) -> bool:
    """Return whether NumPy can hand `array` over by DLPack as it is."""
    return not isinstance(array, np.ndarray) or (array.flags.writeable and array.dtype.isbuiltin == 1)
