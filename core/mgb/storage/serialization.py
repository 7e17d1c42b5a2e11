"""`save` and `load`: nests of dicts and lists of tensors and numbers, in files as of `tensor_file`."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import ArgumentError, DeviceError
from ..runtime import device as devices
from ..runtime.files import replace_file
from ..tensor.arguments import explain as _explain
from .tensor_file import decoded, encoded

File = str | os.PathLike[str] | BinaryIO
Location = str | Mapping[str, str] | Callable[[str], str | None] | None

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}


def save(obj: Any, f: File) -> None:
    """Write `obj`; a file of this name is replaced in one go, or stays as it was.

    Parameters
    ----------
    obj : nest of dict, list, tuple, Tensor, ndarray, number, str, bool and None
        Such as state dicts. Keys are strings or integers. Of a Tensor, value, dtype and device are kept.
    f : path, or binary file open for writing
        Where to write.

    Raises
    ------
    TypeError
        Something in `obj` is of another type: of a Module, save the ``state_dict()``.
    """
    blobs = encoded(obj)
    if isinstance(f, str | os.PathLike):
        replace_file(Path(f), blobs)
    else:
        for blob in blobs:
            f.write(blob)


def load(f: File, map_location: Location = None) -> Any:
    """Read what `save` wrote; of another safetensors file, the arrays by name.

    Parameters
    ----------
    f : path, or binary file open for reading
        Where to read.
    map_location : str, dict, callable or None
        Where Tensors go: the default device (None), one device, for each device that Tensors were saved on
        another one, or what a function gives for its name; it is asked once for each. What is not in a dict
        stays where it was.

    Raises
    ------
    FileFormatError
        The file is damaged or is not a safetensors file, a `ValueError`.
    DeviceError
        A device in `map_location` is unknown or unusable here; `ArgumentError`: not a string. What a
        function raises is passed on.
    """
    place = _placing(map_location)
    if isinstance(f, str | os.PathLike):
        name, content = os.fspath(f), Path(f).read_bytes()
    else:
        name, content = getattr(f, "name", "the file"), f.read()
    return decoded(content, name, lambda device: _device(place(device), f"gives for {device!r}"))


def _placing(location: Location) -> Callable[[str], str | None]:
    """Return where a Tensor goes that was on a device of this name."""
    if isinstance(location, Mapping):
        known = {_named(key, "has the key"): _named(value, "has") for key, value in location.items()}
        return lambda saved_on: known.get(saved_on, saved_on)
    if callable(location):
        return location
    wanted = _device(location, "is")
    return lambda _saved_on: wanted


def _device(device: Any, says: str) -> str | None:
    """Return the canonical name of `device`, which `map_location` says; None is the default one."""
    return None if device is None else _named(device, says)


def _named(device: Any, says: str) -> str:
    if not isinstance(device, str):
        raise ArgumentError(
            f"load: map_location {says} {reprlib.repr(device)}, which is not the name of a device: give "
            "'xpux', 'cpu0', {'gpu0': 'cpu0'} or a function that returns such a name"
        )
    try:
        return devices.canonical(device)
    except DeviceError as error:
        raise DeviceError(f"load: map_location {says} {device!r}: {error}") from None


_explain(globals(), ("save", "load"))
