"""A GPU through the CUDA driver: loading images, and launches that cost little host time."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, Protocol

from .arrays import Arrays, CupyArrays
from .bindings import DRIVER_HELP, bindings, check, explain, stream_handle
from .context import Context
from .device import Device, Properties, ResourceError, Start
from .graphs import Graph

#: The driver of CUDA 12.1: its kernels belong to no context, so that every GPU finds them, and may have more
#: than 4 KiB of parameters.
OLDEST = 12010

#: Streams for which a row of launches is kept ready.
STREAMS = 16


def missing() -> str | None:
    """Return why no kernel can be launched here, with what mends it.

    None when one can. Imports no toolchain.
    """
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
    """Return why the driver may refuse what this version of a toolchain makes; None when it takes it."""
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


class Compiler(Protocol):
    """A compiler of images."""

    def version(self) -> str:
        """Return the version of the toolchain, which is not loaded for that."""

    def compile(self, source: str, properties: Properties) -> bytes:
        """Return an image for such a GPU."""


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
        self.ordinal, self.context = ordinal, Context(ordinal)
        self.arrays = arrays or CupyArrays(ordinal)
        self.__dict__ |= {"address": self.arrays.address, "stream": self.arrays.stream}  # without a detour
        self._compiler = compiler
        self.properties = properties(ordinal)

    def key(self) -> str:
        return self.properties.architecture

    def toolchain(self) -> str:
        return self._compiler.version()

    def compile(self, source: str) -> bytes:
        return self._compiler.compile(source, self.properties)

    def load(self, image: bytes, names: Sequence[str]) -> tuple[Any, ...]:
        return loaded(hashlib.sha256(image).digest(), tuple(names), image)

    def parts(self, function: Any) -> tuple[Any, int]:
        """Return the driver's handle of a function, and the shared memory that its launches ask for."""
        return function, 0

    def launcher(self, function: Any, grid: tuple[int, int], threads: int) -> Callable[[int, int], None]:
        driver = bindings()
        handle, shared = self.parts(function)
        launch, success, (x, y) = driver.cuLaunchKernel, driver.CUresult.CUDA_SUCCESS, grid

        def run(stream: int, table: int) -> None:
            on = stream_handle(stream)
            (status,) = launch(handle, x, y, 1, threads, 1, 1, shared, on, table, 0)
            if status is not success:
                again = partial(launch, handle, x, y, 1, threads, 1, 1, shared, on, table, 0)
                self._launch_again(status, again)

        return run

    def sequence(self, starts: Sequence[Start], tables: Sequence[int]) -> Callable[[int], None]:
        driver, known = bindings(), dict[int, list[Callable[[], tuple[Any]]]]()
        success = driver.CUresult.CUDA_SUCCESS

        def ready(stream: int) -> list[Callable[[], tuple[Any]]]:
            """Return the calls of the driver, with all their arguments.

            Nobody puts them together at each launch.
            """
            on = stream_handle(stream) if stream else None
            found = []
            for (function, (x, y), threads), table in zip(starts, tables, strict=True):
                handle, shared = self.parts(function)
                given = (handle, x, y, 1, threads, 1, 1, shared, on, table, 0)
                found.append(partial(driver.cuLaunchKernel, *given))
            if len(known) >= STREAMS:
                known.clear()
            known[stream] = found
            return found

        def run(stream: int) -> None:
            for launch in known.get(stream) or ready(stream):
                (status,) = launch()
                if status is not success:
                    self._launch_again(status, launch)

        return run

    def _launch_again(self, status: Any, launch: Callable[[], tuple[Any]]) -> None:
        """Launch what was refused for want of a context; raise where something else was the matter."""
        check(bindings(), self.context.again((status,), launch))

    def check(self, function: Any, threads: int) -> None:
        self.context.ensure()
        handle, shared = self.parts(function)
        most, registers, static = (_of_kernel(handle, self.ordinal, kind) for kind in LIMITS)
        if most is not None and most < threads:
            raise ResourceError(
                f"a block of {threads} threads needs more registers than {self.properties.name} has: with "
                f"{registers} for each, it can have {most} threads"
            )
        check_shared((static or 0) + shared, self.properties)

    def graph(self, starts: Sequence[Start], tables: Sequence[int]) -> Graph:
        parts = [(*self.parts(f), grid, threads) for f, grid, threads in starts]
        return Graph(bindings(), self.context, parts, tables)

    def address(self, array: Any) -> int:
        return self.arrays.address(array)

    def stream(self) -> int:
        return self.arrays.stream()

    def is_capturing(self) -> bool:
        stream = self.stream()
        if not stream:  # the default one cannot capture
            return False
        self.context.ensure()
        driver = bindings()
        found = check(driver, driver.cuStreamIsCapturing(stream_handle(stream)))
        return bool(found != driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE)

    def scratch(self, nbytes: int) -> tuple[int, object]:
        return self.arrays.scratch(nbytes)

    def upload(self, array: Any) -> Any:
        return self.arrays.upload(array)

    def constant(self, array: Any) -> Any:
        return self.arrays.constant(array)

    def contiguous(self, array: Any) -> Any:
        return self.arrays.contiguous(array)


#: By digest and names: what is loaded, for as long as the process lives.
_loaded: dict[tuple[bytes, tuple[str, ...]], tuple[Any, ...]] = {}


def loaded(digest: bytes, names: tuple[str, ...], image: bytes) -> tuple[Any, ...]:
    """Return the kernels of an image, which is loaded once, however often it is made.

    It is never unloaded: graphs that a user has captured may launch its kernels when all else is forgotten.
    """
    found = _loaded.get((digest, names))
    if found is None:
        driver = bindings()
        # Loaded without a context: the driver puts it on each GPU that launches one of its kernels.
        library = check(driver, driver.cuLibraryLoadData(image, [], [], 0, [], [], 0))
        kernels = [check(driver, driver.cuLibraryGetKernel(library, name.encode())) for name in names]
        made = tuple(driver.CUfunction(int(kernel)) for kernel in kernels)
        found = _loaded.setdefault((digest, names), made)
    return found


@cache
def properties(ordinal: int) -> Properties:
    """Return the properties of the GPU with this number."""
    driver = bindings()
    device = check(driver, driver.cuDeviceGet(ordinal))
    kinds = driver.CUdevice_attribute

    def get(name: str) -> int:
        kind = getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(check(driver, driver.cuDeviceGetAttribute(kind, device)))

    def told(name: str) -> int:
        """Return the same, where the driver reports it."""
        kind = getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}", None)
        status, found = (1, 0) if kind is None else driver.cuDeviceGetAttribute(kind, device)
        return 0 if status else int(found)

    name = check(driver, driver.cuDeviceGetName(256, device))
    return Properties(
        name=name.split(b"\0")[0].decode(),
        capability=(get("COMPUTE_CAPABILITY_MAJOR"), get("COMPUTE_CAPABILITY_MINOR")),
        multiprocessors=get("MULTIPROCESSOR_COUNT"),
        shared_bytes=get("MAX_SHARED_MEMORY_PER_BLOCK"),
        most_shared_bytes=get("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        clock=1e3 * told("CLOCK_RATE"),
        bandwidth=1e3 * told("MEMORY_CLOCK_RATE") * 2 * told("GLOBAL_MEMORY_BUS_WIDTH") / 8,
    )


@cache
def device_count() -> int:
    """Return how many GPUs there are."""
    driver = bindings()
    return int(check(driver, driver.cuDeviceGetCount()))


def current() -> int:
    """Return the number of the GPU that CuPy works on now."""
    import cupy

    return int(cupy.cuda.runtime.getDevice())


def elapsed(context: Context, run: Callable[[int], None], stream: int, times: int = 5) -> float:
    """Measure seconds of device time of ``run(stream)``: the least of a few, after one that warms up."""
    context.ensure()
    driver = bindings()
    handle, found = driver.CUstream(stream), []
    start, end = (check(driver, driver.cuEventCreate(0)) for _ in range(2))
    try:
        run(stream)
        for _ in range(times):
            check(driver, driver.cuEventRecord(start, handle))
            run(stream)
            check(driver, driver.cuEventRecord(end, handle))
            check(driver, driver.cuEventSynchronize(end))
            found.append(1e-3 * float(check(driver, driver.cuEventElapsedTime(start, end))))
    finally:
        for event in (start, end):
            driver.cuEventDestroy(event)
    return min(found)


#: What limits a block, as the driver calls it: most threads, registers of each, bytes of shared memory.
LIMITS = ("MAX_THREADS_PER_BLOCK", "NUM_REGS", "SHARED_SIZE_BYTES")


def _of_kernel(handle: Any, ordinal: int, name: str) -> int | None:
    """Return a fact of a loaded kernel; None where the driver does not say."""
    driver = bindings()
    kind = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
    status, found = driver.cuKernelGetAttribute(kind, driver.CUkernel(int(handle)), driver.CUdevice(ordinal))
    return None if status else int(found)


def check_shared(nbytes: int, properties: Properties) -> None:
    """Raise where a GPU has not that much shared memory for a block."""
    if nbytes > properties.most_shared_bytes:
        most = properties.most_shared_bytes
        raise ResourceError(
            f"a block needs {nbytes} bytes of shared memory, {properties.name} has {most} for one"
        )


def allow_shared(function: Any, nbytes: int, ordinal: int) -> None:
    """Let the launches of a kernel on a GPU have more shared memory than a block may have without asking."""
    driver = bindings()
    device = check(driver, driver.cuDeviceGet(ordinal))
    kind = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    (status,) = driver.cuKernelSetAttribute(kind, nbytes, driver.CUkernel(int(function)), device)
    if status:
        raise ResourceError(f"a block needs {nbytes} bytes of shared memory: {explain(driver, status)}")
