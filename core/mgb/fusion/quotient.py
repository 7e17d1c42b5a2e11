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
        """Make one group of `a` and `b`, between which no third one waits; gives its name, one of the two.

        Others are told what is news to them, and no more. The name is that of the group with the more
        neighbours, which know it already: so the work grows with what changes, not with what there is.
        """
        if self._neighbours(a) > self._neighbours(b):
            a, b = b, a
        inside = self._inside[a] | self._inside[b]
        bit = 1 << b
        for far, near in ((self._before, self._after), (self._after, self._before)):
            only_a, only_b = far[a] & ~far[b] & ~inside, far[b] & ~far[a] & ~inside
            self._tell(only_a, near, near[b] & ~near[a] & ~inside | bit)
            self._tell(only_b, near, near[a] & ~near[b] & ~inside)
        self._tell(self._reads[a], self._readers, bit)
        self._tell(self._readers[a], self._reads, bit)
        for sets in (self._reads, self._readers, self._before, self._after):
            sets[b] = (sets[a] | sets[b]) & ~inside
            sets[a] = 0
        self._inside[b] = inside
        self._live &= ~(1 << a)
        self._parent[a] = b
        self.members[b] += self.members[a]
        self.members[a] = []
        return b

    def _neighbours(self, group: int) -> int:
        return self._before[group].bit_count() + self._after[group].bit_count()

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
        if news:
            for g in self._bits(groups & self._live):
                sets[g] |= news

    def _bits(self, bits: int) -> list[int]:
        """The places of the ones, looked for in those words only that have some."""
        if not bits:
            return []
        words = np.frombuffer(bits.to_bytes(self._count // 64 * 8 + 8, "little"), np.uint64)
        (filled,) = words.nonzero()
        (ones,) = np.unpackbits(words[filled].view(np.uint8), bitorder="little").nonzero()
        found: list[int] = (filled[ones >> 6] * 64 + (ones & 63)).tolist()
        return found
