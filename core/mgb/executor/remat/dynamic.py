"""Dynamic tensor rematerialisation: when memory is full, drop what is cheap, large and long unused.

M. Kirisame et al., "Dynamic Tensor Rematerialization", ICLR 2021. The method makes its choices while a model
runs. Here the steps are known, so it is played once over them, with their estimated costs as the clock, and
what it did is the order in which they run.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

from .memory_config import DTRConfig
from .timeline import Timeline

#: An order that runs the steps so many times over has lost itself: it counts as impossible.
_MOST_RUNS = 8

#: How many values are looked at to find one to drop; of more, a random sample is, as the paper proposes.
_SAMPLE = 64


class TooSmallError(Exception):
    """The budget cannot be met."""


def evicting(timeline: Timeline, config: DTRConfig, budget: int) -> list[int]:
    """Return an order that holds at most `budget` bytes, by the reckoning of `Timeline.live`.

    Parameters
    ----------
    timeline : Timeline
    config : DTRConfig
        All but its threshold is used.
    budget : int

    Returns
    -------
    list of int
        It holds every step once, in the given order, and some again.

    Raises
    ------
    TooSmallError
        A step does not fit with what it reads and what may not be dropped, or too many steps would run again.
    """
    return _Play(timeline, config, budget).order()


class _Play:
    """The state of memory while the steps are played.

    What is dropped is memory with all its views; it is named by the value that owns it.
    """

    def __init__(self, timeline: Timeline, config: DTRConfig, budget: int) -> None:
        self.timeline, self.config, self.budget = timeline, config, budget
        self.members: list[list[int]] = [[] for _ in timeline.owner]
        for value, root in enumerate(timeline.owner):
            self.members[root].append(value)
        self.present = [False] * len(timeline.owner)  # of each value
        self.future = [len(readers) for readers in timeline.readers]  # readers that did not run yet
        self.locks = [0] * len(timeline.owner)
        self.used = [0.0] * len(timeline.owner)  # when
        self.clock = 0.0
        self.alive = 0
        self.droppable = _Bag()
        self.dropped = _Dropped(timeline)
        self.dice = random.Random(0)
        self.runs: list[int] = []

    def order(self) -> list[int]:
        """Return every step in turn, each after what it lacks."""
        for step in range(len(self.timeline)):
            self.obtain(step)
            for root in self.roots(self.timeline.reads[step]):
                self.future[root] -= 1
            self.let_go(step)
        return self.runs

    def roots(self, values: Iterable[int]) -> dict[int, None]:
        """Return the memory of `values`."""
        return dict.fromkeys(self.timeline.owner[v] for v in values)

    def obtain(self, step: int) -> None:
        """Run `step`, and before it those whose results it lacks; what it reads stays locked."""
        waiting: list[tuple[int, set[int]]] = [(step, set())]
        while waiting:
            step, locked = waiting[-1]
            missing = None
            for value in self.timeline.reads[step]:
                root = self.timeline.owner[value]
                if not self.present[value]:
                    missing = value
                elif root not in locked:
                    locked.add(root)
                    self.locks[root] += 1
            if missing is not None:
                waiting.append((self.timeline.writer[missing], set()))
                continue
            self.run(step)
            waiting.pop()
            if waiting:  # its results are wanted: they must not go with what it has read
                above, kept = waiting[-1]
                for root in self.roots(v for v in self.timeline.reads[above] if self.present[v]):
                    if root not in kept:
                        kept.add(root)
                        self.locks[root] += 1
                self.let_go(step)

    def run(self, step: int) -> None:
        """Make room for what `step` writes, and write it."""
        line = self.timeline
        if len(self.runs) > _MOST_RUNS * len(line):
            raise TooSmallError
        for value in line.writes[step]:  # readers to come read the new one, and make its views again
            if line.owner[value] == value and self.present[value] and value not in line.returned:
                self.forget(value)
        needed = sum(line.nbytes[v] for v in line.writes[step])
        while self.alive + needed > self.budget:
            self.drop(self.cheapest())
        self.runs.append(step)
        self.clock += line.cost[step]
        for value in line.writes[step]:
            root = line.owner[value]
            if root == value and not self.present[value]:
                self.alive += line.nbytes[value]
                self.dropped.remove(value)
                if line.nbytes[value] >= self.config.evictee_minimum_size and root not in line.returned:
                    self.droppable.add(value)
            self.present[value] = True
        for root in self.roots((*line.reads[step], *line.writes[step])):
            self.used[root] = self.clock

    def let_go(self, step: int) -> None:
        """Unlock what `step` has read; what no step will read, its results included, goes at once."""
        read = self.roots(self.timeline.reads[step])
        for root in read:
            self.locks[root] -= 1
        for root in read | self.roots(self.timeline.writes[step]):
            idle = not (self.future[root] or self.locks[root] or root in self.timeline.returned)
            if idle and self.present[root]:
                self.drop(root)

    def drop(self, root: int) -> None:
        """Forget a value and its views; if one is wanted again, its steps run again."""
        self.forget(root)
        self.dropped.add(root)

    def forget(self, root: int) -> None:
        """Remove a value and its views."""
        for value in self.members[root]:
            self.present[value] = False
        self.alive -= self.timeline.nbytes[root]
        self.droppable.discard(root)

    def cheapest(self) -> int:
        """Return the value to evict: lowest cost for its size and for the time since its last use."""
        if len(self.droppable) <= _SAMPLE:
            found = [r for r in self.droppable.items if not self.locks[r]]
        else:
            found = [r for r in self.dice.sample(self.droppable.items, _SAMPLE) if not self.locks[r]]
            found = found or [r for r in self.droppable.items if not self.locks[r]]
        if not found:
            raise TooSmallError
        return min(found, key=self.heuristic)

    def heuristic(self, root: int) -> float:
        """Return the paper's cost / (size * staleness), with the user's powers of size and staleness.

        It is the logarithm, which powers of any size leave in the range of floats.
        """
        cost = self.dropped.cost_around(root)
        size = math.log(max(1, self.timeline.nbytes[root]))
        stale = math.log(1.0 + self.clock - self.used[root])
        powers = self.config.recomp_memory_factor * size + self.config.recomp_time_factor * stale
        return (math.log(cost) if cost > 0 else -math.inf) - powers


class _Bag:
    """A set from which a sample can be taken; it keeps no order, but the same one each time."""

    def __init__(self) -> None:
        self.items: list[int] = []
        self._place: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.items)

    def add(self, item: int) -> None:
        """Put it in; it is not there."""
        self._place[item] = len(self.items)
        self.items.append(item)

    def discard(self, item: int) -> None:
        """Take it out if it is there."""
        place = self._place.pop(item, None)
        if place is not None:
            last = self.items.pop()
            if last != item:
                self.items[place] = last
                self._place[last] = place


class _Dropped:
    """Evicted values, in neighbourhoods: those that one has to recompute to recompute another.

    They are kept as the paper approximates them, in a union-find forest, which forgets no edge: when a value
    comes back its cost leaves the sum, its neighbours stay together.
    """

    def __init__(self, timeline: Timeline) -> None:
        line = timeline
        count = len(line.owner)
        self.cost = [0.0] * count
        near: list[set[int]] = [set() for _ in range(count)]
        for step in range(len(line)):
            written = {line.owner[v] for v in line.writes[step]}
            for root in written:
                self.cost[root] += line.cost[step]
            for read in {line.owner[v] for v in line.reads[step]} - written:
                near[read] |= written
                for root in written:
                    near[root].add(read)
        self.near = [tuple(sorted(roots)) for roots in near]
        self.place = [-1] * count  # in the forest, of each that is gone
        self.up: list[int] = []
        self.sum: list[float] = []

    def add(self, root: int) -> None:
        """Add a root whose value is evicted."""
        self.place[root] = top = len(self.up)
        self.up.append(top)
        self.sum.append(self.cost[root])
        for other in self._around(root):
            self.up[other] = top
            self.sum[top] += self.sum[other]

    def remove(self, root: int) -> None:
        """Remove a root whose value is in memory again."""
        if self.place[root] >= 0:
            self.sum[self._top(self.place[root])] -= self.cost[root]
            self.place[root] = -1

    def cost_around(self, root: int) -> float:
        """Return the cost of recomputing `root` and all evicted neighbours."""
        return self.cost[root] + sum(self.sum[top] for top in self._around(root))

    def _around(self, root: int) -> set[int]:
        return {self._top(self.place[r]) for r in self.near[root] if self.place[r] >= 0}

    def _top(self, place: int) -> int:
        up = self.up
        while up[place] != place:
            up[place] = up[up[place]]
            place = up[place]
        return place
