"""Numba's compiler with only what a kernel needs: a short list of passes, LLVM run once, the widest vectors.

The passes left out serve closures, exceptions, arrays and constants in types; a kernel has numbers and loops
alone. Static single assignment is left to LLVM, and so a variable of a kernel has one type everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import ir as numba_ir
from numba.core.codegen import CPUCodeLibrary, JITCPUCodegen
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import IRLegalization, NativeLowering, NoPythonBackend, NopythonTypeInference
from numba.core.untyped_passes import FixupArgs, IRProcessing, TranslateByteCode

from .hints import HINTS


class Lowerer(Lower):
    """Numba IR to LLVM IR, with `HINTS` where the processor has masks for elements of every size."""

    def lower_inst(self, inst: Any) -> None:
        """Translate one instruction; a jump back is the end of a loop."""
        super().lower_inst(inst)
        if isinstance(inst, numba_ir.Jump) and self.blkmap[inst.target].instructions:
            hints = HINTS.get(self.loop_variable(inst.target))
            if hints and "+avx512bw" in codegen()._tm_features:
                end = self.builder.block.instructions[-1]
                end.set_metadata("llvm.loop", _loop_metadata(self.module, inst.target, hints))

    def loop_variable(self, head: int) -> str | None:
        """Return the variable of the loop that begins with block `head`; None where it does not begin one."""
        end = self.blocks[head].terminator
        while isinstance(end, numba_ir.Jump):
            end = self.blocks[end.target].terminator
        body = self.blocks[end.truebr].body if isinstance(end, numba_ir.Branch) else ()
        names = (i.target.name for i in body if isinstance(i, numba_ir.Assign))
        return next((name for name in names if not name.startswith("$")), None)


def _loop_metadata(module: Any, head: int, hints: Mapping[str, bool | int | None]) -> Any:
    """LLVM's identity of a loop: a node that begins with itself, then the hints."""
    types = {bool: ir.IntType(1), int: ir.IntType(32)}
    nodes = [
        module.add_metadata([word] if value is None else [word, types[type(value)](value)])
        for word, value in hints.items()
    ]
    loop = module.add_metadata([f"the loop at {head}", *nodes])
    loop.operands = (loop, *nodes)
    return loop


@register_pass(mutates_CFG=True, analysis_only=False)
class Lowering(NativeLowering):
    """The pass that runs `Lowerer`."""

    _name = "mgb_lowering"

    @property
    def lowering_class(self) -> type[Lower]:
        """Return the class that lowers typed IR to LLVM."""
        return Lowerer


PASSES = (
    TranslateByteCode, FixupArgs, IRProcessing, NopythonTypeInference, IRLegalization, Lowering,
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
