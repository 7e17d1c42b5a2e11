"""Compiled pipelines in memory: bound to `call.ll`, turned into bytes and back."""

from __future__ import annotations

import ctypes
import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mgb.backends import num_threads
from mgb.runtime import forking
from mgb_native.native import emit, native
from mgb_native.objects import Loaded, ObjectError

from .schedule import Form

#: Functions of `call.ll` that kernels call by these names.
RUNTIME = ("halide_do_par_for", "halide_malloc", "halide_free")

#: Functions of the C library that kernels call by another name; see `mgb_halide.division`.
RENAMED = {"atan2": "fmod"}

#: The word of `call.ll` that is 0 while stores are to go past the caches, else 1, as kernels call it.
PLAIN = "mgb_plain"

#: The name of each compiled function; Halide adds the one that takes an array of pointers.
NAME = "mgb_kernel"

_LENGTHS = struct.Struct("<III")


class _Symbols(dict[str, int]):
    """The functions that kernels call; all of Halide's errors are one, whose result the kernel returns."""

    def __init__(self, known: dict[str, int], failed: int) -> None:
        super().__init__(known)
        self.failed = failed

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or str(name).startswith("halide_error")

    def __missing__(self, name: str) -> int:
        return self.failed


class Bridge:
    """The functions of `call.ll`.

    Parameters
    ----------
    image : bytes
        Its object file.

    Raises
    ------
    ObjectError
        It cannot be loaded here.
    """

    def __init__(self, image: bytes) -> None:
        self.image = image
        library = Loaded(image)
        self.call, self.together, self.nothing = (library[n] for n in ("call", "together", "nothing"))
        known = {name: library[name] for name in RUNTIME}
        known[PLAIN] = library["plain"]
        known |= {name: _address(function) for name, function in RENAMED.items()}
        self.symbols = _Symbols(known, library["failed"])
        ctypes.c_void_p.from_address(library["pool"]).value = native().run_free
        ctypes.c_void_p.from_address(library["ask"]).value = id(_threads)
        library.stay()  # a worker may be in it when Python ends
        forget = ctypes.PYFUNCTYPE(None)(library["forget"])
        forking.at_fork(in_child=forget)


def _address(function: str) -> int:
    """Of a function of the C library."""
    return ctypes.cast(ctypes.CDLL(None)[function], ctypes.c_void_p).value or 0


def _threads() -> int:
    """Return how many threads a kernel may use; there are as many."""
    count = num_threads()
    native().grow(count - 1)
    return count


_bridge: Bridge | None = None
_making = forking.lock()


def bridge(image: bytes = b"") -> Bridge:
    """Return the one of this process, made of `image` if that can be loaded, else compiled."""
    global _bridge
    if _bridge is None:
        with _making:
            if _bridge is None:
                made = _load(image)
                if _bridge is None:  # a signal may have called a kernel meanwhile
                    _bridge = made
    return _bridge


def _load(image: bytes) -> Bridge:
    if image:
        try:
            return Bridge(image)
        except ObjectError:
            pass
    return Bridge(emit((Path(__file__).parent / "call.ll").read_text()))


@dataclass(frozen=True, slots=True)
class Code:
    """A compiled pipeline.

    Attributes
    ----------
    address : int
        Of the function that takes an array of pointers to its arguments.
    order : tuple of str
        The names of the arguments.
    image : bytes
        The object file.
    schedule : str
        What it was scheduled by.
    form : Form
        The rows that it is for.
    sizes : dict or None
        The lengths of the loops that it is for, if it is not for all.
    owner : object
        Keeps the code in memory.
    """

    address: int
    order: tuple[str, ...]
    image: bytes
    schedule: str
    form: Form
    sizes: dict[str, int] | None
    owner: Any


def dump(codes: Sequence[Code]) -> bytes:
    """Return all that it takes to call these, for `load`."""
    head = json.dumps([[c.order, c.schedule, c.form, c.sizes, len(c.image)] for c in codes]).encode()
    images = b"".join(c.image for c in codes)
    parts = (head, images, zlib.compress(bridge().image))
    return _LENGTHS.pack(*map(len, parts)) + b"".join(parts)


def place(
    image: bytes, order: tuple[str, ...], schedule: str, form: Form, sizes: dict[str, int] | None = None
) -> Code:
    """Return a compiled pipeline, put into memory."""
    owner = Loaded(image, bridge().symbols)
    return Code(owner[f"{NAME}_argv"], order, image, schedule, form, sizes, owner)


def load(blob: bytes) -> list[Code]:
    """Return the codes that `dump` made `blob` of; neither Halide nor a compiler is imported.

    Raises
    ------
    ObjectError
        The bytes are damaged.
    """
    try:
        at, parts = _LENGTHS.size, []
        for length in _LENGTHS.unpack_from(blob):
            parts.append(blob[at : at + length])
            at += length
        bridge(zlib.decompress(parts[2]))
        found, start = [], 0
        for order, schedule, form, sizes, length in json.loads(parts[0]):
            image = parts[1][start : start + length]
            found.append(place(image, tuple(order), str(schedule), Form(form), sizes))
            start += length
    except (struct.error, zlib.error, ValueError, TypeError) as error:
        raise ObjectError(f"the bytes of a kernel are damaged: {error}") from error
    return found
