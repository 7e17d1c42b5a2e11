"""The texts of kernels, and what Triton makes of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from mgb.codegen import row_major
from mgb.ir import Graph
from mgb_cuda.steps import steps
from mgb_cuda.testing.compiled import OnPaper, unit_of
from mgb_triton import compiler
from mgb_triton.source import texts
from triton_helpers import BENCH


def usage(text: str, architecture: int) -> list[compiler.Usage]:
    """Return the resources that the kernel of a text takes."""
    return [compiler.usage(text, architecture)]


def printed(
    graph: Graph, architecture: int = 90, strides: Sequence[tuple[int, ...]] | None = None
) -> list[str]:
    """The texts of the kernels for arrays of the shapes of the graph, row-major without `strides`."""
    unit = unit_of(BENCH, OnPaper(usage, architecture), graph)
    specs = [o.node.spec for o in unit.frame.arrays]
    if strides is None:
        strides = [row_major(s.shape, s.dtype.itemsize) for s in specs[: len(specs) - unit.outputs]]
    found = steps(unit.frame, [s.shape for s in specs], strides)
    return [text for text, _ in texts(unit.frame, unit.choose(found).variant)]


@dataclass(frozen=True)
class Access:
    """How a kernel loads or stores a tile, as the compiler has laid it out.

    Attributes
    ----------
    name : str
        ``load`` or ``store``.
    shape : tuple of int
        Of the tile.
    each, lanes : tuple of int
        The elements of a thread that are neighbours, and the threads of a warp, along each of its axes.
    fast : int
        The axis along which threads are neighbours.
    """

    name: str
    shape: tuple[int, ...]
    each: tuple[int, ...]
    lanes: tuple[int, ...]
    fast: int

    def used(self, strides: tuple[int, ...], itemsize: int) -> float:
        """Which part of the sectors that a warp touches it uses, of an array of these strides."""
        lane = np.unravel_index(np.arange(32), self.lanes, "F" if self.fast == 0 else "C")
        own = np.indices(self.each).reshape(len(self.each), 1, -1)
        at = [
            (place[:, None] * each + inner) % size * stride
            for place, each, inner, size, stride in zip(
                lane, self.each, own, self.shape, strides, strict=True
            )
        ]
        places = np.unique(sum(at)) * itemsize
        return len(places) * itemsize / (32 * len(np.unique(places // 32)))


def accesses(text: str, architecture: int = 90) -> list[Access]:
    """Those of tiles in a kernel."""
    code = compiler.build(text, architecture).asm["ttgir"]
    layouts = {}
    for name, given in re.findall(r"^#(\w+) = #ttg.blocked<{(.*)}>$", code, re.MULTILINE):
        layouts[name] = {k: _numbers(v) for k, v in re.findall(r"(\w+) = \[([\d, ]*)\]", given)}
    found = []
    for name, shape, layout in re.findall(r"tt\.(load|store) .*tensor<([\dx]+)x!tt.*, #(\w+)>", code):
        where = layouts[layout]
        sizes = tuple(map(int, shape.split("x")))
        found.append(Access(name, sizes, where["sizePerThread"], where["threadsPerWarp"], where["order"][0]))
    return found


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def ptx(text: str, architecture: int = 90) -> str:
    """The assembly of a kernel."""
    found: str = compiler.build(text, architecture).asm["ptx"]
    return found
