"""Nests of dicts and lists of tensors and numbers as the bytes of safetensors files.

A file is the length of a JSON header, the header, and the arrays' bytes
(https://huggingface.co/docs/safetensors). Its metadata hold the shape of the nest and a checksum. Nothing in
a file is ever executed.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..errors import DeviceError, FileFormatError
from ..ir import dtypes
from ..runtime import device as devices
from ..tensor import Parameter, Tensor

Header = dict[str, Any]

#: Names of 8-bit floats there do not tell that they have no infinity.
_CODES = {d: dtypes.short(d).upper().removesuffix("FN") for d in (*dtypes.DTYPES, dtypes.complex64)}
_DTYPES = {code: dtype for dtype, code in _CODES.items()}
_KINDS = {"tensor": Tensor, "parameter": Parameter}
_METADATA = "__metadata__"
_PLAIN = (str, int, float, bool, type(None))


def encoded(obj: Any) -> list[bytes]:
    """Return the parts of the file that holds `obj`.

    Raises
    ------
    TypeError
        Something in `obj` is not a tensor, a number or a container of them.
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    try:
        return _encode(arrays, _pack(obj, "", arrays))
    except RecursionError:
        raise TypeError("cannot save this: it is nested too deeply, or holds itself") from None


def decoded(content: bytes, name: str, place: Callable[[str], str | None]) -> Any:
    """Decode the `content` that `encoded` wrote to the file `name`; of other files, return arrays by name.

    Parameters
    ----------
    content : bytes
    name : str
        Of the file, in messages.
    place : callable
        Gives the device for Tensors that were saved on one of a name; None is the default one.

    Raises
    ------
    FileFormatError
        The file is damaged or is not a safetensors file, a `ValueError`.
    """
    with _blaming(name):
        arrays, tree = _decode(content)
        if tree is None:
            return arrays
        saved_on = dict.fromkeys(_devices(tree))
    places = {device: place(device) for device in saved_on}
    with _blaming(name):
        return _unpack(tree, arrays, places)


@contextmanager
def _blaming(name: str) -> Iterator[None]:
    """Name the file in errors that are raised inside."""
    try:
        yield
    except DeviceError:
        raise
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        remedy = "it is damaged or was not written by mgb.save: write it again, or use another copy"
        raise FileFormatError(f"cannot load {name}: {error}; {remedy}") from error


# the nest, as JSON


def _pack(obj: Any, path: str, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    """Return `obj` with every array moved to `arrays`, and a description of what it was."""
    if isinstance(obj, Tensor | np.ndarray):
        name = _unused(path or "value", arrays)
        if not isinstance(obj, Tensor):
            arrays[name] = obj
            return ["array", name]
        arrays[name] = obj.numpy()
        return ["parameter" if isinstance(obj, Parameter) else "tensor", name, obj._device]
    if isinstance(obj, dict):
        return ["dict", [[_key(k, path), _pack(v, _join(path, k), arrays)] for k, v in obj.items()]]
    if isinstance(obj, list | tuple):
        return [type(obj).__name__, [_pack(v, _join(path, i), arrays) for i, v in enumerate(obj)]]
    value = obj.item() if isinstance(obj, np.generic) else str(obj) if isinstance(obj, str) else obj
    if type(value) not in _PLAIN:
        remedy = "; save its state_dict()" if hasattr(obj, "state_dict") else ""
        kind = type(obj).__name__
        raise TypeError(f"cannot save {path or 'this'}: a {kind} is not a tensor or a number{remedy}")
    return ["plain", value]


def _unused(path: str, arrays: dict[str, Any]) -> str:
    """Return `path`, or a longer name when a key with a dot in it has led to the same path."""
    while path in arrays or path == _METADATA:
        path += "'"
    return path


def _key(key: Any, path: str) -> str | int:
    if type(key) not in (str, int):
        raise TypeError(f"cannot save {path or 'this'}: the key {key!r} is not a string or an integer")
    found: str | int = key
    return found


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _devices(tree: Any) -> Iterator[str]:
    """Yield the devices that Tensors were saved on, as the nest says."""
    kind, content, *saved_on = tree
    if kind in _KINDS:
        (device,) = saved_on or [devices.HOST]  # files were written without it once
        if not isinstance(device, str):
            raise ValueError(f"the device of a tensor must be a string, got {device!r}")
        yield device
    elif kind == "dict":
        for _key, value in content:
            yield from _devices(value)
    elif kind in ("list", "tuple"):
        for value in content:
            yield from _devices(value)


def _unpack(tree: Any, arrays: dict[str, np.ndarray[Any, Any]], places: Mapping[str, str | None]) -> Any:
    kind, content, *_saved_on = tree
    if kind == "plain":
        return content
    if kind == "dict":
        return {key: _unpack(value, arrays, places) for key, value in content}
    if kind in ("list", "tuple"):
        items = [_unpack(value, arrays, places) for value in content]
        return items if kind == "list" else tuple(items)
    array = arrays[content]
    if kind == "array":
        return array
    (device,) = _devices(tree)
    return _KINDS[kind](array, dtype=array.dtype, device=places[device])


# the file


def _encode(arrays: dict[str, np.ndarray[Any, Any]], tree: Any) -> list[bytes]:
    header: Header = {}
    blobs, start = [], 0
    for name, array in arrays.items():
        if array.dtype not in _CODES:
            raise TypeError(f"cannot save {name}: safetensors files have no dtype {array.dtype}")
        blob = np.ascontiguousarray(array).tobytes()
        span = [start, start + len(blob)]
        header[name] = {"dtype": _CODES[array.dtype], "shape": list(array.shape), "data_offsets": span}
        blobs.append(blob)
        start = span[1]
    nest = json.dumps(tree)
    header[_METADATA] = {"mgb": nest, "crc32": str(_checksum(header, nest, b"".join(blobs)))}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return [struct.pack("<Q", len(text)), text, *blobs]


def _decode(content: bytes) -> tuple[dict[str, np.ndarray[Any, Any]], Any]:
    """Return the arrays, and the nest when `save` wrote it."""
    if len(content) < 8:
        raise ValueError(f"it has {len(content)} bytes and no header")
    (length,) = struct.unpack("<Q", content[:8])
    if length > len(content) - 8:
        raise ValueError(f"the file is truncated: its header should have {length} bytes")
    header = json.loads(content[8 : 8 + length].decode())
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    data = memoryview(content)[8 + length :]
    metadata = header.pop(_METADATA, {})
    ours = "mgb" in metadata or "crc32" in metadata
    if ours and int(metadata["crc32"]) != _checksum(header, metadata["mgb"], data):
        raise ValueError("its content does not fit its checksum")
    arrays = {name: _array(name, entry, data) for name, entry in header.items()}
    return arrays, json.loads(metadata["mgb"]) if ours else None


def _checksum(header: Header, nest: str, data: bytes | memoryview) -> int:
    return zlib.crc32(data, zlib.crc32((json.dumps(header) + nest).encode()))


def _array(name: str, entry: dict[str, Any], data: memoryview) -> np.ndarray[Any, Any]:
    dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
    start, stop = entry["data_offsets"]
    wanted = dtype.itemsize * math.prod(shape)
    if not 0 <= start <= stop <= len(data) or stop - start != wanted:
        raise ValueError(f"the bytes of {name!r} are not there")
    return np.frombuffer(data[start:stop], dtype).reshape(shape).copy()
