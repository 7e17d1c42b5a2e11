"""What an executable depends on beside its graph: this package, JAX and XLA, the processor."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mgb.backend import VariableError

#: The variable that turns donation off.
DONATE = "MGB_XLA_DONATE"


@cache
def toolchain() -> str:
    """Part of the key of the on-disk cache: executables are machine code for exactly this processor."""
    return f"{package()} jax {_version('jax')} jaxlib {_version('jaxlib')} {_processor()}"


def donates() -> bool:
    """May a result take the memory of a parameter that it replaces? ``MGB_XLA_DONATE=0`` says no."""
    value = os.environ.get(DONATE, "").strip() or "1"
    if value not in ("0", "1"):
        raise VariableError(f"{DONATE}={value!r}: wanted 0 or 1; unset it or set it to 1 for the default")
    return value == "1"


@cache
def package() -> str:
    """The version of this package: an executable and what calls it agree in every line."""
    lines = (path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return hashlib.sha256(b"".join(lines)).hexdigest()[:12]


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "none"


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    found = re.findall(r"^(?:model name|flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    return f"{platform.machine()} {hashlib.sha256(' '.join(found[:2]).encode()).hexdigest()[:12]}"
