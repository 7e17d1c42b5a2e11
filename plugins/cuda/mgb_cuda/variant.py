"""Parameters compiled into a kernel beside the graph: how threads share work and step through memory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .pattern import Pattern

#: Shared memory in which threads meet to add up totals; two such parts are in use at a time.
ROUND_BYTES = 16 << 10


#: Threads of a multiprocessor that have 64 registers each.
FULL = 1024


class Kind(Enum):
    """How threads lie over the domain."""

    FLAT = "flat"  # no reductions: blocks take pieces of the whole domain
    ROWS = "rows"  # the innermost axis is folded: neighbouring threads work on one row
    COLUMNS = "columns"  # the innermost axis is kept: neighbouring threads work on neighbouring rows
    TILES = "tiles"  # no reductions, and inputs that are transposed: blocks take squares of two loops


@dataclass(frozen=True)
class Variant(Pattern):
    """One kernel of a graph.

    Attributes
    ----------
    kind : Kind
    whole : tuple of int
        The classes that lie as the domain does, whose lanes may go past the end of the innermost loop; lanes
        of others are loaded one by one. Empty: no lanes go past it.
    threads : int
        In a block.
    team : int
        How many of them share a row.
    slots : int
        How many times as many elements a thread takes at once, so that loads are under way together.
    cluster : int
        Blocks that share a row, which stays in their registers; they see each other's shared memory.
    turned : tuple of int
        The operands that blocks turn in shared memory: squares of `Kind.TILES`, pieces of `Kind.ROWS`.
    fast : int
        The loop along which those of squares are neighbours; their other side is the innermost loop.
    side : int
        Of the squares.
    """

    kind: Kind = Kind.FLAT
    whole: tuple[int, ...] = ()
    threads: int = 256
    team: int = 256
    slots: int = 1
    cluster: int = 1
    turned: tuple[int, ...] = ()
    fast: int = 0
    side: int = 0

    @property
    def across(self) -> int:
        """The teams of a block; that of a cluster is larger than a block."""
        return max(1, self.threads // self.team)

    @property
    def row_lanes(self) -> int:
        """The rows that a thread works on at once."""
        return self.lanes if self.kind is Kind.COLUMNS else 1

    @property
    def rows_of_block(self) -> int:
        return self.across * self.row_lanes

    @property
    def stride(self) -> int:
        """Return how many elements of a row a team takes with one slot."""
        return self.team * (1 if self.kind is Kind.COLUMNS else self.lanes)

    @property
    def own(self) -> int:
        """Elements of a row, or of the domain, that a thread takes at once."""
        return self.side**2 // self.threads if self.side else self.slots * self.lanes

    @property
    def at_once(self) -> int:
        """Blocks for which the compiler leaves registers: the second one loads while the first computes."""
        return 2 if (self.stays or self.online) and self.threads == FULL // 2 else 1

    @property
    def bounds(self) -> str:
        """Return the launch bounds: threads of a block, and blocks at once."""
        return f"{self.threads}, 2" if self.at_once == 2 else str(self.threads)

    @property
    def square(self) -> tuple[int, ...]:
        """The loops along the sides of squares, the innermost one first."""
        return (len(self.folded) - 1, self.fast) if self.kind is Kind.TILES else ()

    @property
    def counts(self) -> tuple[str, ...]:
        return tuple(f"t{j}" for j in self.square)
