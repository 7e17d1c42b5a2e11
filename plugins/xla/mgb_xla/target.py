"""The target of an executable, which it depends on beside its graph: packages and the processor."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mgb.runtime.config import Variable

DONATE = Variable("MGB_XLA_DONATE", "1", "0: no result takes the memory of a parameter that it replaces")


#: The variable with XLA's own options. XLA reads it, and the file that it may name, once in a process.
FLAGS = "XLA_FLAGS"


@cache
def toolchain() -> str:
    """Return a part of the key of the on-disk cache: executables are for exactly this processor."""
    return f"{package()} jax {_version('jax')} jaxlib {_version('jaxlib')} {_processor()}{_flags()}"


def _flags() -> str:
    """Return XLA's options of this process, in their order; empty where there are none.

    Each may change the code, so all are part of the key. Those that do not, as the folder of a dump, cost
    a compilation.
    """
    flags = os.environ.get(FLAGS, "").split()
    named = Path(flags[0]) if len(flags) == 1 and not flags[0].startswith("--") else None
    if named is not None:
        with suppress(OSError):
            flags = named.read_text().split()
    return f" {FLAGS}={' '.join(flags)}" if flags else ""


def donates() -> bool:
    """Return whether a result may take the memory of a parameter that it replaces."""
    return DONATE.on()


@cache
def package() -> str:
    """Return the version of this package: an executable and what calls it agree in every line."""
    lines = (path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return hashlib.sha256(b"".join(lines)).hexdigest()[:12]


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "none"


@cache
def processor() -> str:
    """Return the name of the processor and its instructions; empty where the system does not tell."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
    return " ".join(re.findall(r"^(?:model name|flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)[:2])


def _processor() -> str:
    found = processor()
    known = hashlib.sha256(found.encode()).hexdigest()[:12] if found else platform.processor()
    return f"{platform.machine()} {known}"
