"""The graph of groups: which group waits for which, kept up to date while groups merge.

Sets of groups are Python integers used as bit sets, so a question about thousands of groups is one operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import numpy as np


class Quotient:
    """Numbered nodes, each in a group of its own at first.

    Parameters
    ----------
    sources : sequence of sequences of int
        For each node the earlier nodes that it reads.
    """

    def __init__(self, sources: Sequence[Sequence[int]]) -> None:
        count = len(sources)
        self._count = count
        self._parent = list(range(count))
        self.members = [[i] for i in range(count)]
        self._inside = [1 << i for i in range(count)]
        self._live = (1 << count) - 1
        self._reads, self._readers = [0] * count, [0] * count  # the groups one edge before, one edge after
        self._before, self._after = [0] * count, [0] * count  # and any number of edges
        for i, inputs in enumerate(sources):
            for j in inputs:
                self._reads[i] |= 1 << j
                self._readers[j] |= 1 << i
                self._before[i] |= 1 << j | self._before[j]
        for i in reversed(range(count)):
            for j in sources[i]:
                self._after[j] |= 1 << i | self._after[i]

    def find(self, node: int) -> int:
        """The group of `node`; a group is named by one of its members."""
        while self._parent[node] != node:
            self._parent[node] = node = self._parent[self._parent[node]]
        return node

    def feeds(self, a: int, b: int) -> bool:
        """Does group `b` wait for group `a`?"""
        return bool(self._before[b] & self._inside[a])

    def waits(self, a: int, b: int) -> bool:
        """Is there a way between the two through a third group? Merged, they would wait for themselves."""
        between = self._readers[a] & self._before[b] | self._readers[b] & self._before[a]
        return bool(between & ~(self._inside[a] | self._inside[b]))

    def merge(self, a: int, b: int) -> int:
        """Make one group of `a` and `b`, between which no third one waits; its name is `b`."""
        inside = self._inside[a] | self._inside[b]
        bit = 1 << b
        for x, y in ((a, b), (b, a)):
            before, after = self._before[x] & ~self._before[y], self._after[x] & ~self._after[y]
            self._tell(before & ~inside, self._after, self._after[y] & ~inside | bit)
            self._tell(after & ~inside, self._before, self._before[y] & ~inside | bit)
        self._tell(self._reads[a], self._readers, bit)
        self._tell(self._readers[a], self._reads, bit)
        for sets in (self._reads, self._readers, self._before, self._after):
            sets[b] = (sets[a] | sets[b]) & ~inside
        self._inside[b] = inside
        self._live &= ~(1 << a)
        self._parent[a] = b
        self.members[b] = self.members[a] + self.members[b]
        self.members[a] = []
        return b

    def groups(self) -> list[int]:
        """Every group, each after those it reads; else in the order of their last members."""
        last = {g: max(self.members[g]) for g in self._bits(self._live)}
        waiting = {g: {self.find(r) for r in self._bits(self._reads[g])} for g in last}
        readers: dict[int, list[int]] = {g: [] for g in last}
        for g, reads in waiting.items():
            for r in reads:
                readers[r].append(g)
        count = {g: len(reads) for g, reads in waiting.items()}
        ready = [(last[g], g) for g in last if not count[g]]
        heapify(ready)
        order = []
        while ready:
            _, g = heappop(ready)
            order.append(g)
            for r in readers[g]:
                count[r] -= 1
                if not count[r]:
                    heappush(ready, (last[r], r))
        return order

    def _tell(self, groups: int, sets: list[int], news: int) -> None:
        for g in self._bits(groups & self._live):
            sets[g] |= news

    def _bits(self, bits: int) -> list[int]:
        if not bits:
            return []
        raw = np.frombuffer(bits.to_bytes(self._count // 8 + 1, "little"), np.uint8)
        found: list[int] = np.flatnonzero(np.unpackbits(raw, bitorder="little")).tolist()
        return found
