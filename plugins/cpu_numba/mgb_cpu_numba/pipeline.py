"""Numba's compiler with only the passes that a kernel needs.

The others serve closures, exceptions, arrays and constants in types; a kernel has numbers and loops alone.
Static single assignment is left to LLVM, and so a variable of a kernel has one type everywhere.
"""

from __future__ import annotations

from typing import Any

from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import PassManager
from numba.core.typed_passes import IRLegalization, NativeLowering, NoPythonBackend, NopythonTypeInference
from numba.core.untyped_passes import FixupArgs, IRProcessing, TranslateByteCode

PASSES = (
    TranslateByteCode, FixupArgs, IRProcessing, NopythonTypeInference, IRLegalization, NativeLowering,
    NoPythonBackend,
)  # fmt: skip


class Pipeline(CompilerBase):
    """The passes, for ``numba.cfunc``."""

    def define_pipelines(self) -> list[PassManager]:
        """The list of the one pipeline that there is."""
        manager: Any = PassManager
        passes = manager("mgb")
        for each in PASSES:
            passes.add_pass(each, each.__name__)
        passes.finalize()
        return [passes]
