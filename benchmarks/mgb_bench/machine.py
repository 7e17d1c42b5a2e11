"""The machine: processor, caches, versions. Its limits are measured beside each case, see `limit`."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mgb.backends import num_threads

from .peers import Peer


def cores() -> int:
    """Return the cores that this process may use: the number of threads that every contestant gets."""
    return num_threads()


def describe(here: dict[str, Peer], missing: dict[str, str]) -> dict[str, Any]:
    """Return day, processor, cores, caches, Python, each peer's version, and why others are missing."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": _processor(),
        "vectors": _vectors(),
        "cores": cores(),
        "caches": _caches(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "peers": {name: peer.version for name, peer in here.items()},
        "missing": missing,
    }


def _cpuinfo() -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _processor() -> str:
    """Return its model name, with family and model where known, since makers give several the same name."""
    found = _cpuinfo()
    name = found.get("model name") or platform.processor() or platform.machine()
    numbers = [f"{key.removeprefix('cpu ')} {found[key]}" for key in ("cpu family", "model") if key in found]
    return f"{name} ({', '.join(numbers)})" if numbers else name


def _vectors() -> str:
    """Return the widest vectors that the processor announces."""
    flags = _cpuinfo().get("flags", "").split()
    return next((name for name in ("avx512f", "avx2", "avx", "sse2") if name in flags), "unknown")


def _caches() -> dict[str, str]:
    """Return the sizes of caches of core 0, such as ``{"L1 data": "48K", "L2": "2048K"}``."""
    found = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        found[f"L{level}" + (f" {kind.lower()}" if kind != "Unified" else "")] = size
    return found
