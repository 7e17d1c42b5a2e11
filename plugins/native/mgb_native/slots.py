"""The slots at the head of the plan, operands and buffers: for the kernel and its launcher."""

from __future__ import annotations

from dataclasses import dataclass

from mgb import codegen
from mgb.ir import Node, dtypes

#: The work of one call of a kernel: stages, rows, chunks of the row; and where its buffers are.
SPAN = ("first", "last", "row0", "row1", "chunk0", "chunk1", "own", "shared")

#: The head of the plan. A row is cut in `units`: a piece of the inner loop at one place of the outer folded
#: loops. `group` units make a chunk, whose partial sums do not depend on who computes it. Rows of transposed
#: inputs, or units where nothing is folded, are laid out `tile` at a time, `pitch` elements apart; `tile` is
#: 0 where there are none. Before a short row is read, memory is asked for the row `ahead` rows later; `ahead`
#: is 0 where that is of no use.
#: Where `next` is not 0, each unit of a later pass asks memory for the same unit of the next row. `short` is
#: not 0 where each row is one unit, whose elements lie side by side. Elements that belong to one place of a
#: sink are folded into `ways` numbers in turn, so that none waits for the one before it; `direct` is not 0
#: where a sink is the output itself, not one of several tables that are joined. `narrow` is not 0 where
#: rows of columns are so short, and lie side by side, that folds stay in registers along a chunk. Terms of a
#: dot that are laid out have their elements side by side, and are `line` elements apart. `near` is not 0
#: where 32 bits count the bytes of each table that indices of as many bits look up. Of a row of columns all
#: pieces follow each other, or a piece of all rows where `by_pieces` is not 0; they are `cycle`.
HEAD = (
    "n", "piece", "pieces", "group", "units", "chunks", "extent", "stream", "tile", "pitch", "ahead", "next",
    "short", "ways", "direct", "narrow", "line", "near", "cycle", "by_pieces",
)  # fmt: skip

#: The words that tell which terms of a dot are laid out: where they are, and how many elements each has.
NOTE = 2


@dataclass(frozen=True, slots=True)
class Operand(codegen.Operand):
    """With its place in the plan."""

    moves: bool  # whether it varies along the innermost axis
    at: int  # its slots in the plan: the stride of the inner loop, of the kept loops, of the folded loops

    @property
    def is_table(self) -> bool:
        """Return whether it is a table as one `look_up` or `dot` goes through it.

        The array is that of another operand.
        """
        return self.name[0] in "lm"

    @property
    def side(self) -> int:
        """Return which operand of `node` the table is."""
        return int(self.name.startswith("m"))

    @property
    def is_array(self) -> bool:
        return not (self.is_iota or self.is_table)


@dataclass(frozen=True, slots=True)
class Buffer:
    """Scratch memory of a kernel.

    Attributes
    ----------
    name : str
    dtype : str
    size : str
        How many elements, in the words of the plan: ``"piece"``, ``"chunks"``, ``"chunks *
        piece"``, ``"units * piece"``; ``"table K"``, as many as the sink K has places in all chunks;
        ``"lines K"``, those of the terms of a dot that are laid out; ``"note"``, what these are.
    shared : bool
        Whether all threads that work on one row share it.
    node : Node
        The value it holds.
    """

    name: str
    dtype: str
    size: str
    shared: bool
    node: Node

    @property
    def itemsize(self) -> int:
        return dtypes.BY_NAME[self.dtype].itemsize
