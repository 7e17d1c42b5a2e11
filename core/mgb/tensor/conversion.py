"""Data of users as arrays that a Tensor may hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import device as devices
from .. import dtypes, memory
from ..errors import ConversionError


def as_given(data: Any) -> Any:
    """`data` as an array of the dtype that it has, which is one that mgb knows; not copied if it is one."""
    if not isinstance(data, np.ndarray) and hasattr(data, "__cuda_array_interface__"):
        array = devices.adopt(data)
        dtypes.as_dtype(array.dtype)
        return array
    try:
        array = data if isinstance(data, np.ndarray) else np.array(data)
        dtypes.as_dtype(array.dtype)  # nothing else is converted: None would become NaN, "1" a number
    except (TypeError, ValueError) as error:
        raise ConversionError(f"cannot make a Tensor of {type(data).__name__}: {error}") from error
    return array


def as_array(data: Any, dtype: Any = None) -> Any:
    """`data` as a fresh array of a dtype that mgb knows; an array of a GPU is copied on that GPU."""
    array = as_given(data)
    wanted = dtypes.as_dtype(dtype) if dtype is not None else dtypes.constructed(array.dtype)
    if not isinstance(array, np.ndarray):
        with array.device:
            return array.astype(wanted, order="C", copy=True)
    if array.dtype == wanted:
        return array if array is not data else _copied(array, wanted)
    if dtype is None and array.dtype == dtypes.int64 and not np.array_equal(array, array.astype(wanted)):
        raise ConversionError(
            f"cannot make a Tensor of {type(data).__name__}: a value does not fit in {wanted}: "
            "give a dtype, such as dtype='int64'"
        )
    with np.errstate(all="ignore"):
        return array.astype(wanted) if array is not data else _copied(array, wanted)


def _copied(array: Any, dtype: Any) -> Any:
    """A row-major copy that begins at a cache line: vectors read it in half the accesses."""
    copy = memory.empty(array.shape, dtype)
    copy[...] = array
    return copy


def exportable(array: Any) -> bool:
    """Can NumPy hand `array` over by DLPack as it is?"""
    return not isinstance(array, np.ndarray) or (array.flags.writeable and array.dtype.kind != "V")
