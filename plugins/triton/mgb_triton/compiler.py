"""Triton, ahead of a launch: text to machine code. It needs no GPU, driver, PyTorch or C compiler."""

from __future__ import annotations

import hashlib
import json
import linecache
import logging
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mgb.runtime import forking
from mgb_cuda.generated import private_folder

_log = logging.getLogger("mgb.triton")

INSTALL = "python -m pip install 'mgb-triton[cuda13]' (or cuda12, as the driver has it)"

#: The releases whose internals this was written for, each with the CUDA of its two assemblers, and the first
#: compute capability that the second is for.
SUPPORTED: dict[tuple[int, ...], tuple[str, str, tuple[int, int]]] = {
    (3, 6): ("12", "12", (10, 0)),
    (3, 7): ("12", "13", (10, 0)),
    (3, 8): ("12", "13", (10, 0)),
    (3, 9): ("12", "13", (9, 0)),
}

#: Nothing is contracted that the graph does not contract, and the library flushes no number to 0.
OPTIONS = {"enable_fp_fusion": False, "enable_reflect_ftz": False}

#: The compute capabilities that are compiled for, as ``10 * major + minor``.
ARCHITECTURES = (80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121)

_LENGTH = 8


class TritonError(RuntimeError):
    """Triton refused a kernel; its text is kept."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """One kernel.

    Attributes
    ----------
    name : str
    shared : int
        Bytes of shared memory that a launch must give it.
    threads : int
        In a block.
    image : bytes
        Machine code.
    """

    name: str
    shared: int
    threads: int
    image: bytes

    def pack(self) -> bytes:
        """Return all of it, as `unpack` reads it."""
        facts = {"name": self.name, "shared": self.shared, "threads": self.threads}
        head = json.dumps(facts).encode()
        return len(head).to_bytes(_LENGTH, "little") + head + self.image

    @classmethod
    def unpack(cls, packed: bytes) -> Compiled:
        """Read the bytes that `pack` made."""
        end = _LENGTH + int.from_bytes(packed[:_LENGTH], "little")
        return cls(**json.loads(packed[_LENGTH:end]), image=packed[end:])


@cache
def version() -> str:
    """Return the version of Triton, without loading it; ``"none"`` where it is not installed."""
    try:
        return installed_version("triton")
    except PackageNotFoundError:
        return "none"


def missing() -> str | None:
    """Return why nothing can be compiled here, with the command that mends it; None when it can."""
    if find_spec("triton") is None or version() == "none":
        return f"Triton is not installed; {INSTALL}"
    return unsupported(version())


def unsupported(found: str) -> str | None:
    """Return why this version of Triton will not do."""
    if _release(found) in SUPPORTED:
        return None
    first, last = (".".join(map(str, n)) for n in (min(SUPPORTED), max(SUPPORTED)))
    wanted = f"triton>={first},<{max(SUPPORTED)[0]}.{max(SUPPORTED)[1] + 1}"
    return f"Triton {found} is installed, {first} to {last} are needed; python -m pip install '{wanted}'"


def _release(found: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", found)[:2])


def assembler(capability: tuple[int, int]) -> str:
    """Return the CUDA of what makes machine code for such a GPU."""
    older, newer, since = SUPPORTED[_release(version())]
    return newer if capability >= since else older


@cache
def nearest(capability: tuple[int, int]) -> int:
    """Return the architecture to compile for.

    The newest of the same major number that is not newer than the GPU.
    """
    wanted = 10 * capability[0] + capability[1]
    same = [a for a in ARCHITECTURES if a <= wanted and a // 10 == capability[0]]
    if not same:
        known = ", ".join(f"{a // 10}.{a % 10}" for a in ARCHITECTURES)
        raise TritonError(
            "Triton {} makes no machine code for compute capability {}.{}, it does for {}; "
            "export MGB_JIT_BACKEND=NVRTC".format(version(), *capability, known)
        )
    if same[-1] != wanted:
        _log.warning(
            "Triton %s is not known to serve compute capability %d.%d; kernels are compiled for sm_%d",
            version(), *capability, same[-1],
        )  # fmt: skip
    return same[-1]


_lock = forking.lock()


def compile_source(source: str, architecture: int) -> Compiled:
    """Return one kernel.

    Parameters
    ----------
    source : str
        As `source.texts` makes it.
    architecture : int
        ``90``.

    Raises
    ------
    TritonError
        It is not a valid kernel; the message has the path of its text.
    """
    return _packed(build(source, architecture))


def build(source: str, architecture: int) -> Any:
    """Compile a kernel with Triton; the result has all its stages, and its metadata."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    try:
        with _kept_nowhere(triton):
            found = namespace(source)
            kernel = next(v for k, v in found.items() if k.startswith("mgb_"))
            places = {name: (i,) for i, name in enumerate(found["SIGNATURE"])}
            attributes = {places[name]: [["tt.divisibility", 16]] for name in found["ALIGNED"]}
            given = ASTSource(fn=kernel, signature=found["SIGNATURE"], constexprs={}, attrs=attributes)
            options = {**OPTIONS, "num_warps": found["WARPS"]}
            return triton.compile(given, target=GPUTarget("cuda", architecture, 32), options=options)
    except Exception as error:  # whatever a compiler raises
        text = f"Triton refused a kernel, its text is in {keep(source)}:\n{type(error).__name__}: {error}"
        raise TritonError(text[:4000]) from error


def _packed(built: Any) -> Compiled:
    metadata = built.metadata
    if metadata.global_scratch_size or metadata.profile_scratch_size:
        raise TritonError("Triton asks for scratch memory, which no kernel of this backend is given")
    return Compiled(metadata.name, metadata.shared, 32 * metadata.num_warps, built.asm["cubin"])


def namespace(source: str) -> dict[str, Any]:
    """Execute the text beside the prelude and return its names; Triton rereads the lines of a kernel."""
    from . import prelude

    name = f"<mgb {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    found = dict(vars(prelude), __name__="mgb_triton.generated")
    exec(compile(source, name, "exec"), found)
    return found


@contextmanager
def _kept_nowhere(triton: Any) -> Iterator[None]:
    """Allow one compilation at a time, and remove its files afterwards: mgb stores the images."""
    with (
        _lock,
        tempfile.TemporaryDirectory() as folder,
        triton.knobs.cache.scope(),
        triton.knobs.compilation.scope(),
    ):
        triton.knobs.cache.dir = folder
        triton.knobs.compilation.disable_line_info = True
        yield


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources that a kernel takes.

    Attributes
    ----------
    name : str
    registers : int
    stores, loads : int
        Bytes of spills.
    shared : int
        Bytes of shared memory of a block.
    """

    name: str
    registers: int
    stores: int
    loads: int
    shared: int


def usage(source: str, architecture: int) -> Usage:
    """Return the resources that a kernel takes, by the report of the assembler."""
    from triton.backends.nvidia.compiler import get_ptxas

    built = build(source, architecture)
    assembler = get_ptxas(architecture).path
    target = re.search(r"\.target (sm_\w+)", built.asm["ptx"])
    assert target is not None
    with tempfile.TemporaryDirectory() as work:
        text, made = Path(work, "kernel.ptx"), Path(work, "kernel.cubin")
        text.write_text(built.asm["ptx"])
        command = [
            assembler,
            "-v",
            "--fmad=false",
            "--regAllocOptLevel=2",
            f"--gpu-name={target[1]}",
            text,
            "-o",
            made,
        ]
        said = subprocess.run(command, capture_output=True, text=True).stderr
    spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", said)
    registers = re.search(r"Used (\d+) registers", said)
    assert spills is not None and registers is not None, said
    return Usage(
        built.metadata.name, int(registers[1]), int(spills[1]), int(spills[2]), built.metadata.shared
    )


def keep(source: str) -> Path:
    """Write the text of a kernel where it can be looked at."""
    path = private_folder("mgb-triton") / f"{hashlib.sha256(source.encode()).hexdigest()[:16]}.py"
    path.write_text(source)
    return path
