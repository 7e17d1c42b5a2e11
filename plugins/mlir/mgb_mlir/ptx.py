"""PTX, the assembly language of NVIDIA's GPUs, for a group: ``gpu``, ``nvvm``, ``ptx``.

The wheel that has MLIR has no NVIDIA target. It lowers the level ``gpu`` to LLVM's text; LLVM in the wheel
``llvmlite``, which has that target, makes PTX of it. Neither a GPU nor CUDA is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import Any

from mgb.codegen import row_major
from mgb.ir import Graph
from mgb_cuda import Properties
from mgb_cuda.frame import Frame
from mgb_cuda.geometry import choose
from mgb_cuda.pattern import Choice
from mgb_cuda.steps import steps

from . import device, passes, toolchain
from .grid import SYMBOL, Grid, parameters
from .spelling import older
from .words import decompose_narrow

TRIPLE = "nvptx64-nvidia-cuda"

#: The architectures that it compiles for, each with the first version of PTX that has it; 8.1, of CUDA 12.1,
#: is the first in which a kernel may have more than 4 KiB of parameters.
ARCHITECTURES = {
    "sm_80": 81, "sm_86": 81, "sm_89": 81, "sm_90": 81, "sm_100": 86, "sm_103": 88, "sm_120": 87,
}  # fmt: skip

#: A GPU that few blocks keep busy.
_ALONE = Properties("any", (9, 0), multiprocessors=1)

_INSTALL = "python -m pip install llvmlite"


class TargetError(Exception):
    """PTX cannot be made: there is no such architecture, or no LLVM for it here."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A group as PTX.

    Attributes
    ----------
    text : str
        The module in PTX.
    architecture : str
        ``"sm_80"``, ... The code runs there, and on later ones, for which the driver compiles it again.
    frame : Frame
        The operands.
    choice : Choice
        What a launch passes after their addresses; its blocks, and in its variant the threads of each, for
        row-major arrays of the shapes of the graph. Rows are not shared by blocks.
    entry : str
        The name of the kernel.
    """

    text: str
    architecture: str
    frame: Frame
    choice: Choice
    entry: str = SYMBOL

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of what a launch passes, addresses first."""
        return tuple(name for name, _ in parameters(self.frame, self.choice.variant))


def problem() -> str | None:
    """Why there is no LLVM with a target for NVIDIA's GPUs here, and what mends it; nothing is imported."""
    return None if find_spec("llvmlite") else f"llvmlite, which makes PTX, is not installed; {_INSTALL}"


def compile(graph: Graph, architecture: str) -> Compiled:
    """Compile a group to PTX.

    Parameters
    ----------
    graph : Graph
        As `mgb.backends.Backend.compile` receives it, for the traits of the backend ``mlir``.
    architecture : str
        One of `ARCHITECTURES`, such as ``"sm_90"``.

    Raises
    ------
    TargetError
        It is not an architecture, or ``llvmlite`` is missing. The message lists the architectures, or the
        command that installs it.
    LoweringError
        The toolchain failed, by a defect of this plugin or of a wheel. The message has the module's path.
    """
    frame = Frame(decompose_narrow(graph))
    choice = usual(frame)
    text = translated(Grid(frame, choice.variant).text(), architecture)
    return Compiled(text, architecture, frame, choice)


def usual(frame: Frame) -> Choice:
    """The kernel for row-major arrays of the shapes of the graph."""
    specs = [o.node.spec for o in frame.arrays]
    read = specs[: len(specs) - len(frame.graph.outputs)]
    found = steps(frame, [s.shape for s in specs], [row_major(s.shape, s.dtype.itemsize) for s in read])
    choice = choose(frame, found, _ALONE, turns=False, clusters=False)
    variant = replace(choice.variant, split=False)
    return Choice(variant, choice.numbers | {"chunk": found.length, "chunks": 1}, choice.blocks, 1)


def translated(text: str, architecture: str) -> str:
    """PTX of a module at the level ``gpu``."""
    return assembly(llvm(text, architecture), architecture)


# the levels


def gpu(graph: Graph) -> str:
    """The level ``gpu``: what each thread does."""
    frame = Frame(decompose_narrow(graph))
    return Grid(frame, usual(frame).variant).text()


def nvvm(graph: Graph) -> str:
    """The level ``nvvm``: the dialects of LLVM and of NVIDIA's GPUs."""
    with passes.compiling:
        return str(_lowered(gpu(graph)))


def _lowered(text: str) -> Any:
    toolchain.check()
    return passes.run(passes.parse(text), passes.TO_NVVM)


def llvm(text: str, architecture: str) -> str:
    """Return the LLVM text of a module at the level ``gpu``, with the functions that it calls.

    Raises
    ------
    LoweringError
        It calls a function of libdevice for which there is no definition.
    """
    layout = str(_machine(architecture).target_data)
    with passes.compiling:
        found = older(passes.device_text(_lowered(text), layout))
    try:
        return device.defined(found)
    except KeyError as error:
        path = passes.kept(found) / "before.mlir"
        raise passes.LoweringError(f"there is no definition of the function {error} in {path}") from None


def assembly(text: str, architecture: str) -> str:
    """PTX of LLVM's text.

    Raises
    ------
    LoweringError
        LLVM does not take the text. It may be of a version that spells more in another way.
    """
    from llvmlite import binding

    with passes.compiling:
        machine = _machine(architecture)
        try:
            module = binding.parse_assembly(text, context=binding.create_context())
        except RuntimeError as error:
            path = passes.kept(text) / "before.mlir"
            said = ".".join(map(str, binding.llvm_version_info))
            raise passes.LoweringError(f"LLVM {said} does not take the text in {path}: {error}") from None
        module.triple, module.data_layout = TRIPLE, str(machine.target_data)
        options = binding.create_pipeline_tuning_options(speed_level=3)
        builder = binding.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        return str(machine.emit_assembly(module))


@cache
def _machine(architecture: str) -> Any:
    """LLVM's code generator for an architecture."""
    if architecture not in ARCHITECTURES:
        raise TargetError(f"PTX for {architecture!r} is unknown; choose one of {', '.join(ARCHITECTURES)}")
    reason = problem()
    if reason is not None:
        raise TargetError(reason)
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    features = f"+ptx{ARCHITECTURES[architecture]}"
    return binding.Target.from_triple(TRIPLE).create_target_machine(
        cpu=architecture, features=features, opt=3
    )
