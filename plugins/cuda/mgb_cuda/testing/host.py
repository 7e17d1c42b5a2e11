"""A device that is the host: kernels are compiled by the system's C++ compiler and run by ``shim.h``."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ..device import Device, LaunchError, Properties
from .arrays import HostArrays

SHIM = Path(__file__).with_name("shim.h")
FLAGS = (
    "-std=c++17 -O1 -fPIC -shared -w -fno-strict-aliasing -ffp-contract=off -U_FORTIFY_SOURCE "
    "-fno-gnu-unique -fvisibility=hidden -ftrivial-auto-var-init=pattern"
).split()

#: What a block waits for, and shuffles do.
WAITS = re.compile(r"__syncthreads|__shfl|cluster_sync")
KERNEL = re.compile(
    r"__global__ void (?:__cluster_dims__\((\d+)[^)]*\) )?.*?(\w+)\(const __grid_constant__ (\w+) "
)

#: Few multiprocessors, so that small arrays are cut over blocks as large ones are on a GPU.
PROPERTIES = Properties("host", (8, 0), multiprocessors=4)


def missing() -> str | None:
    """Return why kernels cannot be compiled here; None when they can."""
    return None if shutil.which("g++") else "there is no C++ compiler called g++: apt install g++"


class HostDevice(HostArrays, Device):
    """Runs the text that a GPU would run.

    Parameters
    ----------
    folder : Path, optional
        Where compiled kernels are kept between runs; by default in the system's temporary folder.
    properties : Properties, optional
    """

    def __init__(self, folder: Path | None = None, properties: Properties = PROPERTIES) -> None:
        self.properties = properties
        self.folder = folder or Path(tempfile.gettempdir()) / f"mgb-host-kernels-{os.getuid()}"
        self.reverse = False
        self.sources: list[str] = []  # every text that was asked for, in order
        self._lock = threading.Lock()

    def key(self) -> str:
        return "host"

    def toolchain(self) -> str:
        return _header_key()

    def compile(self, source: str) -> bytes:
        self.sources.append(source)
        key = hashlib.sha256((_header_key() + source + _entries(source)).encode()).hexdigest()
        kept = self.folder / f"{key}.so"
        if not kept.exists():
            self.folder.mkdir(mode=0o700, exist_ok=True, parents=True)
            kept.with_suffix(".cu").write_text(source)
            _build(self.folder, source, kept)
        return kept.read_bytes()

    def load(self, image: bytes, names: Sequence[str]) -> tuple[Any, ...]:
        library = _library(image)
        functions = [getattr(library, f"launch_{name}") for name in names]
        for function in functions:
            function.restype = ctypes.c_char_p
        return tuple(functions)

    def launcher(self, function: Any, grid: tuple[int, int], threads: int) -> Callable[[int, int], None]:
        geometry = (ctypes.c_uint * 6)(*grid, 1, threads, 1, 1)

        def launch(_stream: int, table: int) -> None:
            params = ctypes.c_void_p.from_address(table)
            with self._lock:  # a shim has one block of fibers
                problem = function(geometry, ctypes.c_bool(self.reverse), params)
            if problem:
                raise LaunchError(problem.decode())

        return launch


def _build(folder: Path, source: str, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as work:
        text, built = Path(work, "kernel.cpp"), Path(work, "kernel.so")
        text.write_text(source + _entries(source))
        command = ["g++", *FLAGS, "-include", str(_header(folder)), str(text), "-o", str(built)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            kept = folder / "refused.cpp"
            shutil.copyfile(text, kept)
            raise LaunchError(f"g++ does not take the kernel, see {kept}:\n{done.stderr[:2000]}")
        os.replace(built, target)


def _entries(source: str) -> str:
    """Return for each kernel a function that launches it."""
    waits = "true" if WAITS.search(source) else "false"
    lines = []
    for cluster, name, params in KERNEL.findall(source):
        lines.append(f"static void call_{name}(const void *p) {{ {name}(*(const {params} *)p); }}")
        lines.append(
            f'extern "C" __attribute__((visibility("default"))) const char *launch_{name}'
            "(const unsigned *geometry, bool reverse, const void *p) "
            f"{{ return shim::launch(geometry, {cluster or 1}, {waits}, reverse, call_{name}, p); }}"
        )
    return "\n" + "\n".join(lines) + "\n"


@cache
def _header_key() -> str:
    version = subprocess.run(["g++", "--version"], capture_output=True, text=True).stdout
    return hashlib.sha256((version + " ".join(FLAGS) + SHIM.read_text()).encode()).hexdigest()


@cache
def _header(folder: Path) -> Path:
    """Return the shim, compiled once: most of the time of a small kernel."""
    header = folder / f"shim-{_header_key()[:16]}.h"
    if not header.with_suffix(".h.gch").exists():
        shutil.copyfile(SHIM, header)
        flags = [f for f in FLAGS if f != "-shared"]
        made = header.with_suffix(f".{os.getpid()}.gch")
        subprocess.run(["g++", *flags, "-x", "c++-header", str(header), "-o", str(made)], check=True)
        os.replace(made, header.with_suffix(".h.gch"))
    return header


@cache
def _library(image: bytes) -> ctypes.CDLL:
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(image)
        file.flush()
        return ctypes.CDLL(file.name)
