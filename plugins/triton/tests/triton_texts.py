"""The texts of kernels, and what Triton makes of them."""

from __future__ import annotations

from typing import Any

from mgb.codegen import row_major
from mgb.ir import Graph
from mgb_cuda.steps import steps
from mgb_cuda.testing.compiled import OnPaper
from mgb_triton import compiler
from mgb_triton.source import texts
from triton_helpers import BENCH


def usage(text: str, architecture: int) -> list[compiler.Usage]:
    """What the kernel of a text takes."""
    return [compiler.usage(text, architecture)]


def printed(graph: Graph, architecture: int = 90) -> list[str]:
    """The texts of the kernels for row-major arrays of the shapes of the graph."""
    device = OnPaper(usage, architecture)
    backend: Any = BENCH.given(device)
    unit = backend.kernels(graph, backend.devices, None).unit()
    specs = [o.node.spec for o in unit.frame.arrays]
    strides = [row_major(s.shape, s.dtype.itemsize) for s in specs[: len(specs) - unit.outputs]]
    found = steps(unit.frame, [s.shape for s in specs], strides)
    return [text for text, _ in texts(unit.frame, unit.choose(found).variant)]


def ptx(text: str, architecture: int = 90) -> str:
    """The assembly of a kernel."""
    found: str = compiler.build(text, architecture).asm["ptx"]
    return found
