"""Source to machine code, by Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from mgb_native.code import Code, place

from .writer import Source


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
    return place(compiled.native_name, compiled._library.image)


_NUMBERS = tuple(f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)) + ("float32", "float64")
