"""mgb: trace array programs, find what can be fused, compile it with the backend you name."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import ops as _ops  # noqa: F401 - gives Tensor its arithmetic
from .ops.numpy_protocol import FILLERS as _FILLERS
from .runtime.aliases import Aliases as _Aliases
from .runtime.device import get_default_device, get_device_count, is_cuda_available, set_default_device
from .tensor import Parameter, Tensor, from_dlpack, tensor
from .tensor.session import Ambient as _Ambient

# isort: off
# fmt: off
if TYPE_CHECKING:  # what `__getattr__` finds
    from . import (
        amp as amp, autodiff as autodiff, data as data, distributed as distributed, errors as errors,
        fft as fft, functional as functional, jit as jit, linalg as linalg, module as module,
        numpy as numpy, optimizer as optimizer, random as random, utils as utils,
    )
    from .backends import backend as backend, plugins as plugins
    from .ir import dtypes as dtypes
    from .runtime import config as config, device as device, memory as memory
    from .runtime.logger import get_logger as get_logger, set_log_level as set_log_level
    from .storage.serialization import load as load, save as save
    from .transforms import (
        grad as grad, hessian as hessian, jacfwd as jacfwd, jacobian as jacobian, jacrev as jacrev,
        jvp as jvp, value_and_grad as value_and_grad, vjp as vjp, vmap as vmap,
    )
# fmt: on
# isort: on

__version__ = "0.1.0"


def _homes(**rooms: str) -> dict[str, str]:
    """Return where the modules are, by their short names."""
    return {name: f"{room}.{name}" for room, names in rooms.items() for name in names.split()}


_PUBLIC = _homes(backends="backend plugins", ir="dtypes", runtime="config device memory")
_MOVED = _homes(
    backends="answers eager_backend traits",
    ir="scalars sizes strides",
    runtime="cache files forking logger ownership precision shown trusted",
    storage="formats graph_file input_data limits model_file serialization tensor_file testcases",
    tensor="apply arguments holding libraries tracing",
    tools="cli demo doctor runs scaffold targets",
)
_Aliases(__name__, _PUBLIC, _MOVED).install()

#: Imported when first used, so that ``import mgb`` stays light.
_SUBMODULES = {*_PUBLIC, "utils"}.union(
    "amp autodiff data distributed errors fft functional jit linalg module numpy optimizer random".split()
)
_ELSEWHERE = {
    "load": "storage.serialization",
    "save": "storage.serialization",
    "get_logger": "runtime.logger",
    "set_log_level": "runtime.logger",
} | dict.fromkeys("grad hessian jacfwd jacobian jacrev jvp value_and_grad vjp vmap".split(), "transforms")


def _namespace(self: Tensor, /, *, api_version: str | None = None) -> Any:
    """Return `mgb.numpy`, which follows the array API standard.

    Raises
    ------
    ValueError
        A version is wanted that it does not follow.
    """
    found = importlib.import_module(".numpy", __name__)
    if api_version is not None and api_version not in found.VERSIONS:
        raise ValueError(
            f"api_version={api_version!r} of the array API is not supported: choose one of "
            f"{', '.join(found.VERSIONS)}"
        )
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
