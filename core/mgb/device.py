"""Devices by name: ``xpux`` (the default one), ``cpux``, ``gpu0``, ``gpu1``, ..."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import numpy as np

from .errors import DeviceError

_NAME = re.compile(r"(xpu|cpu|gpu)(x|\d+)(?::(\d+))?")
_default = "xpux"


def canonical(name: str) -> str:
    """`name` with its stream, as tensors print it: ``"gpu0"`` -> ``"gpu0:0"``.

    Raises
    ------
    DeviceError
        `name` is not of the form ``xpux``, ``cpux``, ``cpu0``, ``gpu0`` with an optional ``:stream``.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise DeviceError(f"{name!r} is not a device; use 'xpux', 'cpux' or 'gpu0', 'gpu1', ...")
    return f"{match[1]}{match[2]}:{match[3] or 0}"


def set_default_device(name: str = "xpux") -> None:
    """Make tensors on `name` when no device is given.

    Raises
    ------
    DeviceError
        `name` is not a device; see `canonical`.
    """
    global _default
    canonical(name)
    _default = name


def get_default_device() -> str:
    """Where tensors are made when no device is given."""
    return _default


def is_gpu(device: str) -> bool:
    """Does data on `device` live in a GPU's memory? ``xpux`` is the CPU unless the default is a GPU."""
    return device.startswith("gpu") or (device.startswith("xpu") and _default.startswith("gpu"))


def device_type(device: str) -> str:
    """``"cpu"`` or ``"gpu"``: what a backend's traits name."""
    return "gpu" if is_gpu(device) else "cpu"


def get_device_count(kind: str) -> int:
    """How many devices of `kind` (``"cpu"``, ``"gpu"``, ``"xpu"``) there are."""
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
    """NumPy, or CuPy for a GPU.

    Raises
    ------
    DeviceError
        CuPy is not installed or finds no GPU; the message has the command.
    """
    if not is_gpu(device):
        return np
    try:
        import cupy
    except ImportError as error:
        raise DeviceError(f"device {device!r} needs CuPy: pip install 'mgb[cuda13]' (or cuda12)") from error
    if not cupy.cuda.is_available():
        raise DeviceError(f"device {device!r}: CuPy finds no GPU here; check that nvidia-smi works")
    return cupy  # type: ignore[no-any-return]


def of_array(array: Any) -> str:
    """The canonical device of a NumPy or CuPy array."""
    if isinstance(array, np.ndarray | np.generic):
        return canonical("xpux" if not _default.startswith("gpu") else "cpux")
    return f"gpu{array.device.id}:0"


def place(array: Any, device: str) -> Any:
    """`array` in the memory of `device`; no copy when it is there already."""
    if not is_gpu(device):
        return array if isinstance(array, np.ndarray) else array.get()
    cupy = array_module(device)
    match = _NAME.fullmatch(device)
    number = int(match[2]) if match is not None and match[2] != "x" else 0
    with cupy.cuda.Device(number):
        return cupy.asarray(array)
