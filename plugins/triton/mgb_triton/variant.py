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
    lanes : int
        Neighbours that begin at the same multiple in every operand, and so may be loaded at once.
    tail : bool
        The last lanes may lie beyond the end.
    askew : tuple of int
        The arrays that begin at no multiple of 16 bytes.
    tall, long : int
        A program's tile: rows, and elements of each. A flat one has one row.
    warps : int
    stays : bool
        A tile has whole rows, which are read once.
    online : bool
        The first pass does the second one's folds too.
    split : bool
        Programs share a row, and each pass is a kernel of its own.
    units : int
        How many sets of operands one launch takes, which finds them in a table; 0: it is made for one.
    """

    lanes: int = 1
    tail: bool = False
    askew: tuple[int, ...] = ()
    tall: int = 1
    long: int = 1024
    warps: int = 4
    stays: bool = False
    online: bool = False
    split: bool = False
    units: int = 0

    @property
    def is_split(self) -> bool:
        return self.split

    @property
    def is_online(self) -> bool:
        return self.online

    def is_flat(self, frame: Frame) -> bool:
        """Return whether a tile has one axis, along which nothing is folded. All loops are along it then."""
        return frame.flat and all(self.folded)

    @property
    def threads(self) -> int:
        return 32 * self.warps

    def packing(self, frame: Frame) -> Packing:
        """Return each parameter on its own, and two null pointers that Triton adds.

        No kernel has scratch memory.
        """
        return Packing(len(self.pointers(frame)), self.numbers, apart=True, nulls=2)
