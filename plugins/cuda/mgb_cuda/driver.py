"""A GPU through the CUDA driver: loading images, and launches that cost little host time."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, Protocol

from .arrays import Arrays, CupyArrays
from .device import Device, LaunchError, Properties

#: The driver of CUDA 12.1: its kernels belong to no context, so that every GPU finds them, and may have more
#: than 4 KiB of parameters.
OLDEST = 12010

DRIVER_HELP = (
    "install the driver of your GPU from https://www.nvidia.com/drivers and see that nvidia-smi works"
)


def missing() -> str | None:
    """Why no kernel can be launched here, with what mends it; None when one can. Imports no toolchain."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return f"there is no CUDA driver (libcuda.so.1 is not found); {DRIVER_HELP}"
    number = ctypes.c_int()
    if library.cuInit(0) != 0 or library.cuDeviceGetCount(ctypes.byref(number)) != 0 or number.value == 0:
        return f"the CUDA driver finds no GPU; {DRIVER_HELP}"
    if library.cuDriverGetVersion(ctypes.byref(number)) != 0 or number.value < OLDEST:
        have, want = _text(number.value), _text(OLDEST)
        return f"the CUDA driver is too old: it is of CUDA {have}, {want} or later is needed; {DRIVER_HELP}"
    for module, package in (("cuda", "cuda-bindings"), ("cupy", "cupy-cuda13x (or cupy-cuda12x)")):
        if find_spec(module) is None:
            return f"{package.partition(' ')[0]} is not installed; python -m pip install {package}"
    return None


def older_than(toolchain: str) -> str | None:
    """Why the driver may refuse what this version of a toolchain makes; None when it takes it."""
    library, number = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    library.cuInit(0)
    library.cuDriverGetVersion(ctypes.byref(number))
    major = toolchain.partition(".")[0]
    if not major.isdecimal() or int(major) <= number.value // 1000:
        return None
    here, wanted = _text(number.value), number.value // 1000
    return (
        f"the CUDA driver is of CUDA {here} and may refuse what a compiler of CUDA {toolchain} makes: "
        f"install a compiler of CUDA {wanted}, or a newer driver; {DRIVER_HELP}"
    )


def _text(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


@cache
def _driver() -> Any:
    """The bindings, with the driver initialized."""
    from cuda.bindings import driver  # type: ignore[import-untyped]

    _check(driver, driver.cuInit(0))
    return driver


def _check(driver: Any, result: tuple[Any, ...]) -> Any:
    """The value of a driver's answer."""
    status, *values = result
    if status:
        raise LaunchError(_explain(driver, status))
    return values[0] if len(values) == 1 else tuple(values)


def _explain(driver: Any, status: Any) -> str:
    text = driver.cuGetErrorString(status)[1]
    said = text.decode() if isinstance(text, bytes) else str(text)
    hints = {
        "CUDA_ERROR_NO_BINARY_FOR_GPU": "the kernel was compiled for another GPU: `mgb cache clear`",
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": f"the driver is older than the compiler: {DRIVER_HELP}",
        "CUDA_ERROR_OUT_OF_MEMORY": "free tensors, or mgb.memory.empty_cache()",
        "CUDA_ERROR_ILLEGAL_ADDRESS": "an array lies elsewhere, or a kernel is wrong; restart the process",
        "CUDA_ERROR_INVALID_HANDLE": "the kernel was loaded on another GPU than the current one",
    }
    hint = hints.get(getattr(status, "name", ""), "")
    return f"{getattr(status, 'name', status)}: {said}{'; ' if hint else ''}{hint}"


class Compiler(Protocol):
    """What makes images."""

    def version(self) -> str:
        """Of the toolchain; it is not loaded for that."""

    def compile(self, source: str, properties: Properties) -> bytes:
        """An image for such a GPU."""


class CudaDevice(Device):
    """One GPU.

    Parameters
    ----------
    ordinal : int
        Its number.
    compiler : Compiler
    arrays : Arrays, optional
        Whose arrays are passed; CuPy's by default.
    """

    def __init__(self, ordinal: int, compiler: Compiler, arrays: Arrays | None = None) -> None:
        self.ordinal = ordinal
        self.arrays = arrays or CupyArrays(ordinal)
        self.__dict__ |= {"address": self.arrays.address, "stream": self.arrays.stream}  # without a detour
        self._compiler = compiler
        self._streams: dict[int, Any] = {}
        self.properties = properties(ordinal)

    def key(self) -> str:
        return self.properties.architecture

    def toolchain(self) -> str:
        return self._compiler.version()

    def compile(self, source: str) -> bytes:
        return self._compiler.compile(source, self.properties)

    def load(self, image: bytes, names: Sequence[str]) -> tuple[Any, ...]:
        driver = _driver()
        # Loaded without a context: the driver puts it on each GPU that launches one of its kernels.
        library = _check(driver, driver.cuLibraryLoadData(image, [], [], 0, [], [], 0))
        kernels = [_check(driver, driver.cuLibraryGetKernel(library, name.encode())) for name in names]
        return tuple(driver.CUfunction(int(kernel)) for kernel in kernels)

    def launcher(
        self, function: Any, grid: tuple[int, int], threads: int, shared: int = 0
    ) -> Callable[[int, int], None]:
        driver = _driver()
        launch, streams, make, (x, y) = driver.cuLaunchKernel, self._streams, driver.CUstream, grid
        success = driver.CUresult.CUDA_SUCCESS

        def run(stream: int, table: int) -> None:
            try:
                handle = streams[stream]
            except KeyError:
                handle = streams[stream] = make(stream)
            (status,) = launch(function, x, y, 1, threads, 1, 1, shared, handle, table, 0)
            if status is not success:
                raise LaunchError(_explain(driver, status))

        return run

    def address(self, array: Any) -> int:
        return self.arrays.address(array)

    def stream(self) -> int:
        return self.arrays.stream()

    def scratch(self, nbytes: int) -> tuple[int, object]:
        return self.arrays.scratch(nbytes)

    def upload(self, array: Any) -> Any:
        return self.arrays.upload(array)

    def contiguous(self, array: Any) -> Any:
        return self.arrays.contiguous(array)


@cache
def properties(ordinal: int) -> Properties:
    """Of the GPU with this number."""
    driver = _driver()
    device = _check(driver, driver.cuDeviceGet(ordinal))
    kinds = driver.CUdevice_attribute

    def get(name: str) -> int:
        kind = getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(_check(driver, driver.cuDeviceGetAttribute(kind, device)))

    name = _check(driver, driver.cuDeviceGetName(256, device))
    return Properties(
        name=name.split(b"\0")[0].decode(),
        capability=(get("COMPUTE_CAPABILITY_MAJOR"), get("COMPUTE_CAPABILITY_MINOR")),
        multiprocessors=get("MULTIPROCESSOR_COUNT"),
        shared_bytes=get("MAX_SHARED_MEMORY_PER_BLOCK"),
    )


@cache
def device_count() -> int:
    """How many GPUs there are."""
    driver = _driver()
    return int(_check(driver, driver.cuDeviceGetCount()))


def current() -> int:
    """The number of the GPU that CuPy works on now."""
    import cupy

    return int(cupy.cuda.runtime.getDevice())


def elapsed(run: Callable[[int], None], stream: int, times: int = 5) -> float:
    """Seconds of device time of ``run(stream)``: the least of a few, after one that warms up."""
    driver = _driver()
    handle, found = driver.CUstream(stream), []
    start, end = (_check(driver, driver.cuEventCreate(0)) for _ in range(2))
    try:
        run(stream)
        for _ in range(times):
            _check(driver, driver.cuEventRecord(start, handle))
            run(stream)
            _check(driver, driver.cuEventRecord(end, handle))
            _check(driver, driver.cuEventSynchronize(end))
            found.append(1e-3 * float(_check(driver, driver.cuEventElapsedTime(start, end))))
    finally:
        for event in (start, end):
            driver.cuEventDestroy(event)
    return min(found)


def allow_shared(function: Any, nbytes: int, ordinal: int) -> None:
    """Let the launches of a kernel on a GPU have more shared memory than a block may have without asking."""
    driver = _driver()
    device = _check(driver, driver.cuDeviceGet(ordinal))
    kind = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    (status,) = driver.cuKernelSetAttribute(kind, nbytes, driver.CUkernel(int(function)), device)
    if status:
        raise LaunchError(f"a kernel needs {nbytes} bytes of shared memory: {_explain(driver, status)}")
