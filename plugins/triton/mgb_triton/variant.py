"""Parameters compiled into a kernel beside the graph: how operands step through memory, and the tiles."""

from __future__ import annotations

from dataclasses import dataclass

from mgb_cuda.frame import Frame
from mgb_cuda.packing import Packing
from mgb_cuda.pattern import Pattern


@dataclass(frozen=True)
class Variant(Pattern):
    """One kernel of a graph.

    Attributes
    ----------
    askew : tuple of int
        The arrays that begin at no multiple of 16 bytes.
    tall, long : int
        A program's tile: rows, and elements of each. A flat one has one row.
    warps : int
    """

    askew: tuple[int, ...] = ()
    tall: int = 1
    long: int = 1024
    warps: int = 4

    def is_flat(self, frame: Frame) -> bool:
        """Return whether a tile has one axis, along which nothing is folded. All loops are along it then."""
        return frame.flat and all(self.folded)

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def own(self) -> int:
        """Elements of a tile that each thread has."""
        return max(1, self.tall * self.long // self.threads)

    def packing(self, frame: Frame) -> Packing:
        """Return each parameter on its own, and two null pointers that Triton adds.

        No kernel has scratch memory.
        """
        return Packing(len(self.pointers(frame)), self.numbers, apart=True, nulls=2)
