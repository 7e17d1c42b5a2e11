"""The values between the nodes of an ONNX model, and the conversion of ONNX's types and arrays to ours."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from mgb import device as devices
from mgb import dtypes
from mgb.errors import FileFormatError, UnsupportedError
from mgb.ops.layout import reshape
from mgb.runtime.memory import empty
from mgb.storage.limits import meter
from mgb.tensor import ACTIVE, Tensor, wrap
from mgb.tensor.apply import constant

#: An array that is known before the model runs on data: a weight, a shape, whatever depends on these only.
Host = np.ndarray[Any, Any]

#: What a name in a model stands for: an array, a Tensor, a sequence of values (a list), or nothing (an
#: optional value that is not there).
Value = Any

#: The number that `TensorProto.DataType` gives each dtype.
NUMBER_OF: dict[np.dtype[Any], int] = {d: onnx.helper.np_dtype_to_tensor_dtype(d) for d in dtypes.DTYPES}
DTYPE_OF = {number: dtype for dtype, number in NUMBER_OF.items()}

#: NumPy's own limit.
MOST_AXES = 64

#: Where a TensorProto without raw bytes keeps the elements of a dtype; the others are in `int32_data`.
_FIELDS = {
    dtypes.float32: "float_data",
    dtypes.float64: "double_data",
    dtypes.int64: "int64_data",
    dtypes.uint32: "uint64_data",
    dtypes.uint64: "uint64_data",
}


def dtype_of(number: int, place: str) -> np.dtype[Any]:
    """Return the dtype that ONNX calls `number`.

    Raises
    ------
    UnsupportedError
        mgb has no such dtype; the message names it and `place`.
    """
    if number in DTYPE_OF:
        return DTYPE_OF[number]
    known = dict(zip(onnx.TensorProto.DataType.values(), onnx.TensorProto.DataType.keys()))
    name = known.get(number)
    if name is None:
        raise FileFormatError(f"{place}: {number} is not a type of ONNX")
    raise UnsupportedError(f"{place}: elements of type {name} are not supported; convert the model first")


def array_of(proto: Any, raw: bytes | memoryview | None, place: str) -> Host:
    """Return the array in a TensorProto, whose size is checked before anything is allocated.

    Parameters
    ----------
    proto : onnx.TensorProto
    raw : bytes or None
        The bytes that the file keeps elsewhere; None: they are in `proto`.
    place : str
        For messages.

    Raises
    ------
    FileFormatError
        The shape and the number of elements disagree.
    UnsupportedError
        mgb has no such dtype.
    """
    dtype = dtype_of(proto.data_type, place)
    shape = tuple(proto.dims)
    if any(d < 0 for d in shape):
        raise FileFormatError(f"{place}: the shape {shape} has a negative length")
    if len(shape) > MOST_AXES:
        raise FileFormatError(f"{place}: an array has {len(shape)} axes; at most {MOST_AXES} are supported")
    size = math.prod(shape)
    if raw is None and proto.HasField("raw_data"):
        raw = proto.raw_data
    if raw is None:
        return _array_of_fields(proto, dtype, shape, place)
    if len(raw) != size * dtype.itemsize:
        wanted = size * dtype.itemsize
        raise FileFormatError(
            f"{place}: {len(raw)} bytes for {dtype.name}{list(shape)}, which takes {wanted}"
        )
    _measure(shape, dtype, place)
    if dtype == dtypes.bool_:
        return np.frombuffer(raw, np.uint8).astype(np.bool_).reshape(shape)
    return _aligned(np.frombuffer(raw, dtype).reshape(shape))


def _measure(shape: tuple[int, ...], dtype: np.dtype[Any], place: str) -> None:
    """Measure an array: one without elements may have axes of any length, and many names may share bytes."""
    meter().place = place
    meter().value(shape, dtype.itemsize)


def _aligned(array: Host) -> Host:
    """Copy to a cache line's start, as vectors require, without keeping the whole file in memory."""
    copy: Host = empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def _array_of_fields(proto: Any, dtype: np.dtype[Any], shape: tuple[int, ...], place: str) -> Host:
    field = getattr(proto, _FIELDS.get(dtype, "int32_data"))
    size = math.prod(shape)
    if len(field) != size:
        raise FileFormatError(
            f"{place}: {len(field)} elements for {dtype.name}{list(shape)}, which has {size}"
        )
    _measure(shape, dtype, place)
    if dtype in dtypes.HALVES:
        return np.array(field, np.int64).astype(dtypes.ROWS[dtype].word).view(dtype).reshape(shape)
    wide = dtype if dtype in _FIELDS else np.dtype(np.int64)
    return np.array(field, wide).astype(dtype).reshape(shape)


class Weights:
    """The Tensors of the arrays that a model holds: one for each, so that a trace knows them again."""

    def __init__(self, device: str | None) -> None:
        self.device = devices.canonical(device or "xpux")
        self._tensors: dict[int, tuple[Host, Tensor]] = {}

    def keep(self, values: Iterable[Value]) -> None:
        """Remember the arrays among `values`; call it before the model runs.

        Those of one element stay literals, which a compiler can work with.
        """
        for value in values:
            if isinstance(value, np.ndarray) and value.size > 1:
                tensor = wrap(devices.place(value, self.device), self.device)
                self._tensors[id(value)] = value, tensor

    def tensor(self, value: Value) -> Tensor:
        """Return `value` as a Tensor."""
        if isinstance(value, Tensor):
            return value
        kept = self._tensors.get(id(value))
        if kept is not None:
            return kept[1]
        return constant(devices.place(np.asarray(value), self.device), self.device)


def host_of(value: Value) -> Host:
    """Return the array behind `value`; that of a Tensor is read, which splits the program of a trace."""
    array: Host = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    return array


def is_known(value: Value) -> bool:
    """Return whether `value` holds no Tensor, so that what depends on it can be worked out now."""
    if isinstance(value, list | tuple):
        return all(map(is_known, value))
    return not isinstance(value, Tensor)


def fresh(value: Value, device: str) -> Value:
    """Return a value computed on the host from Tensors that were read: new data, not a literal."""
    if isinstance(value, list | tuple):
        return type(value)(fresh(v, device) for v in value)
    return Tensor(value, value.dtype, device) if isinstance(value, np.ndarray) else value


def result_of(value: Value, weights: Weights) -> Value:
    """Return `value` as a model's result: of Tensors only, that share no data with the model."""
    if isinstance(value, list | tuple):
        return type(value)(result_of(v, weights) for v in value)
    if value is None:
        return None
    tensor = weights.tensor(value)
    own = isinstance(value, Tensor) and (value._session is not None or ACTIVE.get() is None)
    return tensor if own else reshape(tensor, shape=tensor.shape)


def unfold(value: Value) -> Value:
    """Return Tensors computed from known values as arrays again."""
    if isinstance(value, list | tuple):
        return type(value)(map(unfold, value))
    return host_of(value) if isinstance(value, Tensor) else value
