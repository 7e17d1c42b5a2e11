"""Numba's compiler with only what a kernel needs: a short list of passes, LLVM run once, the widest vectors.

The passes left out serve closures, exceptions, arrays and constants in types; a kernel has numbers and loops
alone. Static single assignment is left to LLVM, and so a variable of a kernel has one type everywhere.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
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


def write_entry(context: Any, library: Library, kernel: Any, *_unused: Any) -> None:
    """Write the C function that calls `kernel`, in the place of Numba's.

    Numba's asks for the interpreter's lock to report an exception. A kernel raises none, but only the
    optimizer can tell, and of a large kernel it may not: then the object file would want functions of Numba.
    """
    module, convention = context.create_module("entry"), context.call_conv
    callee_type = convention.get_function_type(kernel.restype, kernel.argtypes)
    callee = ir.Function(module, callee_type, kernel.llvm_func_name)
    result, *arguments = map(context.get_value_type, (kernel.restype, *kernel.argtypes))
    entry = ir.Function(module, ir.FunctionType(result, arguments), kernel.llvm_cfunc_wrapper_name)
    builder = ir.IRBuilder(entry.append_basic_block())
    _status, returned = convention.call_function(
        builder, callee, kernel.restype, kernel.argtypes, entry.args, attrs=("noinline",)
    )
    builder.ret(returned)
    library.add_ir_module(module)


class Pipeline(CompilerBase):
    """The passes, for ``numba.cfunc``."""

    def __init__(self, typingctx: Any, targetctx: Any, library: Any, *rest: Any) -> None:
        context = targetctx.subtarget(create_cfunc_wrapper=partial(write_entry, targetctx))
        super().__init__(typingctx, context, codegen().create_library("kernel"), *rest)

    def define_pipelines(self) -> list[PassManager]:
        """The list of the one pipeline that there is."""
        manager: Any = PassManager
        passes = manager("mgb")
        for each in PASSES:
            passes.add_pass(each, each.__name__)
        passes.finalize()
        return [passes]
