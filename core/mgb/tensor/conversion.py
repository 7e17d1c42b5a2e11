"""Data of users as arrays that a Tensor may hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import device as devices
from .. import dtypes, memory
from ..errors import ConversionError


def as_array(data: Any, dtype: Any = None) -> Any:
    """`data` as a fresh array of a dtype that mgb knows; an array of a GPU is copied on that GPU."""
    if not isinstance(data, np.ndarray) and hasattr(data, "__cuda_array_interface__"):
        return _copied_there(data, dtype)
    try:
        array = data if isinstance(data, np.ndarray) else np.array(data)
        given = dtypes.as_dtype(array.dtype)  # nothing else is converted: None would become NaN, "1" a number
        wanted = dtypes.as_dtype(dtype) if dtype is not None else dtypes.constructed(given)
        if dtype is None and given == dtypes.int64 and not np.array_equal(array, array.astype(wanted)):
            raise ValueError(f"a value does not fit in {wanted}: give a dtype, such as dtype='int64'")
        return array.astype(wanted, copy=False) if array is not data else _copied(array, wanted)
    except (TypeError, ValueError) as error:
        raise ConversionError(f"cannot make a Tensor of {type(data).__name__}: {error}") from error


def _copied_there(data: Any, dtype: Any) -> Any:
    """As `as_array`, for an array of a GPU, whosever it is."""
    array = devices.adopt(data)
    given = dtypes.as_dtype(array.dtype)
    wanted = dtypes.as_dtype(dtype) if dtype is not None else dtypes.constructed(given)
    with array.device:
        return array.astype(wanted, order="C", copy=True)


def _copied(array: Any, dtype: Any) -> Any:
    """A row-major copy that begins at a cache line: vectors read it in half the accesses."""
    copy = memory.empty(array.shape, dtype)
    copy[...] = array
    return copy


def exportable(array: Any) -> bool:
    """Can NumPy hand `array` over by DLPack as it is?"""
    return not isinstance(array, np.ndarray) or (array.flags.writeable and array.dtype.kind != "V")
