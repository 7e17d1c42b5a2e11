"""Run early what frees more memory than it takes.

The order in which a graph was recorded keeps each gradient of a layer's output until the update of the
layer's parameters, at the end. Nothing but the order has to change for it to go at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from .timeline import Timeline


def early(timeline: Timeline, after: Mapping[int, frozenset[int]]) -> list[int]:
    """Return an order of all steps in which those that free memory come as soon as they can.

    No moment needs more than the most that the given order does, by the reckoning of `Timeline.live`.

    Parameters
    ----------
    timeline : Timeline
        In the order that is improved.
    after : mapping of int to frozenset of int
        For some steps others that must have run.

    Returns
    -------
    list of int
    """
    return _Early(timeline, after).order()


class _Early:
    """The state while steps are put in order."""

    def __init__(self, timeline: Timeline, after: Mapping[int, frozenset[int]]) -> None:
        self.timeline = timeline
        self.most = timeline.peak(range(len(timeline)))
        self.roots = [tuple(dict.fromkeys(timeline.owner[v] for v in values)) for values in timeline.reads]
        self.unread = [len(readers) for readers in timeline.readers]  # of each memory, the readers to come
        waits = [{timeline.writer[v] for v in values} for values in timeline.reads]
        for step, others in after.items():
            waits[step] |= others
        self.waits = [len(steps) for steps in waits]
        self.then: list[list[int]] = [[] for _ in range(len(timeline))]
        for step, steps in enumerate(waits):
            for other in steps:
                self.then[other].append(step)
        self.alive = 0
        self.done = [False] * len(timeline)
        self.found: list[int] = []

    def order(self) -> list[int]:
        """Return the steps as given, each followed by those that it lets free memory; constants first."""
        line = self.timeline
        for step in sorted(range(len(line)), key=lambda s: bool(line.writes[s])):
            if not self.done[step]:
                candidates = self.run(step)
                while candidates:
                    candidate = candidates.pop()
                    if self.is_worth(candidate):
                        candidates += self.run(candidate)
        return self.found

    def run(self, step: int) -> list[int]:
        """Run it; gives the steps for which something has changed, the first to be asked the last."""
        self.found.append(step)
        self.done[step] = True
        self.alive += self.takes(step) - self.frees(step)
        changed = list(self.then[step])
        for root in self.roots[step]:
            self.unread[root] -= 1
            if self.unread[root] == 1:
                changed += [r for r in self.timeline.readers[root] if not self.done[r]]
        for other in self.then[step]:
            self.waits[other] -= 1
        return sorted(set(changed), reverse=True)

    def is_worth(self, step: int) -> bool:
        """Return whether it can run, and is less alive when it has."""
        if self.done[step] or self.waits[step]:
            return False
        takes = self.takes(step)
        return takes < self.frees(step) and self.alive + takes <= self.most

    def takes(self, step: int) -> int:
        """Return the bytes that it writes."""
        return sum(self.timeline.nbytes[v] for v in self.timeline.writes[step])

    def frees(self, step: int) -> int:
        """Return the bytes that nobody else will read, its own results included that nobody reads at all."""
        line = self.timeline
        read = sum(line.nbytes[r] for r in self.roots[step] if self.unread[r] == 1 and r not in line.returned)
        idle = (v for v in line.writes[step] if not line.readers[v] and v not in line.returned)
        return read + sum(line.nbytes[v] for v in idle)
