"""The FILE:FUNCTION targets of the command line."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}


def target_of(text: str, shapes: str = "") -> tuple[Any, list[Any]]:
    """Return the function that FILE:FUNCTION names, and arguments for it.

    Parameters
    ----------
    text : str
        ``FILE:FUNCTION``.
    shapes : str
        Of the arguments, such as ``f32[64,784] i32[64]``: floats are around 0, all others 1. Empty: what
        ``example_inputs()`` of the file gives.

    Raises
    ------
    ArgumentError
        The function does not exist, or its arguments are unknown.
    """
    path, _, name = text.rpartition(":")
    if not path or not Path(path).is_file():
        raise ArgumentError(f"{text!r} is not FILE:FUNCTION with a FILE that exists")
    if Path(path).suffix != ".py":
        raise ArgumentError(f"{path} is not a Python file, NAME.py; mgb run reads models and exported files")
    module = load_file(Path(path))
    function = getattr(module, name, None)
    if not callable(function):
        raise ArgumentError(f"{path} has no function {name!r}")
    if shapes:
        return function, _inputs(shapes)
    if not hasattr(module, "example_inputs"):
        raise ArgumentError("give --shapes, or define example_inputs() in the file")
    return function, list(module.example_inputs())


def load_file(path: Path) -> Any:
    """Return the module of a Python file, whose folder is looked through for what it imports."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    return module


def _inputs(shapes: str) -> list[Any]:
    """Return one Tensor for each word such as ``f32[2,3]``."""
    from ..ir.dtypes import FLOATS
    from ..jit.argument_specs import spec_of
    from ..tensor import Tensor

    random, found = np.random.default_rng(0), []
    try:
        for spec in map(spec_of, shapes.split()):
            is_float = spec.dtype in FLOATS
            values = random.standard_normal(spec.shape) if is_float else np.ones(spec.shape)
            found.append(Tensor(values.astype(spec.dtype), spec.dtype))
    except MemoryError as error:
        raise ArgumentError(f"--shapes {shapes!r}: {error}; give shorter lengths") from error
    return found
