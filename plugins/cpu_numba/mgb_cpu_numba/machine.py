"""Source to machine code, and machine code to bytes and back."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from .writer import Source

_loading = threading.Lock()


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
        """The code as bytes, for `load`."""
        return self.symbol.encode() + b"\n" + self.image


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
    return load(compiled.native_name.encode() + b"\n" + compiled._library.image)


_NUMBERS = tuple(f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)) + ("float32", "float64")


def load(blob: bytes) -> Code:
    """The code that `Code.dump` made `blob` of, through LLVM alone: Numba is not imported."""
    import llvmlite.binding as llvm

    symbol, _, image = blob.partition(b"\n")
    name = symbol.decode()
    builder = llvm.JITLibraryBuilder().add_object_img(image).export_symbol(name).add_current_process()
    with _loading:
        linker, number = _linker(), next(_count)
        library = builder.link(linker, f"mgb{number}")
    return Code(library[name], name, image, library)


_count = iter(range(1 << 62))


@cache
def _linker() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_lljit_compiler(machine)


@cache
def toolchain() -> str:
    """What code depends on beside its graph: this package, Numba and llvmlite, and the processor."""
    import llvmlite.binding as llvm

    own = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        own.update(path.read_bytes())
    cpu = f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    return f"{own.hexdigest()[:12]} numba {version('numba')} llvmlite {version('llvmlite')} {cpu}"
