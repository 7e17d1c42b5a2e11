"""The launcher in C (`launcher.c`, `pool.c`, `copies.c`), or its replacement, and LLVM's object files."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from mgb.runtime import forking

#: Of the `structures`, and of the functions that Python and kernels call; the same as in `launcher.h`.
VERSION = 3

#: What setup.py builds. It imports nothing.
LIBRARY = "mgb_native._launcher"

#: The machines that kernels are compiled for.
MACHINES = ("x86_64", "aarch64")

#: How the launcher is built.
REMEDY = (
    "install a C compiler, then run: pip install --force-reinstall --no-deps --no-cache-dir mgb-native "
    "(in a checkout: ./plugins/native)"
)


def _import() -> tuple[ModuleType, str | None, str | None]:
    """Return the launcher, why it cannot be used, and why it is slow."""
    try:
        library = import_module(LIBRARY)
    except ImportError as error:
        slow = f"without the launcher in C ({error}) kernels run on one thread, and calls are slow; {REMEDY}"
        return import_module("mgb_native.portable"), None, slow
    if library.VERSION != VERSION:
        built = f"{library.__file__} is of version {library.VERSION}, not {VERSION}"
        return library, f"the launcher in C was built from other sources: {built}; {REMEDY}", None
    forking.at_fork(in_child=library.forget)
    return library, None, None


_library, problem, note = _import()


def native() -> ModuleType:
    """Return the launcher: the library in C, or `portable` where it was not built.

    Raises
    ------
    ImportError
        The library was built from other sources.
    """
    if problem is not None:
        raise ImportError(problem)
    return _library


def emit(text: str, level: int = 0, inline: bool = False) -> bytes:
    """Return the object file of a module in LLVM's language, for this processor, such that `Loaded` takes it.

    What is called once in a while is compiled at `level` 0, which takes a third of the time. With `inline`,
    functions that are ``alwaysinline`` stand where they are called.
    """
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target, features = llvm.Target.from_default_triple(), llvm.get_host_cpu_features().flatten()
    machine = target.create_target_machine(
        llvm.get_host_cpu_name(), features, level, reloc="static", codemodel="large", jit=True
    )
    module = llvm.parse_assembly(text)
    if inline:
        passes = llvm.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    image: bytes = machine.emit_object(module)
    return image
