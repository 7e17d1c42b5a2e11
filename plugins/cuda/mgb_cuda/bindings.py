"""The functions of the CUDA driver, and what it answers in words."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

from .device import LaunchError

DRIVER_HELP = (
    "install the driver of your GPU from https://www.nvidia.com/drivers and see that nvidia-smi works"
)


@cache
def bindings() -> Any:
    """Return the functions, with the driver initialized."""
    from cuda.bindings import driver  # type: ignore[import-untyped]

    check(driver, driver.cuInit(0))
    return driver


@lru_cache(1024)
def stream_handle(pointer: int) -> Any:
    """Return a stream as the driver takes it."""
    return bindings().CUstream(pointer)


def check(driver: Any, result: tuple[Any, ...]) -> Any:
    """Return the value of a driver's answer."""
    status, *values = result
    if status:
        raise LaunchError(explain(driver, status))
    return values[0] if len(values) == 1 else tuple(values)


def explain(driver: Any, status: Any) -> str:
    """Return the meaning of an error of the driver, and how to fix it."""
    text = driver.cuGetErrorString(status)[1]
    said = text.decode() if isinstance(text, bytes) else str(text)
    hints = {
        "CUDA_ERROR_NO_BINARY_FOR_GPU": "the kernel was compiled for another GPU: `mgb cache clear`",
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": f"the driver is older than the compiler: {DRIVER_HELP}",
        "CUDA_ERROR_OUT_OF_MEMORY": "free tensors, or mgb.memory.empty_cache()",
        "CUDA_ERROR_ILLEGAL_ADDRESS": "an array lies elsewhere, or a kernel is wrong; restart the process",
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "a block has too few registers for a kernel: please report it",
        "CUDA_ERROR_INVALID_CONTEXT": "the context of this thread was destroyed: set another one",
        "CUDA_ERROR_INVALID_HANDLE": "the kernel was loaded on another GPU than the current one",
    }
    hint = hints.get(getattr(status, "name", ""), "")
    return f"{getattr(status, 'name', status)}: {said}{'; ' if hint else ''}{hint}"
