"""The levels at which a group can be seen, each as text.

``loops`` and ``vector`` are printed from the graph, and ``vector`` is compiled.

| level | what it is |
| --- | --- |
| ``loops`` | the loops over memory, whose lengths a plan gives (``scf``, ``memref``), by element |
| ``vector`` | the same loops; the innermost ones work on vectors (``vector``) |
| ``llvm`` | LLVM's dialect, made of ``vector`` by the toolchain's passes |
"""

from __future__ import annotations

from collections.abc import Callable

from mgb.runtime.config import Variable
from mgb_native.frame import Frame
from mgb_native.target import vector_bytes

from . import passes
from .builder import Kernel

STOP = Variable("MGB_MLIR_STOP", "vector", "the level of a kernel that explain() shows, as loops or llvm")


def _loops(frame: Frame) -> str:
    return Kernel(frame, 0).text()


def _vector(frame: Frame) -> str:
    return Kernel(frame, vector_bytes()).text()


def _llvm(frame: Frame) -> str:
    return str(passes.run(passes.parse(_vector(frame)), passes.TO_LLVM))


LEVELS: dict[str, Callable[[Frame], str]] = {"loops": _loops, "vector": _vector, "llvm": _llvm}


def lower(frame: Frame, stop: str) -> str:
    """Return the text of `frame`'s kernel at the level `stop`.

    Raises
    ------
    ValueError
        There is no such level.
    """
    if stop not in LEVELS:
        raise ValueError(f"level {stop!r} is unknown; choose one of {', '.join(LEVELS)}")
    return LEVELS[stop](frame)


def shown(frame: Frame, compiled: str) -> str:
    """Return the text that ``explain`` shows: the level of ``MGB_MLIR_STOP``, else the one that is compiled.

    If the level cannot be made, the reason is put above the compiled one: showing a level never fails.
    """
    level = STOP.get().strip().lower()
    if level == "vector":
        return compiled
    if level not in LEVELS:
        return f"// MGB_MLIR_STOP={level} is not a level; set it to one of {', '.join(LEVELS)}\n{compiled}"
    try:
        return lower(frame, level)
    except Exception as error:  # the kernel is compiled already, and is right without that text
        reason = " ".join(str(error).split()) or type(error).__name__
        return f"// MGB_MLIR_STOP={level} cannot be shown: {reason}\n{compiled}"
