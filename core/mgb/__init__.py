"""mgb: trace array programs, find what can be fused, compile it with the backend you name."""

from __future__ import annotations

import importlib
from typing import Any

from . import ops as _ops  # noqa: F401 - gives Tensor its arithmetic
from .device import get_default_device, get_device_count, is_cuda_available, set_default_device
from .ops.numpy_protocol import FILLERS as _FILLERS
from .tensor import Parameter, Tensor, from_dlpack, tensor
from .tensor.session import Ambient as _Ambient

__version__ = "0.1.0"

#: Imported when first used, so that ``import mgb`` stays light.
_SUBMODULES = frozenset(
    "autodiff backend config data device distributed dtypes errors functional jit linalg memory module numpy "
    "optimizer plugins random".split()
)
_ELSEWHERE = {
    "load": "serialization",
    "save": "serialization",
    "get_logger": "logger",
    "set_log_level": "logger",
} | dict.fromkeys("grad hessian jacfwd jacobian jacrev jvp value_and_grad vjp vmap".split(), "transforms")

_FILLERS.append(lambda: importlib.import_module(".numpy.functions", __name__))
_Ambient.make = lambda: importlib.import_module(".jit.deferral", __name__).everywhere()

__all__ = [
    "Parameter",
    "Tensor",
    "__version__",
    "from_dlpack",
    "get_default_device",
    "get_device_count",
    "is_cuda_available",
    "set_default_device",
    "tensor",
]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f".{name}", __name__)
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(f".{_ELSEWHERE[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES, *_ELSEWHERE})
