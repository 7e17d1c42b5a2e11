"""A cache of the sequences that ended, and of the plans that compute their results."""

from __future__ import annotations

from collections import OrderedDict

from .link import Link
from .plan import SequencePlan

#: The most links that end sequences, and the most ops on the paths to them; an op on several paths counts for
#: each. An op takes about a kilobyte.
_MOST_ENDS, _MOST_OPS = 256, 1 << 16

#: The most sets of living results that have a plan each; beyond, one plan computes the results of all.
_MOST_PLANS = 4


def plan_for(link: Link, needed: frozenset[int]) -> SequencePlan:
    """Return the plan that computes the results `needed` of the sequence that ends with `link`."""
    found: SequencePlan | None = link.plans.get(needed)
    if found is not None:
        return found
    if link.has_merged_plans or len(link.plans) == _MOST_PLANS:
        return _merge_plans(link, needed)
    link.plans[needed] = new = SequencePlan(link.sequence(), needed)
    return new


def _merge_plans(link: Link, needed: frozenset[int]) -> SequencePlan:
    """Replace all plans by one that computes every result which was alive at some end.

    With cyclic garbage, for example, the set of living results is another one each time.
    """
    link.has_merged_plans = True
    known: SequencePlan
    for outputs, known in link.plans.items():
        if needed <= outputs and len(link.plans) == 1:
            return known
    outputs = needed.union(*link.plans)
    new = SequencePlan(link.sequence(), outputs)
    link.plans = {outputs: new}
    return new


class SequenceCache:
    """The links where sequences ended. The least recently used are removed together with their paths."""

    def __init__(self) -> None:
        self._links: OrderedDict[Link, None] = OrderedDict()
        self._ops = 0

    def __len__(self) -> int:
        return len(self._links)

    def touch(self, link: Link) -> None:
        """Mark `link` as the end of the latest sequence. No sequence may be in progress."""
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
    """Remove the end `link`, and the path to it as far as it leads nowhere else."""
    link.plans = {}
    while link.parent is not None and not link.children and not link.plans:
        parent = link.parent
        parent.remove(link)
        link = parent
