"""NVRTC: CUDA C++ to machine code. It needs no GPU and no driver."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_log = logging.getLogger("mgb.nvrtc")

#: Nothing is contracted that the graph does not contract, and no number is flushed to 0.
OPTIONS = ("--fmad=false", "--std=c++17", "--disable-warnings")

INSTALL = "python -m pip install 'mgb-nvrtc[cuda13]' (or cuda12, as the driver has it)"


class NvrtcError(RuntimeError):
    """NVRTC refused a kernel; its text is kept."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources that one kernel of an image takes.

    Attributes
    ----------
    name : str
    registers : int
    stack, stores, loads : int
        Bytes of local memory, and of spills.
    shared : int
        Bytes of shared memory of a block.
    """

    name: str
    registers: int
    stack: int
    stores: int
    loads: int
    shared: int


def missing() -> str | None:
    """Return why nothing can be compiled here, with the command that mends it; None when it can."""
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return f"cuda-bindings is not installed; {INSTALL}"
    try:
        version()
    except Exception as error:  # whatever the search for the library raises
        return f"NVRTC cannot be loaded ({type(error).__name__}: {str(error).splitlines()[0]}); {INSTALL}"
    return None


@cache
def version() -> str:
    """Return the version of NVRTC."""
    from cuda.bindings import nvrtc  # type: ignore[import-untyped]

    status, major, minor = nvrtc.nvrtcVersion()
    _check(status)
    return f"{major}.{minor}"


@cache
def architectures() -> tuple[int, ...]:
    """Return the compute capabilities that it compiles for, as ``10 * major + minor``."""
    from cuda.bindings import nvrtc

    status, found = nvrtc.nvrtcGetSupportedArchs()
    _check(status)
    return tuple(sorted(found))


@cache
def nearest(capability: tuple[int, int]) -> str:
    """Return the architecture to compile for: of the same major number, or text that the driver compiles.

    Machine code runs on later minor numbers of its major number; PTX on everything later.
    """
    wanted = 10 * capability[0] + capability[1]
    same = [a for a in architectures() if a <= wanted and a // 10 == capability[0]]
    if same:
        found = f"sm_{same[-1]}"
    else:
        older = [a for a in architectures() if a <= wanted]
        if not older:
            first = architectures()[0] / 10
            raise NvrtcError(
                f"NVRTC {version()} compiles for compute capability {first} and later, this GPU has "
                f"{capability[0]}.{capability[1]}: install an older CUDA, or export MGB_JIT_BACKEND=EAGER"
            )
        found = f"compute_{older[-1]}"
    if found != f"sm_{wanted}":
        _log.warning(
            "NVRTC %s does not know compute capability %d.%d; kernels are compiled for %s",
            version(), *capability, found,
        )  # fmt: skip
    return found


def compile_source(source: str, architecture: str, options: Sequence[str] = ()) -> tuple[bytes, str]:
    """Return the image of a translation unit and what the compiler said.

    Parameters
    ----------
    source : str
        CUDA C++ that includes nothing.
    architecture : str
        ``"sm_90"`` for machine code, ``"compute_90"`` for PTX.
    options : sequence of str, optional
        Beside `OPTIONS`.

    Raises
    ------
    NvrtcError
        It is not a valid program; the message has the path of its text.
    """
    from cuda.bindings import nvrtc

    status, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    _check(status)
    try:
        given = [f"--gpu-architecture={architecture}", *OPTIONS, *options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(given), [o.encode() for o in given])
        log = _log_of(program)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise NvrtcError(f"NVRTC refused a kernel, its text is in {keep(source)}:\n{log[:4000]}")
        kind = "PTX" if architecture.startswith("compute") else "CUBIN"
        status, size = getattr(nvrtc, f"nvrtcGet{kind}Size")(program)
        _check(status)
        image = bytearray(size)
        _check(*getattr(nvrtc, f"nvrtcGet{kind}")(program, image))
        return bytes(image), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def usage(source: str, architecture: str) -> tuple[Usage, ...]:
    """Return the resources that the kernels of a translation unit take, by the report of the assembler."""
    _, log = compile_source(source, architecture, ["--ptxas-options=-v"])
    pattern = re.compile(
        r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
        r"(\d+) bytes spill loads.*?Used (\d+) registers([^\n]*)",
        re.DOTALL,
    )
    found = []
    for name, stack, stores, loads, registers, rest in pattern.findall(log):
        shared = re.search(r"(\d+) bytes smem", rest)
        numbers = (int(registers), int(stack), int(stores), int(loads))
        found.append(Usage(name, *numbers, int(shared[1]) if shared else 0))
    return tuple(found)


def keep(source: str) -> Path:
    """Write the text of a kernel where it can be looked at."""
    folder = Path(tempfile.gettempdir()) / f"mgb-nvrtc-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{hashlib.sha256(source.encode()).hexdigest()[:16]}.cu"
    path.write_text(source)
    return path


def _check(status: object) -> None:
    if int(status) != 0:  # type: ignore[call-overload]
        raise NvrtcError(f"NVRTC failed: {status}; {INSTALL}")


def _log_of(program: object) -> str:
    from cuda.bindings import nvrtc

    status, size = nvrtc.nvrtcGetProgramLogSize(program)
    _check(status)
    text = bytearray(size)
    _check(*nvrtc.nvrtcGetProgramLog(program, text))
    return text.decode(errors="replace").rstrip("\0")
