"""Groups of nodes, and the graph of groups: which waits for which, kept up to date while groups merge.

Sets of groups are Python integers used as bit sets, so a question about thousands of groups is one operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import numpy as np


class Partition:
    """Numbered nodes, each in a group of its own at first.

    For who merges groups between which no third one can wait: it does not know what stands between groups.

    Parameters
    ----------
    sources : sequence of sequences of int
        For each node the earlier nodes that it reads.

    Attributes
    ----------
    members : list of list of int
        The nodes of each group, under its name; a group is named by one of its nodes.
    """

    def __init__(self, sources: Sequence[Sequence[int]]) -> None:
        self._sources = sources
        self._parent = list(range(len(sources)))
        self.members = [[i] for i in self._parent]

    def find(self, node: int) -> int:
        """Return the group of `node`."""
        while self._parent[node] != node:
            self._parent[node] = node = self._parent[self._parent[node]]
        return node

    def feeds(self, a: int, b: int) -> bool:
        """Return whether group `b` is known to wait for group `a`."""
        return False

    def waits(self, a: int, b: int) -> bool:
        """Return whether there is known to be a way between the two through a third group."""
        return False

    def merge(self, a: int, b: int) -> int:
        """Make one group of `a` and `b`, between which no third one waits; gives its name, one of the two."""
        if len(self.members[a]) > len(self.members[b]):
            a, b = b, a
        self._unite(a, b)
        return b

    def _unite(self, a: int, b: int) -> None:
        few, many = sorted((self.members[a], self.members[b]), key=len)
        many += few
        self._parent[a], self.members[a], self.members[b] = b, [], many

    def groups(self) -> list[int]:
        """Return every group, each after those it reads; else in the order of their last members."""
        last = {g: max(members) for g, members in enumerate(self.members) if members}
        waiting: dict[int, int] = {}
        readers: dict[int, list[int]] = {g: [] for g in last}
        for g in last:
            reads = {self.find(j) for i in self.members[g] for j in self._sources[i]} - {g}
            waiting[g] = len(reads)
            for r in reads:
                readers[r].append(g)
        ready = [(last[g], g) for g in last if not waiting[g]]
        heapify(ready)
        order = []
        while ready:
            _, g = heappop(ready)
            order.append(g)
            for r in readers[g]:
                waiting[r] -= 1
                if not waiting[r]:
                    heappush(ready, (last[r], r))
        return order


class Quotient(Partition):
    """A `Partition` that knows for each group what comes before it and what after it.

    A bit set may have bits of groups that are merged into others; who had known one knows the other.
    """

    def __init__(self, sources: Sequence[Sequence[int]]) -> None:
        super().__init__(sources)
        count = len(sources)
        self._bytes = count // 64 * 8 + 8
        self._bit = [1 << i for i in range(count)]
        self._live = (1 << count) - 1
        self._before, self._after = [0] * count, [0] * count  # the groups any number of edges away
        for i, inputs in enumerate(sources):
            for j in inputs:
                self._before[i] |= self._bit[j] | self._before[j]
        for i in reversed(range(count)):
            for j in sources[i]:
                self._after[j] |= self._bit[i] | self._after[i]

    def feeds(self, a: int, b: int) -> bool:
        """Return whether group `b` waits for group `a`."""
        return bool(self._before[b] & self._bit[a])

    def waits(self, a: int, b: int) -> bool:
        """Return whether a way leads between the two through a third group; merged, they would deadlock."""
        between = self._after[a] & self._before[b] | self._after[b] & self._before[a]
        return bool(between & self._live)

    def merge(self, a: int, b: int) -> int:
        """Make one group of `a` and `b`, between which no third one waits; gives its name, one of the two.

        Others are told what is news to them, and no more. The name is that of the group with the more
        neighbours, which know it already: so the work grows with what changes, not with what there is.
        """
        if self._neighbours(a) > self._neighbours(b):
            a, b = b, a
        self._live ^= self._bit[a] | self._bit[b]
        for far, near in ((self._before, self._after), (self._after, self._before)):
            far_of_both, near_of_both = far[a] & far[b], near[a] & near[b]
            self._tell(far[a] ^ far_of_both, near, (near[b] ^ near_of_both) & self._live | self._bit[b])
            self._tell(far[b] ^ far_of_both, near, (near[a] ^ near_of_both) & self._live)
        for sets in (self._before, self._after):
            sets[b] = (sets[a] | sets[b]) & self._live
            sets[a] = 0
        self._live ^= self._bit[b]
        self._unite(a, b)
        return b

    def _neighbours(self, group: int) -> int:
        return self._before[group].bit_count() + self._after[group].bit_count()

    def _tell(self, groups: int, sets: list[int], news: int) -> None:
        if groups and news:
            for g in self._bits(groups & self._live):
                sets[g] |= news

    def _bits(self, bits: int) -> list[int]:
        """Return the places of the ones, looked for in those words only that have some."""
        if not bits:
            return []
        words = np.frombuffer(bits.to_bytes(self._bytes, "little"), np.uint64)
        (filled,) = words.nonzero()
        (ones,) = np.unpackbits(words[filled].view(np.uint8), bitorder="little").nonzero()
        found: list[int] = (filled[ones >> 6] * 64 + (ones & 63)).tolist()
        return found
