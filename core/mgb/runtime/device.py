"""Devices by name: ``xpux`` (the default one), ``cpux``, ``gpu0``, ``gpu1``, ...

A name with its stream is canonical and means the same whatever the default is: ``xpux:0`` is the host's.
Arrays of a GPU are CuPy's. CuPy is imported when the first of them is wanted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from ..errors import DeviceError, DeviceMemoryError, DeviceUnavailableError

__all__ = ["Device", "get_default_device", "get_device_count", "is_cuda_available", "set_default_device"]

#: What a traced function may call of it: see `holding`.
__tracing__ = {"set_default_device": "impure"}

_NAME = re.compile(r"(xpu|cpu|gpu)(x|\d+|(?=:)|(?<=xpu))(?::(\d+))?")
_default = "xpux"

#: The name of what is made in the host's memory when no device is given, whatever the default was then.
HOST = "xpux:0"

#: CuPy, once an array of a GPU was asked for.
gpu_module: ModuleType | None = None

INSTALL = "pip install 'mgb[cuda13]' (or 'mgb[cuda12]', as your driver has it)"


def canonical(name: str) -> str:
    """Return `name` with its stream, as tensors print it: ``"gpu0"`` -> ``"gpu0:0"``.

    Without a stream, ``"xpux"`` or ``"xpu"`` stands for the default device; ``"xpux:0"`` is the host wherever
    that is. A number that is left out before the stream is 0: ``"cpu:0"`` -> ``"cpu0:0"``.

    Raises
    ------
    DeviceError
        `name` is not of the form ``xpux``, ``cpux``, ``cpu0``, ``gpu0`` with an optional ``:stream``.
    """
    return _canonical(name, _default)


@lru_cache(256)
def _canonical(name: str, default: str) -> str:
    match = _NAME.fullmatch(name)
    if match is None:
        raise DeviceError(f"{name!r} is not a device; use 'xpux', 'cpux' or 'gpu0', 'gpu1', ...")
    kind, number, stream = match.groups()
    if kind == "xpu" and stream is None and is_gpu(default):
        return _canonical(default, default)
    if stream is None and not number:
        number = "x"
    if not number or (kind == "gpu" and number == "x"):
        number = "0"
    return f"{kind}{number}:{stream or 0}"


class Device(str):
    """The canonical name of a device, equal to each of its names: that of ``"xpux:0"`` to ``"xpux"``.

    A kind alone, ``"xpu"``, is not a name of a device. As a key it is the canonical name.
    """

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        if str.__eq__(self, other) is True:
            return True
        match = _NAME.fullmatch(str(other)) if isinstance(other, str) else None
        return match is not None and match.end() > 3 and str.__eq__(self, canonical(str(other))) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)


#: The `Device` of a canonical name, one for each.
named = lru_cache(256)(Device)


def set_default_device(name: str = "xpux") -> None:
    """Make tensors on `name` when no device is given.

    Raises
    ------
    DeviceError
        `name` is not a device; see `canonical`.
    DeviceUnavailableError
        It is a GPU that cannot be used here; the default stays what it was.

    Examples
    --------
    >>> mgb.set_default_device("cpu0")
    >>> mgb.tensor([1.0]).device
    'xpux:0'
    >>> mgb.set_default_device()
    """
    global _default
    wanted = canonical(name)
    if is_gpu(wanted):
        array_module(wanted)
    _default = name


def get_default_device() -> str:
    """Return where tensors are made when no device is given.

    Examples
    --------
    >>> mgb.get_default_device()
    'xpux'
    """
    return _default


def is_cuda_available() -> bool:
    """Return whether there is a GPU that tensors can be made on.

    Examples
    --------
    >>> isinstance(mgb.is_cuda_available(), bool)
    True
    """
    return get_device_count("gpu") > 0


def default() -> str:
    """Return it canonical. A host by any name is `HOST` here, so that traces go on when it is named."""
    return canonical("xpux")


def is_gpu(device: str) -> bool:
    """Return whether data on `device`, which is canonical, lives in a GPU's memory."""
    return device.startswith("gpu")


def same_place(one: str, other: str) -> bool:
    """Return whether arrays on both may meet in one op. The host is one place under all its names."""
    return one == other or not (is_gpu(one) or is_gpu(other))


def ordinal(device: str) -> int:
    """Return the number of a GPU."""
    return int(_canonical(device, _default)[3:].partition(":")[0])


def device_type(device: str) -> str:
    """Return ``"cpu"`` or ``"gpu"``: what a backend's traits name."""
    return "gpu" if is_gpu(device) else "cpu"


def get_device_count(kind: str) -> int:
    """Return the number of devices of `kind` (``"cpu"``, ``"gpu"``, ``"xpu"``).

    Examples
    --------
    >>> mgb.get_device_count("cpu") >= 1
    True
    """
    if kind == "cpu":
        return 1
    count = _gpu_count()
    return count if kind == "gpu" else max(1, count)


def _gpu_count() -> int:
    try:
        import cupy
    except ImportError:
        return 0
    return int(cupy.cuda.runtime.getDeviceCount()) if cupy.cuda.is_available() else 0


def array_module(device: str) -> ModuleType:
    """Return NumPy, or CuPy for a GPU.

    Raises
    ------
    DeviceUnavailableError
        CuPy is not installed, finds no GPU or none of that number; the message has the command.
    """
    global gpu_module
    if not is_gpu(device):
        return np
    try:
        import cupy
    except ImportError as error:
        raise DeviceUnavailableError(f"device {device!r} needs CuPy: {INSTALL}; {error}") from error
    if cupy is not gpu_module:
        if not cupy.cuda.is_available():
            raise DeviceUnavailableError(
                f"device {device!r}: CuPy finds no GPU here; install the driver of your GPU from "
                "https://www.nvidia.com/drivers and see that nvidia-smi works"
            )
        gpu_module = cupy
        _has.cache_clear()
    if not _has(ordinal(device)):
        raise DeviceUnavailableError(
            f"device {device!r} is not there: this machine has gpu0 to gpu{_gpu_count() - 1}"
            if _gpu_count() > 1
            else f"device {device!r} is not there: this machine has gpu0 alone"
        )
    return cupy  # type: ignore[no-any-return]


@lru_cache
def _has(number: int) -> bool:
    return number < _gpu_count()


def forget() -> None:
    """Find out again which GPUs there are, and whose arrays theirs are, when one is asked for next."""
    global gpu_module
    gpu_module = None
    _has.cache_clear()


def on(device: str) -> AbstractContextManager[Any]:
    """Make a GPU the one that CuPy works on."""
    found: AbstractContextManager[Any] = array_module(device).cuda.Device(ordinal(device))
    return found


def of_array(array: Any) -> str:
    """Return where a Tensor of `array` is made when no device is named: NumPy's go to the default one."""
    return default() if isinstance(array, np.ndarray | np.generic) else where(array)


def where(array: Any) -> str:
    """Return where `array` lies."""
    return HOST if isinstance(array, np.ndarray | np.generic) else f"gpu{array.device.id}:0"


def place(array: Any, device: str) -> Any:
    """Put `array` in the memory of `device`; no copy when it is there already."""
    if not is_gpu(device):
        return to_host(array)
    xp = array_module(device)
    if isinstance(array, xp.ndarray) and array.device.id == ordinal(device):
        return array
    with memory_explained(device), on(device):
        return xp.asarray(array)


def adopt(data: Any) -> Any:
    """Return a CuPy array on the memory that the ``__cuda_array_interface__`` of `data` describes.

    No copy.
    """
    xp = array_module("gpu0")
    return data if isinstance(data, xp.ndarray) else xp.asarray(data)


def from_dlpack(data: Any) -> Any:
    """Return an array of NumPy or CuPy on the memory of `data`, wherever that is; no copy."""
    on_cpu = data.__dlpack_device__()[0] == 1
    return np.from_dlpack(data) if on_cpu else array_module("gpu0").from_dlpack(data)


def to_host(array: Any) -> Any:
    """Return `array` as NumPy's; one of a GPU is copied after the work on CuPy's current stream."""
    if isinstance(array, np.ndarray):
        return array
    if isinstance(array, np.generic):
        return np.asarray(array)
    with array.device:
        return array.get()


@contextmanager
def memory_explained(device: str, what: str = "a copy") -> Iterator[None]:
    """Turn CuPy's lack of memory into an error of ours.

    Raises
    ------
    DeviceMemoryError
    """
    try:
        yield
    except MemoryError as error:
        raise out_of_memory(device, what, error) from error


def out_of_memory(device: str, what: str, error: MemoryError) -> MemoryError:
    """Return the error of ours for CuPy's `error`."""
    if isinstance(error, DeviceMemoryError):
        return error
    return DeviceMemoryError(
        f"{what}: {canonical(device)} has no memory left: {error} Free Tensors, take smaller batches, "
        "or call mgb.memory.empty_cache()"
    )


def __dir__() -> list[str]:
    return __all__
