"""Numba's compiler with only what a kernel needs: a short list of passes, LLVM run once, the widest vectors.

The passes left out serve closures, exceptions, arrays and constants in types; a kernel has numbers and loops
alone. Static single assignment is left to LLVM, and so a variable of a kernel has one type everywhere.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import llvmlite.binding as llvm
from numba.core.codegen import CPUCodeLibrary, JITCPUCodegen
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import PassManager
from numba.core.typed_passes import IRLegalization, NativeLowering, NoPythonBackend, NopythonTypeInference
from numba.core.untyped_passes import FixupArgs, IRProcessing, TranslateByteCode

PASSES = (
    TranslateByteCode, FixupArgs, IRProcessing, NopythonTypeInference, IRLegalization, NativeLowering,
    NoPythonBackend,
)  # fmt: skip

#: LLVM halves the vectors of many processors with AVX-512, for the sake of code that uses few of them.
FEATURES = ",-prefer-256-bit"


class Library(CPUCodeLibrary):
    """A module that LLVM optimizes once; `image` is its object file."""

    image: bytes

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.loop_vectorization, options.slp_vectorization = True, False
        builder = llvm.create_pass_builder(self._codegen._tm, options)
        builder.getModulePassManager().run(self._final_module, builder)

    def _finalize_final_module(self) -> None:
        self.image = self._codegen._tm.emit_object(self._final_module)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """0: this only makes the image."""
        self._ensure_finalized()
        return 0


class Codegen(JITCPUCodegen):
    """Numba's target for this processor."""

    _library_class = Library

    def _customize_tm_features(self) -> str:
        features: str = super()._customize_tm_features()
        return features + (FEATURES if "+avx512f" in features else "")


@cache
def codegen() -> Codegen:
    """The one there is."""
    return Codegen("mgb.cpu_numba")


class Pipeline(CompilerBase):
    """The passes, for ``numba.cfunc``."""

    def __init__(self, typingctx: Any, targetctx: Any, library: Any, *rest: Any) -> None:
        super().__init__(typingctx, targetctx, codegen().create_library("kernel"), *rest)

    def define_pipelines(self) -> list[PassManager]:
        """The list of the one pipeline that there is."""
        manager: Any = PassManager
        passes = manager("mgb")
        for each in PASSES:
            passes.add_pass(each, each.__name__)
        passes.finalize()
        return [passes]
