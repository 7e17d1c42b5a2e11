"""What compiled code depends on beside its graph: this package, its toolchain, the processor and Python."""

from __future__ import annotations

import hashlib
import json
import os
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


@cache
def toolchain() -> str:
    """Part of the key of the on-disk cache: kernels are compiled for exactly this processor."""
    model, features = _processor()
    chosen = "".join(os.environ.get(f"NUMBA_CPU_{what}", "") for what in ("NAME", "FEATURES"))
    compilers = f"numba {_version('numba')} llvmlite {_version('llvmlite')}"
    return f"{package()} {compilers} {python()} {model} {digest(' '.join(features) + chosen)}"


def target() -> str:
    """What a kernel that was compiled here needs where it is to run, for `mismatch`."""
    needs = {"package": package(), "python": python(), "machine": platform.machine()}
    return json.dumps(needs | {"instructions": _processor()[1]})


def mismatch(needed: str) -> str | None:
    """Why code made for the target `needed` cannot run here, or None when it can.

    Raises
    ------
    ValueError, KeyError, TypeError
        `needed` is no target.
    """
    needs = json.loads(needed)
    here = json.loads(target())
    for what, name in (("machine", "processors"), ("package", "mgb-cpu-numba"), ("python", "Python")):
        if needs[what] != here[what]:
            return f"it was compiled for {name} {needs[what]}, here is {here[what]}"
    lacking = sorted(set(needs["instructions"]) - set(here["instructions"]))
    return f"the processor lacks {', '.join(map(str, lacking))}" if lacking else None


@cache
def package() -> str:
    """The version of this package: a kernel and what calls it agree in every line."""
    folder = Path(__file__).parent
    lines = (path.read_bytes() for path in sorted((*folder.glob("*.py"), *folder.glob("*.ll"))))
    return hashlib.sha256(b"".join(lines)).hexdigest()[:12]


def python() -> str:
    """Whose objects the native code looks into."""
    return f"{sys.implementation.cache_tag}{sys.abiflags}-{object.__basicsize__}-{tuple.__basicsize__}"


@cache
def _processor() -> tuple[str, list[str]]:
    """Its model, and the instructions that it has."""
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


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "none"


def digest(text: str) -> str:
    """A short text that differs where `text` does."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
