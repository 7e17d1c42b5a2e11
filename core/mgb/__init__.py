"""mgb: trace array programs, find what can be fused, compile it with the backend you name."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import ops as _ops  # noqa: F401 - gives Tensor its arithmetic
from .device import get_default_device, get_device_count, is_cuda_available, set_default_device
from .ops.numpy_protocol import FILLERS as _FILLERS
from .tensor import Parameter, Tensor, from_dlpack, tensor
from .tensor.session import Ambient as _Ambient

# isort: off
# fmt: off
if TYPE_CHECKING:  # what `__getattr__` finds
    from . import (
        amp as amp, autodiff as autodiff, backend as backend, config as config, data as data,
        device as device, distributed as distributed, dtypes as dtypes, errors as errors,
        functional as functional, jit as jit, linalg as linalg, memory as memory, module as module,
        numpy as numpy, optimizer as optimizer, plugins as plugins, random as random, utils as utils,
    )
    from .logger import get_logger as get_logger, set_log_level as set_log_level
    from .serialization import load as load, save as save
    from .transforms import (
        grad as grad, hessian as hessian, jacfwd as jacfwd, jacobian as jacobian, jacrev as jacrev,
        jvp as jvp, value_and_grad as value_and_grad, vjp as vjp, vmap as vmap,
    )
# fmt: on
# isort: on

__version__ = "0.1.0"

#: Imported when first used, so that ``import mgb`` stays light.
_SUBMODULES = frozenset(
    "amp autodiff backend config data device distributed dtypes errors fft functional jit linalg memory "
    "module numpy optimizer plugins random utils".split()
)
_ELSEWHERE = {
    "load": "serialization",
    "save": "serialization",
    "get_logger": "logger",
    "set_log_level": "logger",
} | dict.fromkeys("grad hessian jacfwd jacobian jacrev jvp value_and_grad vjp vmap".split(), "transforms")


def _namespace(self: Tensor, /, *, api_version: str | None = None) -> Any:
    """`mgb.numpy`, which follows the array API standard.

    Raises
    ------
    ValueError
        A version is wanted that it does not follow.
    """
    found = importlib.import_module(".numpy", __name__)
    if api_version is not None and api_version not in found.VERSIONS:
        raise ValueError(f"version {api_version!r} of the array API: mgb has {', '.join(found.VERSIONS)}")
    return found


Tensor.__array_namespace__ = _namespace  # type: ignore[attr-defined]
_FILLERS.append(lambda: importlib.import_module(".numpy.functions", __name__))
_Ambient.make = lambda: importlib.import_module(".jit.deferred", __name__).everywhere()

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


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _SUBMODULES:
            return importlib.import_module(f".{name}", __name__)
        if name in _ELSEWHERE:
            return getattr(importlib.import_module(f".{_ELSEWHERE[name]}", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBMODULES, *_ELSEWHERE})
