"""Machine code: called, turned into bytes and back."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

from mgb.runtime import forking

from .native import native
from .objects import Loaded, ObjectError

_loading = forking.lock()

#: Of the bytes of a kernel: the lengths of its symbol and of its object file, which follow.
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
        """Return all that it takes to call it, for `load`."""
        symbol = self.symbol.encode()
        lengths = _LENGTHS.pack(len(symbol), len(self.image))
        return lengths + symbol + self.image


def load(blob: bytes) -> Code:
    """Return the code that `Code.dump` made `blob` of; no compiler is imported.

    Raises
    ------
    ObjectError
        The bytes are damaged.
    """
    try:
        length, size = _LENGTHS.unpack_from(blob)
        symbol, image = blob[_LENGTHS.size :][:length].decode(), blob[_LENGTHS.size + length :]
    except (struct.error, UnicodeDecodeError) as error:
        raise ObjectError(f"the bytes of a kernel are damaged: {error}") from error
    if len(image) != size:
        raise ObjectError(f"the bytes of a kernel are damaged: {len(image)} of an object file of {size}")
    return place(symbol, image)


def place(symbol: str, image: bytes) -> Code:
    """Return a kernel, put into memory by LLVM where our loader cannot."""
    try:
        owner: Any = Loaded(image, native().copies)
    except ObjectError:
        owner = _linked(symbol, image)
    return Code(owner[symbol], symbol, image, owner)


def _linked(symbol: str, image: bytes) -> Any:
    import llvmlite.binding as llvm

    builder = llvm.JITLibraryBuilder().add_object_img(image).export_symbol(symbol).add_current_process()
    for name, address in native().copies.items():
        builder.import_symbol(name, address)
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
