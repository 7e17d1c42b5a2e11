"""The driver that only takes notes: building it, and reading its notes in a process that runs on it."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import HostArrays

SOURCE = Path(__file__).with_name("stub.c")


def missing() -> str | None:
    """Return why the stub cannot be built; None when it can."""
    return None if shutil.which("gcc") else "there is no C compiler called gcc: apt install gcc"


def build(folder: Path) -> Path:
    """Build ``libcuda.so.1`` in `folder`."""
    target = folder / "libcuda.so.1"
    command = (
        f"gcc -O2 -shared -fPIC -w -fvisibility=hidden -Wl,-soname,libcuda.so.1 {SOURCE} -o {target} -ldl"
    )
    subprocess.run(command.split(), check=True, capture_output=True)
    return target


def run(folder: Path, script: str, *arguments: str, **variables: str) -> str:
    """Run `script` in a Python process whose CUDA driver is the stub in `folder` and return its output."""
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder)} | variables
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


class _Launch(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * 64),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_uint64),
        ("parameters", ctypes.c_void_p),
        ("graph", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("context", ctypes.c_uint64),
    ]


class Notes:
    """The calls that the stub of this process has received."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.library.stub_launch.restype = ctypes.POINTER(_Launch)
        self.library.stub_launches.restype = ctypes.c_long
        for name in ("libraries", "updates", "graph_launches", "live_graphs"):
            getattr(self.library, f"stub_{name}").restype = ctypes.c_long
        self._watched = 4096

    def watch(self, parameter_bytes: int) -> None:
        """Forget the past, and copy so many bytes of each launch's parameters."""
        self._watched = max(4096, parameter_bytes)
        self.library.stub_parameter_bytes(parameter_bytes)
        self.library.stub_forget()

    def launches(self) -> list[dict[str, Any]]:
        """Return the launches since `watch`."""
        found = []
        for i in range(self.library.stub_launches()):
            note = self.library.stub_launch(ctypes.c_long(i)).contents
            names = ("grid", "block")
            found.append(
                {"name": note.name.decode(), "shared": note.shared, "stream": note.stream}
                | {name: tuple(getattr(note, name)) for name in names}
                | {"parameters": self._parameters(note.parameters), "graph": note.graph}
                | {"thread": note.thread, "context": note.context}
            )
        return found

    def _parameters(self, address: int | None) -> bytes:
        return ctypes.string_at(address, self._watched) if address else bytes(self._watched)


class StubArrays(HostArrays):
    """Arrays with no memory behind them, for `CudaDevice`: NumPy's stand for a GPU's."""

    current = 0x6000

    def stream(self) -> int:
        return self.current

    def scratch(self, nbytes: int) -> tuple[int, object]:
        memory = np.empty(nbytes, np.uint8)  # nothing is read or written
        return memory.ctypes.data, memory
