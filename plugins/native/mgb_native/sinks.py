"""How elements that go to any place are folded: in how many tables, and where these lie."""

from __future__ import annotations

import itertools
import math
from typing import Any

from mgb.codegen import is_scatter
from mgb.ir import Node

from .frame import Frame

#: Elements of a piece of the inner loop that is gathered, and columns of a block.
GATHERED, COLUMNS = 1 << 11, 512

#: The most tables that the elements of a row are folded into; how many rows there are at least for each place
#: of one, and how many elements where these go anywhere; the fewest elements, and columns, of one; how many
#: numbers the elements of one place take turns with, where a table is in cache: the most bytes of that.
JOINED, EACH, SPARSE, FILLING, APART, WAYS, NEARBY = 16, 8, 2, 1 << 14, 16, 4, 1 << 17


class Sinks:
    """The decisions of a `Planner` about sinks.

    Attributes
    ----------
    tables : dict
        The shape and the strides of what each look-up, dot and sink goes through.
    places : list of int
        How many places of each sink indices reach.
    """

    frame: Frame
    tables: dict[Node, Any]
    places: list[int]
    n: int
    steps: int
    inner: list[int]
    words: list[int]

    def places_of(self, sink: Node) -> int:
        """Return how many places of a sink indices reach."""
        shape, _ = self.tables[sink, 0]
        return math.prod(d for d, at in zip(shape, sink.params["along"], strict=True) if at is None)

    def chunks_of(self, units: int) -> int:
        """Return in how many chunks, with a table each, a row is folded into its sinks."""
        return max(1, min(JOINED, units, self.joins()))

    def joins(self) -> int:
        """Return how many tables are worth joining: each is smaller than what is folded into it."""
        most = max(self.places, default=0)
        elements = self.steps * (1 if self.frame.columns else self.n)
        each = EACH if self.frame.columns else SPARSE
        return min(elements // (each * most * self.ways()), self.steps * self.n // FILLING) if most else 1

    def ways(self) -> int:
        """Return in how many numbers elements of one place are folded in turn."""
        wide = sum(k * v.spec.dtype.itemsize for k, v in zip(self.places, self.frame.sinks, strict=True))
        few = WAYS * wide <= NEARBY and WAYS * EACH * max(self.places, default=0) <= self.steps * self.n
        return WAYS if self.frame.sinks and not self.frame.columns and few else 1

    def is_direct(self) -> bool:
        """Return whether elements may be folded where the outputs lie."""
        if any(len(mates) > 1 for mates in self.frame.together.values()):
            return False
        own = ((i, o) for i, o in enumerate(self.frame.operands) if o.is_output and is_scatter(o.node))
        return self.ways() == 1 and all(
            self._is_even(o.node) and (self.inner[i] == o.itemsize if o.moves else self._is_whole(o.node))
            for i, o in own
        )

    def _is_even(self, sink: Node) -> bool:
        """Return whether the places of a sink are one step apart."""
        steps = self.steps_of(sink)
        return all(before[1] == own[0] * own[1] for before, own in itertools.pairwise(steps))

    def _is_whole(self, sink: Node) -> bool:
        """Return whether the places of a sink lie side by side."""
        return self.steps_of(sink)[-1][1] == sink.spec.dtype.itemsize

    def steps_of(self, sink: Node) -> list[tuple[int, int]]:
        """Return the lengths and the strides of the axes that indices reach."""
        triples = zip(*self.tables[sink, 0], sink.params["along"], strict=True)
        return [(length, stride) for length, stride, at in triples if at is None]

    def piece_of_sinks(self) -> int:
        """Return the most elements, or columns, whose places are found before they are folded."""
        if not self.frame.columns:
            return GATHERED
        return COLUMNS if self.joins() > 1 else max(APART, self.n // JOINED // APART * APART)

    def fill_sink(self, sink: Node, places: int, sizes: dict[str, int]) -> None:
        """Write how many places a sink has, its strides, and those of the tables that are joined to it."""
        frame, words = self.frame, self.words
        words[frame.places_at(sink)] = places
        step = sink.spec.dtype.itemsize * sizes["ways"] * (sizes["piece"] if frame.columns else 1)
        step *= len(frame.together[sink])
        for _, axis in reversed([pair for pair in frame.placed if pair[0] is sink]):
            at = frame.axis_at(sink, axis)
            words[frame.placed_at(sink, axis)] = words[at + 1]
            if not sizes["direct"]:
                words[at + 1] = step
            step *= words[at]

    def table_of(self, sink: Node, sizes: dict[str, int]) -> int:
        """Return the elements of all tables that are joined to a sink, and to those with its places."""
        wide = sizes["ways"] * (sizes["piece"] if self.frame.columns else 1) * len(self.frame.together[sink])
        places = self.places_of(sink)
        return 0 if sizes["direct"] else sizes["chunks"] * places * wide
