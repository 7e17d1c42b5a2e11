"""The text of a kernel to machine code, by Numba's compiler with only what a kernel needs.

The passes left out serve closures, exceptions, arrays, constants in types, and the lifetimes of objects; a
kernel has numbers and loops alone. Static single assignment is left to LLVM, and so a variable of a kernel
has one type everywhere.
"""

from __future__ import annotations

from functools import cache, partial
from math import nan
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from mgb_native.code import Code, place
from mgb_native.nest import SYMBOL
from numba import cfunc, types
from numba.core.codegen import CPUCodeLibrary, JITCPUCodegen
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.errors import NumbaWarning, WarningsFixer
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering, NoPythonBackend, NopythonTypeInference
from numba.core.typeinfer import TypeInferer
from numba.core.untyped_passes import FixupArgs, IRProcessing, TranslateByteCode

from .words import OPERATORS, Named, Word, named


def build(text: str) -> Code:
    """Compile the text of a kernel."""
    names: dict[str, Any] = {"nan": nan}
    exec(compile(text, "<mgb kernel>", "exec"), names)
    kernel = names[SYMBOL]
    names.update((name, named(name)) for name in kernel.__code__.co_names if name not in names)
    signature = types.int64(*[types.int64] * kernel.__code__.co_argcount)
    options: dict[str, Any] = {"nopython": True, "error_model": "numpy", "_nrt": False}
    compiled: Any = cfunc(signature, pipeline_class=Pipeline, **options)(kernel)
    return place(compiled.native_name, compiled._library.image)


class Inferer(TypeInferer):
    """The types of variables, where a `Word` says that of its result."""

    def resolve_value_type(self, inst: Any, val: Any) -> Any:
        """Return the type of a constant, of a global or of an operator."""
        if isinstance(val, Named):
            return val.word
        word = OPERATORS.get(val) if callable(val) else None
        return word or super().resolve_value_type(inst, val)

    def resolve_call(self, fnty: Any, pos_args: Any, kw_args: Any) -> Any:
        """Return the signature of a call; each is one of a word."""
        return fnty.get_call_type(self.context, pos_args, kw_args)


@register_pass(mutates_CFG=True, analysis_only=False)
class Inference(NopythonTypeInference):
    """The pass that runs `Inferer`."""

    _name = "mgb_inference"

    def run_pass(self, state: Any) -> bool:
        """Find the types of all variables and calls."""
        warnings = WarningsFixer(NumbaWarning)
        inferer = Inferer(state.typingctx, state.func_ir, warnings)
        target, function = state.targetctx.target, state.func_ir.func_id
        with state.typingctx.callstack.register(target, inferer, function, state.args), warnings:
            for k, (name, type_) in enumerate(zip(state.func_ir.arg_names, state.args, strict=True)):
                inferer.seed_argument(name, k, type_)
            inferer.seed_return(state.return_type)
            inferer.build_constraint()
            state.typing_errors = inferer.propagate()
            state.typemap, state.return_type, state.calltypes = inferer.unify()
        return True


class Lowerer(Lower):
    """Numba IR to LLVM IR, where a `Word` writes its instruction."""

    def lower_assign(self, type_: Any, inst: Any) -> Any:
        """Return the value of an assignment; that of a word is never used."""
        if isinstance(type_, Word):
            return self.context.get_dummy_value()
        return super().lower_assign(type_, inst)

    def storevar(self, value: Any, name: str, argidx: Any = None) -> None:
        """Keep the value of a variable."""
        if not isinstance(self.typeof(name), Word):
            super().storevar(value, name, argidx)

    def lower_call(self, type_: Any, expr: Any) -> Any:
        """Return the value of a call."""
        word, operands = self.typeof(expr.func.name), [self.loadvar(a.name) for a in expr.args]
        found = word.emit(self.builder, word.details, *operands)
        return self.context.get_dummy_value() if found is None else found

    def lower_binop(self, type_: Any, expr: Any, op: Any) -> Any:
        """Return the value of an operator."""
        operands = [self.loadvar(expr.lhs.name), self.loadvar(expr.rhs.name)]
        return OPERATORS[op].emit(self.builder, (), *operands)


@register_pass(mutates_CFG=True, analysis_only=False)
class Lowering(NativeLowering):
    """The pass that runs `Lowerer`."""

    _name = "mgb_lowering"

    @property
    def lowering_class(self) -> type[Lower]:
        """Return the class that lowers typed IR to LLVM."""
        return Lowerer


PASSES = (
    TranslateByteCode, FixupArgs, IRProcessing, Inference, Lowering, NoPythonBackend,
)  # fmt: skip


class Library(CPUCodeLibrary):
    """A module that is made ready for LLVM's code generator, and no more: the loops are vectors already.

    Attributes
    ----------
    image : bytes
        Its object file.
    """

    image: bytes

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()  # variables to registers
        passes.add_instruction_combine_pass()
        builder = llvm.create_pass_builder(self._codegen._tm, llvm.create_pipeline_tuning_options())
        passes.run(self._final_module, builder)

    def _finalize_final_module(self) -> None:
        self.image = self._codegen._tm.emit_object(self._final_module)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: this only makes the image."""
        self._ensure_finalized()
        return 0


class Codegen(JITCPUCodegen):
    """Numba's target for this processor."""

    _library_class = Library


@cache
def codegen() -> Codegen:
    """Return the one there is."""
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
        """Return the list of the one pipeline that there is."""
        manager: Any = PassManager
        passes = manager("mgb")
        for each in PASSES:
            passes.add_pass(each, each.__name__)
        passes.finalize()
        return [passes]
