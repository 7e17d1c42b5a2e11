"""The target of compiled code, which it depends on beside its graph: packages, processor and Python."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

#: The words in ``/proc/cpuinfo`` for what a compiler may make use of. Others change with the kernel of the
#: system, or from one virtual machine to the next.
_INSTRUCTIONS = re.compile(
    r"(mmx|fxsr|pni|s?sse|avx|fma|f16c|bmi|abm|popcnt|lahf_lm|movbe|movdir|cx16|adx|aes|vaes|sha|gfni|"
    r"v?pclmul|amx|xsave|rdrand|rdseed|clflushopt|clwb|serialize|enqcmd|prfchw|3dnow|rtm|tbm|xop|lwp)"
)


#: The bytes of a vector, by an instruction that a processor has.
VECTORS = {"avx512f": 64, "avx2": 32}


def target(package: str) -> str:
    """Return the requirements of a kernel that `package` compiled here, for `mismatch`."""
    needs = {"package": package, "python": python(), "machine": platform.machine()}
    return json.dumps(needs | {"instructions": instructions()})


def mismatch(needed: str, package: str, distribution: str) -> str | None:
    """Return why code made for the target `needed` cannot run here, or None when it can.

    Raises
    ------
    ValueError, KeyError, TypeError
        `needed` is not a target.
    """
    needs = json.loads(needed)
    here = json.loads(target(package))
    for what, name in (("machine", "processors"), ("package", distribution), ("python", "Python")):
        if needs[what] != here[what]:
            return f"it was compiled for {name} {needs[what]}, here is {here[what]}"
    lacking = sorted(set(needs["instructions"]) - set(here["instructions"]))
    return f"the processor lacks {', '.join(map(str, lacking))}" if lacking else None


@cache
def package(printer: Path) -> str:
    """Return the version of a printer, in a folder or a file, and of what calls its kernels.

    They agree in all.
    """
    folders = (Path(__file__).parent, printer)
    paths = [path for f in folders for path in sorted(f.rglob("*.py"))]
    paths += [printer] if printer.is_file() else []
    return digest(b"".join(path.read_bytes() for path in paths))


def python() -> str:
    """Return the tag of this Python: its version and build."""
    return f"{sys.implementation.cache_tag}{sys.abiflags}-{object.__basicsize__}-{tuple.__basicsize__}"


@cache
def processor() -> str:
    """Return the processor that a compiler works for: the model, and a digest of its instructions."""
    return f"{_processor()[0]} {digest(' '.join(instructions()).encode())}"


def instructions() -> list[str]:
    """Return the instructions that the processor has, by the names of the system."""
    return _processor()[1]


def vector_bytes() -> int:
    """Return the bytes of the widest vectors here."""
    has = instructions()
    return next((size for name, size in VECTORS.items() if name in has), 16)


@cache
def _processor() -> tuple[str, list[str]]:
    """Return its model, and the instructions that it has."""
    found: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if not line.strip() and found:  # the first processor is like the others
                    break
                name, _, value = line.partition(":")
                found[name.strip()] = value.strip()
    except OSError:
        pass
    model = found.get("model name") or found.get("CPU part") or platform.processor()
    words = found.get("flags", "").split()
    return model, sorted(w for w in words if _INSTRUCTIONS.match(w)) or found.get("Features", "").split()


@cache
def version_of(distribution: str) -> str:
    """Return the version that is installed, or ``"none"``."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "none"


def digest(data: bytes) -> str:
    """Return a short text that differs where `data` does."""
    return hashlib.sha256(data).hexdigest()[:12]


def fuses() -> bool:
    """Return whether the processor has an instruction for `fma` that rounds once."""
    return not {"fma", "asimd"}.isdisjoint(instructions())
