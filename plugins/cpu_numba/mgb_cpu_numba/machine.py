"""Source to machine code, and machine code to bytes and back."""

from __future__ import annotations

import struct
import threading
import zlib
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from .native import native
from .objects import Loaded, ObjectError
from .writer import Source

_loading = threading.Lock()

#: Of the bytes of a kernel: the lengths of its symbol and of its object file, which follow; the rest is the
#: object file of the native code that calls it, compressed.
_LENGTHS = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class Code:
    """A compiled kernel.

    Attributes
    ----------
    address : int
        Of a C function that takes int64s and returns one.
    symbol : str
        Its name in `image`.
    image : bytes
        The object file.
    owner : object
        Keeps the code in memory.
    """

    address: int
    symbol: str
    image: bytes
    owner: Any

    def dump(self) -> bytes:
        """All that it takes to call it, for `load`."""
        symbol = self.symbol.encode()
        lengths = _LENGTHS.pack(len(symbol), len(self.image))
        return lengths + symbol + self.image + zlib.compress(native().image)


def build(source: Source, arity: int) -> Code:
    """Compile a kernel of `arity` arguments with Numba."""
    from numba import cfunc, types

    from .intrinsics import MAKERS, WORDS
    from .pipeline import Pipeline

    names: dict[str, Any] = {d: getattr(np, d) for d in _NUMBERS} | {"bool": np.bool_}
    names |= {"inf": np.inf, "nan": np.nan} | WORDS
    names |= {name: MAKERS[maker](*arguments) for name, (maker, arguments) in source.functions.items()}
    exec(compile(source.text, "<mgb kernel>", "exec"), names)
    signature = types.int64(*[types.int64] * arity)
    options: dict[str, Any] = {"nopython": True, "error_model": "numpy", "_nrt": False}
    compiled: Any = cfunc(signature, pipeline_class=Pipeline, **options)(names["kernel"])
    return _code(compiled.native_name, compiled._library.image)


_NUMBERS = tuple(f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)) + ("float32", "float64")


def load(blob: bytes) -> Code:
    """The code that `Code.dump` made `blob` of; no compiler is imported.

    Raises
    ------
    ObjectError
        The bytes are damaged.
    """
    try:
        length, size = _LENGTHS.unpack_from(blob)
        symbol, image = blob[_LENGTHS.size :][:length].decode(), blob[_LENGTHS.size + length :][:size]
        native(zlib.decompress(blob[_LENGTHS.size + length + size :]))
    except (struct.error, zlib.error, UnicodeDecodeError) as error:
        raise ObjectError(f"the bytes of a kernel are damaged: {error}") from error
    return _code(symbol, image)


def _code(symbol: str, image: bytes) -> Code:
    """A kernel, put into memory by LLVM where our loader cannot."""
    try:
        owner: Any = Loaded(image)
    except ObjectError:
        owner = _linked(symbol, image)
    return Code(owner[symbol], symbol, image, owner)


def _linked(symbol: str, image: bytes) -> Any:
    import llvmlite.binding as llvm

    builder = llvm.JITLibraryBuilder().add_object_img(image).export_symbol(symbol).add_current_process()
    with _loading:
        linker, number = _linker(), next(_count)
        return builder.link(linker, f"mgb{number}")


_count = iter(range(1 << 62))


@cache
def _linker() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_lljit_compiler(machine)
