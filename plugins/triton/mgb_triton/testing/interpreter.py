"""A device that is Triton's interpreter: programs run one after another, on NumPy's arrays."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
from mgb_cuda.device import Device, Properties
from mgb_cuda.testing.arrays import HostArrays
from ml_dtypes import bfloat16

from ..compiler import missing, version

__all__ = ["PROPERTIES", "Interpreter", "missing"]

#: Few multiprocessors, so that small arrays are cut over programs as large ones are on a GPU.
PROPERTIES = Properties("interpreter", (9, 0), multiprocessors=4)

_NUMBERS = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "u32": ctypes.c_uint32}

#: The interpreter changes Triton while a kernel runs.
_lock = threading.Lock()


@dataclass(frozen=True)
class Interpreted:
    """One kernel: a Python function, and the types of its parameters."""

    run: Callable[..., None]
    signature: dict[str, str]


class Interpreter(HostArrays, Device):
    """Runs the text that Triton would compile.

    Parameters
    ----------
    properties : Properties, optional

    Attributes
    ----------
    sources : list of str
        Every text that was asked for, in order.
    reverse : bool
        Programs run in the other order.
    """

    def __init__(self, properties: Properties = PROPERTIES) -> None:
        self.properties = properties
        self.sources: list[str] = []
        self.reverse = False

    def key(self) -> str:
        return "interpreter"

    def toolchain(self) -> str:
        return version()

    def compile(self, source: str) -> bytes:
        self.sources.append(source)
        return source.encode()

    def load(self, image: bytes, names: Sequence[str]) -> tuple[Any, ...]:
        found = interpreted_prelude()
        exec(compile(image, "<kernel>", "exec"), found)
        return tuple(Interpreted(found[name], found["SIGNATURE"]) for name in names)

    def launcher(
        self, function: Any, grid: tuple[int, int], threads: int, shared: int = 0
    ) -> Callable[[int, int], None]:
        def launch(_stream: int, table: int) -> None:
            with _lock, patched(function.run) as (builder, argument), np.errstate(all="ignore"):
                places = (ctypes.c_void_p * len(function.signature)).from_address(table)
                pairs = zip(function.signature.values(), places, strict=True)
                given = [argument(kind, place) for kind, place in pairs]
                builder.set_grid_dim(*grid, 1)
                programs = [(x, y) for x in range(grid[0]) for y in range(grid[1])]
                for x, y in reversed(programs) if self.reverse else programs:
                    builder.set_grid_idx(x, y, 0)
                    function.run(*given)

        return launch

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new array, full of what shows when it is read before it is written."""
        return np.full(shape, 77, dtype)


def interpreted_prelude() -> dict[str, Any]:
    """Return the functions of the prelude as Python has them, and a stand-in for the library of the GPU."""
    from triton.runtime.jit import JITFunction

    from .. import prelude

    found: dict[str, Any] = {"tl": prelude.tl, "libdevice": NumpyLibrary(), "jit": lambda f: f}
    for name, value in vars(prelude).items():
        if isinstance(value, JITFunction):
            found[name] = FunctionType(value.fn.__code__, found, name)
    return found


class NumpyLibrary:
    """NumPy's functions under the names of CUDA's."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        from scipy import special

        function = special.erf if name == "erf" else getattr(np, name)

        def call(*arguments: Any) -> Any:
            import triton.language as tl
            from triton.runtime.interpreter import TensorHandle

            dtype = next(x.dtype for x in arguments)
            arrays = [x.handle.data for x in arguments]
            return _tensor(tl, TensorHandle, function(*arrays).astype(arrays[0].dtype), dtype)

        return call


def _tensor(tl: Any, handle: Any, data: np.ndarray[Any, Any], dtype: Any) -> Any:
    """Return a value of the interpreter; one of a single element may be a scalar."""
    kind = tl.block_type(dtype, list(data.shape)) if data.shape not in ((), (1,)) else dtype
    return tl.tensor(handle(np.atleast_1d(data), dtype), kind)


@contextmanager
def patched(function: Callable[..., None]) -> Iterator[tuple[Any, Callable[[str, int], Any]]]:
    """Run Triton's language by its interpreter: yield the builder of programs, and the parameter reader."""
    import triton.language as tl
    from triton.runtime import interpreter

    handle, builder = interpreter.TensorHandle, interpreter.interpreter_builder

    def argument(kind: str, place: int) -> Any:
        dtype = tl.str_to_ty(kind, None)
        if kind.startswith("*"):
            data = np.array([ctypes.c_uint64.from_address(place).value], np.uint64)
        else:
            data = np.array([_NUMBERS[kind].from_address(place).value], _NUMBERS[kind])
        return tl.tensor(handle(data, dtype), dtype)

    def reduce(x: Any, axis: int, combine: Callable[..., Any], keep_dims: bool = False) -> Any:
        """Reduce halves until one element is left, in whatever order: no kernel may depend on it."""
        dtype, data = x.dtype, x.handle.data
        while data.shape[axis] > 1:
            halves = (_tensor(tl, handle, half, dtype) for half in np.split(data, 2, axis))
            shape = list(data.shape)
            shape[axis] //= 2
            data = combine(*halves).handle.data.reshape(shape)
        return _tensor(tl, handle, data if keep_dims else data.squeeze(axis), dtype)

    def masked_load(ptrs: Any, mask: Any, other: Any, policy: Any, volatile: bool) -> Any:
        """Load with a recognizable value in masked elements."""
        if other is None:
            kind = interpreter._get_np_dtype(ptrs.get_element_ty())
            size = int(np.prod(ptrs.data.shape)) * kind.itemsize
            rest = np.full(size, 1 if kind.kind == "b" else 0xFF, np.uint8).view(kind)  # not a number
            other = handle(rest.reshape(ptrs.data.shape), ptrs.get_element_ty())
        return type(builder).create_masked_load(builder, ptrs, mask, other, policy, volatile)

    def cast(source: Any, target: Any) -> Any:
        """Round to nearest, as a GPU does it; the interpreter cuts what bfloat16 has no room for."""
        if tl.bfloat16 not in (source.dtype.scalar, target.scalar):
            return type(builder).cast_impl(builder, source, target)
        own = source.data.view(bfloat16) if source.dtype.scalar == tl.bfloat16 else source.data
        if target.scalar == tl.bfloat16:
            return handle(own.astype(bfloat16).view(np.uint16), tl.bfloat16)
        return handle(own.astype(interpreter._get_np_dtype(target)), target.scalar)

    def dot(a: Any, b: Any, total: Any, precision: Any, most: Any) -> Any:
        """Multiply in float32: the interpreter multiplies the bits of bfloat16."""
        parts = [x.data.view(bfloat16) if x.dtype.scalar == tl.bfloat16 else x.data for x in (a, b)]
        wide = total.data.dtype
        return handle(np.matmul(*(x.astype(wide) for x in parts)) + total.data, total.dtype.scalar)

    def splat(kind: Any, x: Any) -> Any:
        """Splat with the dtype that its data has: the interpreter takes a comparison for a number."""
        return handle(np.full(kind.shape, x.data, x.data.dtype), x.dtype.scalar)

    scope = interpreter._patch_lang(function)
    scope.set_attr(builder, "create_splat", splat)
    scope.set_attr(builder, "create_dot", dot)
    scope.set_attr(builder, "cast_impl", cast)
    scope.set_attr(tl, "reduce", reduce)
    scope.set_attr(builder, "create_masked_load", masked_load)
    try:
        yield builder, argument
    finally:
        scope.restore()
