"""What is remembered of deferred ops: where sequences ended, and how their results are computed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from .ending import Ending
from .link import Link

#: At most so many links may end sequences, and so many ops may lie on the ways to them, those shared by
#: several counted for each. An op takes about a kilobyte.
_MOST_ENDS, _MOST_OPS = 256, 1 << 16

#: Sets of living results that one end tells apart; beyond, it computes what any of them needs.
_SETS = 4


def ending_at(link: Link, wanted: frozenset[int]) -> Ending:
    """How to compute the results `wanted` of the sequence that ends with `link`."""
    found: Ending | None = link.endings.get(wanted)
    if found is not None:
        return found
    if link.varied or len(link.endings) == _SETS:
        return _common_ending(link, wanted)
    link.endings[wanted] = new = Ending(link.sequence(), wanted)
    return new


def _common_ending(link: Link, wanted: frozenset[int]) -> Ending:
    """One for every set there was: what lives on is another thing each time, as with cyclic garbage."""
    link.varied = True
    known: Ending
    for outputs, known in link.endings.items():
        if wanted <= outputs and len(link.endings) == 1:
            return known
    outputs = wanted.union(*link.endings)
    new = Ending(link.sequence(), outputs)
    link.endings = {outputs: new}
    return new


class Ends:
    """The links where sequences ended, the latest used last; the oldest are forgotten with their ways."""

    def __init__(self) -> None:
        self._links: OrderedDict[Link, None] = OrderedDict()
        self._ops = 0

    def __len__(self) -> int:
        return len(self._links)

    def used(self, link: Link) -> None:
        """A sequence has ended at `link`, and nothing follows any now."""
        if link in self._links:
            self._links.move_to_end(link)
            return
        self._links[link] = None
        self._ops += link.index + 1
        while len(self._links) > _MOST_ENDS or (self._ops > _MOST_OPS and len(self._links) > 1):
            oldest, _ = self._links.popitem(last=False)
            self._ops -= oldest.index + 1
            _forget(oldest)


def _forget(link: Link) -> None:
    """Remove the end `link`, and the way to it as far as it leads nowhere else."""
    link.endings = {}
    while link.parent is not None and not link.children and not link.endings:
        parent = link.parent
        parent.remove(link)
        link = parent


def crossing(sequence: Sequence[Link]) -> list[int]:
    """For each gap between two ops: the bytes that are made before it and read after it."""
    last = list(range(len(sequence)))
    for link in sequence:
        for ref in link.args:
            if isinstance(ref, int) and ref >= 0:
                last[ref] = link.index
    change = [0] * (len(sequence) + 1)
    for link in sequence:
        assert link.spec is not None
        change[link.index + 1] += link.spec.nbytes
        change[last[link.index] + 1] -= link.spec.nbytes
    total, held = 0, []
    for step in change:
        total += step
        held.append(total)
    return held
