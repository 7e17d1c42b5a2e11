"""The toolchain's passes by name, and how a module goes through them.

Every pass that this plugin asks for stands here.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from mgb.runtime import forking
from mgb_native.native import native

#: From the level ``vector``, or ``loops``, to LLVM's dialect.
TO_LLVM = (
    "inline{default-pipeline=}",
    "symbol-dce",
    "convert-scf-to-cf",
    "convert-vector-to-llvm",
    "convert-to-llvm",
    "reconcile-unrealized-casts",
)

#: The toolchain does one thing at a time.
compiling = forking.lock()


class LoweringError(Exception):
    """The toolchain failed, by a defect of this plugin or of the wheel. The message has the module's path."""


@cache
def context() -> Any:
    """Return the one context. Its own threads would only be in the way of ours."""
    from torch_mlir import ir

    made = ir.Context()
    made.enable_multithreading(False)
    return made


def parse(text: str) -> Any:
    """Return a module of its text.

    Raises
    ------
    LoweringError
        It is not a valid module.
    """
    from torch_mlir import ir

    with context(), ir.Location.unknown():
        try:
            return ir.Module.parse(text)
        except ir.MLIRError as error:
            path = kept(text)
            raise LoweringError(f"the module in {path / 'before.mlir'} is not valid: {error}") from None


def run(module: Any, passes: tuple[str, ...]) -> Any:
    """Run passes on `module`, in place.

    Raises
    ------
    LoweringError
        One failed; a folder has the module before it and after.
    """
    from torch_mlir import ir

    with context(), ir.Location.unknown():
        before = module.operation.clone()
        try:
            _run(module, ",".join(passes), checked=False)
            if module.operation.verify():
                return module
        except (ir.MLIRError, ValueError):
            pass
    return _one_by_one(str(before), passes)


def _run(module: Any, passes: str, checked: bool = True) -> None:
    """Run passes; that the module is valid after each is `checked`."""
    from torch_mlir.passmanager import PassManager

    manager = PassManager.parse(f"builtin.module({passes})")
    manager.enable_verifier(checked)
    manager.run(module.operation)


def _one_by_one(text: str, passes: tuple[str, ...]) -> Any:
    """Run the passes one by one, slowly, to find the one that fails."""
    from torch_mlir import ir

    module = parse(text)
    with context(), ir.Location.unknown():
        for name in passes:
            before = str(module)
            try:
                _run(module, name)
            except (ir.MLIRError, ValueError) as error:  # a ValueError: there is no such pass
                path = kept(before, _generic(module))
                raise LoweringError(
                    f"the pass {name} failed; before.mlir and after.mlir in {path} have the module: {error}"
                ) from None
    return module


def _generic(module: Any) -> str:
    """Return a module that may not be valid."""
    return str(module.operation.get_asm(print_generic_op_form=True, assume_verified=True))


def kept(before: str, after: str = "") -> Path:
    """Return a new folder with the module."""
    path = Path(tempfile.mkdtemp(prefix="mgb-mlir-"))
    (path / "before.mlir").write_text(before)
    if after:
        (path / "after.mlir").write_text(after)
    return path


def machine_code(module: Any, level: int) -> bytes:
    """Return the object file of a module in LLVM's dialect, for this processor."""
    from torch_mlir import ir
    from torch_mlir.execution_engine import ExecutionEngine

    handle, path = tempfile.mkstemp(suffix=".o", prefix="mgb-mlir-")
    os.close(handle)
    try:
        with context(), ir.Location.unknown():
            try:
                engine = ExecutionEngine(module, opt_level=level)
            except RuntimeError as error:
                before = kept(str(module)) / "before.mlir"
                raise LoweringError(f"LLVM does not take the module in {before}: {error}") from None
            for name, address in native().copies.items():  # or the engine would miss them
                engine.raw_register_runtime(name, ctypes.c_void_p(address))
            engine.dump_to_object_file(path)
        return Path(path).read_bytes()
    finally:
        os.unlink(path)
