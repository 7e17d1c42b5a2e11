"""Sublinear memory: keep what crosses the ends of blocks, and compute the rest again for the gradient.

T. Chen, B. Xu, C. Zhang, C. Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016. There the blocks
have equal sizes. Here a block may be as large as what is left of a limit when the values kept before it are
paid for: the gradient comes to the first blocks last, when the later ones are gone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate

from .memory_config import SublinearMemoryConfig
from .timeline import Timeline

#: The numbers of the steps after which a block ends, in order.
Splits = tuple[int, ...]

#: How good a set of splits is, the smaller the better: peak, then cost.
Worth = tuple[int, float]


def checkpointed(timeline: Timeline, config: SublinearMemoryConfig) -> list[int]:
    """Return the order with the lowest peak that the search finds.

    Parameters
    ----------
    timeline : Timeline
        A training step, or anything that reads early values late.
    config : SublinearMemoryConfig
        How long to search, and the peak that is low enough: of such orders the cheapest is taken.

    Returns
    -------
    list of int
        It holds every step once, in the given order, and some again.
    """
    blocks = Blocks(timeline)
    enough = config.lb_memory_mb << 20

    def worth(splits: Splits) -> Worth:
        order = blocks.order(splits)
        return max(timeline.peak(order), enough), timeline.extra(order)

    with ThreadPoolExecutor(config.num_worker) as pool:
        tried = list(dict.fromkeys([(), *map(blocks.within, blocks.limits(config.thresh_nr_try))]))
        known = dict(zip(tried, pool.map(worth, tried), strict=True))
        search = _Genetic(blocks, random.Random(0), config.genetic_pool_size)
        for _ in range(config.genetic_nr_iter if config.genetic_pool_size else 0):
            new = [s for s in search.children(known) if s not in known]
            known |= zip(new, pool.map(worth, new), strict=True)
    best: Splits = min(known, key=_by_worth(known))
    return blocks.order(best)


def _by_worth(known: Mapping[Splits, Worth]) -> Callable[[Splits], tuple[Worth, Splits]]:
    """Return a key to sort by; of equal worth, the same set of splits comes first every time."""
    return lambda splits: (known[splits], splits)


class Blocks:
    """The forward part of a timeline, to be cut into blocks.

    Attributes
    ----------
    timeline : Timeline
    turn : int
        The step at which most is alive: the forward part ends with it.
    crossing : list of int
        For each step of the forward part, how many bytes later ones of it read from before its end.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        live = timeline.live(range(len(timeline)))
        self.turn = max(range(len(live)), key=live.__getitem__, default=-1)
        self.late = [0] * (self.turn + 1)  # the bytes that each step writes and that are read after the turn
        change = [0] * (self.turn + 2)
        self.last_early: dict[int, int] = {}  # the last step of the forward part that reads each memory
        for root, readers in enumerate(timeline.readers):
            start = timeline.writer[root]
            if timeline.owner[root] != root or start > self.turn:
                continue
            end = max((r for r in readers if r <= self.turn), default=start)
            self.last_early[root] = end
            change[start] += timeline.nbytes[root]
            change[end] -= timeline.nbytes[root]
            if readers and readers[-1] > self.turn and root not in timeline.returned:
                self.late[start] += timeline.nbytes[root]
        self.crossing = list(accumulate(change))[:-1]

    def limits(self, count: int) -> list[int]:
        """Return that many limits for `within`, from about the best that is possible up to everything.

        In a chain of n equal values a limit of k of them holds ``k + (k - 1) + ... + 1`` values.
        """
        total = sum(self.late)
        narrow = sorted(c for c in self.crossing if c) or [1]
        least = max(1.0, math.sqrt(2 * total * narrow[len(narrow) // 4]))
        ratio = max(total / least, 1.0)
        return [int(least * ratio ** (k / count) ** 2) for k in range(count)]

    def within(self, limit: int) -> Splits:
        """Split into blocks of `limit` bytes, with what is kept before; each ends where least crosses."""
        splits = []
        start, kept, held = 0, 0, 0
        step = 0
        while step <= self.turn:
            held += self.late[step]
            if kept + held > limit and step > start:
                half = range((start + step) // 2, step)
                split = min(half, key=lambda s: (self.crossing[s], -s))
                splits.append(split)
                kept += self.crossing[split]
                start, held, step = split + 1, 0, split
            step += 1
        return tuple(splits)

    def order(self, splits: Sequence[int]) -> list[int]:
        """Return each step, and before those of the backward part what they want again.

        A value is kept if another block of the forward part reads it; nothing of the last block is dropped.
        """
        line = self.timeline
        dropped = self._dropped(splits)
        order = list(range(self.turn + 1))
        again = [step > self.turn for step in range(len(line))]
        for step in range(self.turn + 1, len(line)):
            wanted = [step]
            found = []
            while wanted:
                for value in line.reads[wanted.pop()]:
                    writer = line.writer[value]
                    if dropped[line.owner[value]] and not again[writer]:
                        again[writer] = True
                        wanted.append(writer)
                        found.append(writer)
            order += sorted(found)
            order.append(step)
        return order

    def _dropped(self, splits: Sequence[int]) -> list[bool]:
        """Return for each memory whether it is released when the forward part is over."""
        line = self.timeline
        dropped = [False] * len(line.owner)
        end = list(_ends(splits, self.turn + 1))
        for root, last in self.last_early.items():
            stays = end[line.writer[root]]
            dropped[root] = stays < self.turn and last <= stays and root not in line.returned
        return dropped


def _ends(splits: Sequence[int], count: int) -> Iterator[int]:
    """Yield for each step the last one of its block."""
    start = 0
    for split in (*splits, count - 1):
        yield from [split] * (split + 1 - start)
        start = split + 1


class _Genetic:
    """New sets of splits from good ones.

    Parameters
    ----------
    blocks : Blocks
    dice : random.Random
    size : int
        How many sets live, and how many are born in a round.
    """

    def __init__(self, blocks: Blocks, dice: random.Random, size: int) -> None:
        self.blocks, self.dice, self.size = blocks, dice, size
        crossing = blocks.crossing
        self.places = [s for s in range(len(crossing) - 1) if crossing[s] <= crossing[s + 1]] or [0]

    def children(self, known: dict[Splits, Worth]) -> list[Splits]:
        """Return the next round: pairs of the best are mixed along time, and one in two changes a little."""
        best = sorted(known, key=_by_worth(known))[: self.size]
        return list(dict.fromkeys(self._child(best) for _ in range(self.size)))

    def _child(self, best: Sequence[Splits]) -> Splits:
        early, late = self._parent(best), self._parent(best)
        middle = self.dice.randrange(self.blocks.turn + 1)
        child = {s for s in early if s < middle} | {s for s in late if s >= middle}
        if self.dice.random() < 0.5:
            self._change(child)
        return tuple(sorted(child))

    def _parent(self, best: Sequence[Splits]) -> Splits:
        """Return the better one of two."""
        return best[min(self.dice.randrange(len(best)) for _ in range(2))]

    def _change(self, splits: set[int]) -> None:
        """Drop one, add one, or both: move it."""
        kind = self.dice.choice(("drop", "add", "move"))
        if kind != "add" and splits:
            splits.remove(self.dice.choice(sorted(splits)))
        if kind != "drop":
            splits.add(self.dice.choice(self.places))
