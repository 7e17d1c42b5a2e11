"""The bridge in C (`call.c`) from the launcher of mgb-native to pipelines, and what these call."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from mgb.backends import num_threads
from mgb.runtime import forking
from mgb_native.native import native

#: Of the structures in `launch`, and of what is called; the same as in `call.c`.
VERSION = 1

#: What setup.py builds. It imports nothing.
LIBRARY = "mgb_halide._call"

#: How it is built.
REMEDY = (
    "install a C compiler, then run: pip install --force-reinstall --no-deps --no-cache-dir mgb-halide "
    "(in a checkout: ./plugins/halide)"
)

#: The word that is 0 while stores are to go past the caches, else 1, as pipelines call it.
PLAIN = "mgb_plain"

#: What pipelines call by these names.
RUNTIME = ("halide_do_par_for", "halide_malloc", "halide_free", PLAIN)

#: Functions of the C library that pipelines call by another name; see `mgb_halide.division`.
RENAMED = {"atan2": "fmod"}


def _import() -> tuple[Any, str | None]:
    """Return the library, and why it cannot be used."""
    try:
        library = import_module(LIBRARY)
    except ImportError as error:
        return None, f"its bridge in C was not built ({error}); {REMEDY}"
    if library.VERSION != VERSION:
        built = f"{library.__file__} is of version {library.VERSION}, not {VERSION}"
        return None, f"its bridge in C was built from other sources: {built}; {REMEDY}"
    return library, None


_library, problem = _import()


class _Symbols(dict[str, int]):
    """Addresses that pipelines ask for; all of Halide's errors are one function, whose status they return."""

    def __init__(self, known: dict[str, int], failed: int) -> None:
        super().__init__(known)
        self.failed = failed

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or str(name).startswith("halide_error")

    def __missing__(self, name: str) -> int:
        return self.failed


@dataclass(frozen=True, slots=True)
class Bridge:
    """The addresses of what is in `call.c`.

    Attributes
    ----------
    call, together : int
        Kernels for the launcher: one that asks for threads, and one that runs on the thread it is called on.
    nothing : int
        A pipeline that does nothing.
    symbols : mapping
        What pipelines call, by name.
    """

    call: int
    together: int
    nothing: int
    symbols: _Symbols


@cache
def bridge() -> Bridge:
    """Return the bridge, bound to the launcher.

    Raises
    ------
    ImportError
        It was not built, or from other sources.
    """
    if problem is not None:
        raise ImportError(problem)
    _library.bind(native().run_range, _threads)
    forking.at_fork(in_child=_library.forget)
    known = {name: getattr(_library, name) for name in RUNTIME}
    known |= {name: _address(function) for name, function in RENAMED.items()}
    symbols = _Symbols(known, _library.failed)
    return Bridge(_library.call, _library.together, _library.nothing, symbols)


def _address(function: str) -> int:
    """Return the address of a function of the C library."""
    return ctypes.cast(ctypes.CDLL(None)[function], ctypes.c_void_p).value or 0


def _threads() -> int:
    """Return how many threads a kernel may use; there are as many."""
    launcher, count = native(), num_threads()
    launcher.grow(count - 1)
    return min(count, 1 + int(launcher.workers()))
