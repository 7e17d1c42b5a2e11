"""Halide: imported when it is first used; its target, its version, and objects made of pipelines."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

#: The version that the tests are run with.
TESTED = "21.0.0"


#: Where Halide reads the options of its LLVM, once; and the one that keeps LLVM from joining scalars to short
#: vectors, in which `fused` would not know its products again.
LLVM_OPTIONS, APART = "HL_LLVM_ARGS", "-vectorize-slp=false"


class _Lazy:
    """The module `halide`, imported at the first word of it."""

    def __getattr__(self, name: str) -> Any:
        given = os.environ.get(LLVM_OPTIONS, "")
        if APART.partition("=")[0] not in given:
            os.environ[LLVM_OPTIONS] = f"{given} {APART}".strip()
        value = getattr(importlib.import_module("halide"), name)
        setattr(self, name, value)
        return value


hl: Any = _Lazy()

#: What kernels are compiled with. Additions are not reordered; code may lie anywhere in memory, and finds the
#: runtime there.
FEATURES = ("no_asserts", "no_bounds_query", "no_runtime", "strict_float", "llvm_large_code_model")

#: The same with Halide's assertions.
CHECKED = tuple(f for f in FEATURES if f != "no_asserts")


@cache
def host() -> str:
    """Return Halide's target string of this machine."""
    return str(hl.get_host_target())


def target(*features: str) -> Any:
    """Return Halide's target for this machine with `features`."""
    return hl.Target("-".join((host(), *features)))


@cache
def installed() -> str:
    """Return the version of Halide that is installed, without importing it."""
    try:
        return version("halide")
    except PackageNotFoundError:
        return "none"


def compile_pipeline(
    outputs: Sequence[Any],
    arguments: Sequence[Any],
    name: str,
    features: Sequence[str] = FEATURES,
    pipeline: Any = None,
) -> bytes:
    """Return the object file of `outputs`, or of a `pipeline` of them.

    Raises
    ------
    halide.HalideError
        Halide does not like the pipeline.
    """
    pipeline = pipeline or hl.Pipeline(list(outputs))
    with tempfile.TemporaryDirectory(prefix="mgb_halide_") as folder:
        image = Path(folder, "kernel.o")
        kinds = {hl.OutputFileType.object: str(image)}
        pipeline.compile_to(kinds, list(arguments), name, target(*features))
        return image.read_bytes()


def pipeline_text(outputs: Sequence[Any], arguments: Sequence[Any], name: str) -> str:
    """Return LLVM's text of `outputs`, which Halide has had optimized.

    Raises
    ------
    halide.HalideError
        Halide does not like the pipeline.
    """
    with tempfile.TemporaryDirectory(prefix="mgb_halide_") as folder:
        text = Path(folder, "kernel.ll")
        kinds = {hl.OutputFileType.llvm_assembly: str(text)}
        hl.Pipeline(list(outputs)).compile_to(kinds, list(arguments), name, target(*FEATURES))
        return text.read_text()


def keep(group: str, pipeline: Any, error: Exception) -> Path:
    """Return a new folder with what failed to compile.

    Parameters
    ----------
    group : str
    pipeline : Pipeline or None
        Halide's functions, when there are any yet: their loops are written too, as far as Halide gets.
    error : Exception
    """
    folder = Path(tempfile.mkdtemp(prefix="mgb-halide-"))
    (folder / "group.txt").write_text(group)
    (folder / "error.txt").write_text(str(error))
    if pipeline is not None:
        kinds = {hl.OutputFileType.stmt: str(folder / "loops.stmt")}
        try:
            made = hl.Pipeline(list(pipeline.outputs))
            made.compile_to(kinds, list(pipeline.arguments), "group", target(*FEATURES))
        except hl.HalideError:
            pass  # it failed before there were loops
    return folder
