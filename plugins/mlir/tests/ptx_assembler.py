"""NVIDIA's assembler, which makes machine code of PTX as a driver does: it needs no GPU."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest
from mgb_cuda import Properties
from mgb_mlir import ptx


def ptxas() -> str | None:
    """Where it is: on the path, or of its wheel."""
    try:
        found = [f.locate() for f in files("nvidia-cuda-nvcc") or () if f.name == "ptxas"]
    except PackageNotFoundError:
        found = []
    return str(found[0]) if found else shutil.which("ptxas")


needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="no ptxas: pip install nvidia-cuda-nvcc")


class Assembled:
    """MLIR, LLVM and the assembler, as a device asks for them."""

    def version(self) -> str:
        return "assembled"

    def compile(self, source: str, properties: Properties) -> bytes:
        """Machine code for one architecture."""
        with tempfile.TemporaryDirectory() as folder:
            text, image = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
            text.write_text(ptx.translated(source, properties.architecture))
            command = [str(ptxas()), f"-arch={properties.architecture}", str(text), "-o", str(image)]
            subprocess.run(command, check=True)
            return image.read_bytes()
