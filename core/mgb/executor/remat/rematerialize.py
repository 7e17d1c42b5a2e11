"""Run some steps again, so that their results need not be kept: time for memory.

To compute a value again is to run its step again: the same kernel on the same values gives the same bits, and
random numbers are a function of their seed and draw. Steps are first put in an order that frees early
(`early`), then `checkpoint` or `dynamic` says which of them run again, and when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...errors import MemoryBudgetError
from ...fusion import Step
from ...ir import Node
from ..packing import aligned
from .checkpoint import checkpointed
from .dynamic import TooSmallError, evicting
from .early import early
from .memory_config import DTRConfig, SublinearMemoryConfig
from .peak import Arrangement
from .timeline import Timeline, steps_in, timeline_of

#: How often a budget is lowered because of what the arena loses between its values.
_TRIES = 8

#: Halvings of the interval in which the smallest budget lies.
_HALVINGS = 12

#: The method is played with these shares of the power of staleness, and the cheapest order is taken: with the
#: whole of it, a checkpoint of a chain may go because it was not used for long, just before it is wanted.
_STALENESS = (1.0, 0.5, 0.25)


#: Schedules steps and plans their memory.
Arrange = Callable[[Sequence[Step]], Arrangement]


def rematerialize(
    plain: Arrangement,
    updates: Mapping[Node, Node],
    config: SublinearMemoryConfig | DTRConfig,
    arrange: Arrange,
) -> Arrangement:
    """Choose what to compute again.

    Parameters
    ----------
    plain : Arrangement
        Where each step runs once.
    updates : mapping of Node to Node
        From results to the inputs that they replace.
    config : SublinearMemoryConfig or DTRConfig
        The method, and how little memory is enough.
    arrange : callable
        Arranges the steps that are found, so that they are judged by what they really need.

    Returns
    -------
    Arrangement
        Each result is the same, bit by bit.

    Raises
    ------
    MemoryBudgetError
        The threshold of a `DTRConfig` cannot be met.
    """
    enough = config.eviction_threshold if isinstance(config, DTRConfig) else config.lb_memory_mb << 20
    if plain.peak <= enough:
        return plain
    search = _Search(plain, updates, arrange)
    if search.base.peak <= enough:
        return search.base
    if isinstance(config, DTRConfig):
        return search.within(config)
    found = search.arranged(checkpointed(search.timeline, config))
    return min(found, search.base, key=_peak)


class _Search:
    """The steps in an order that frees early, and what can be made of them."""

    def __init__(self, plain: Arrangement, updates: Mapping[Node, Node], arrange: Arrange) -> None:
        self.graph, self._arrange = plain.graph, arrange
        in_place = frozenset(n for n, place in plain.plan.places.items() if place.update is not None)

        def nbytes(node: Node) -> int:
            return 0 if node in in_place else aligned(node.spec.nbytes)

        order = early(timeline_of(plain.steps, plain.graph, nbytes), _waits(plain.steps, updates))
        self.steps = steps_in(plain.steps, order, plain.graph)
        self.timeline = timeline_of(self.steps, plain.graph, nbytes)
        self.base = min(plain, arrange(self.steps), key=_peak)

    def arranged(self, order: Sequence[int]) -> Arrangement:
        """Return the steps in `order`."""
        return self._arrange(steps_in(self.steps, order, self.graph))

    def within(self, config: DTRConfig) -> Arrangement:
        """Return an arrangement within the threshold of `config` that recomputes little, or None."""
        threshold = budget = config.eviction_threshold
        for _ in range(_TRIES):
            found = self.dropping(config, budget)
            if found is None:
                break
            if found.peak <= threshold:
                return found
            budget = min(budget * threshold // found.peak, budget - budget // 64)
        others = self.halving(config)
        fitting = [a for a in others if a.peak <= threshold]
        if fitting:
            return min(fitting, key=lambda a: len(a.steps))
        raise MemoryBudgetError(threshold, min(map(_peak, others)))

    def halving(self, config: DTRConfig) -> list[Arrangement]:
        """List arrangements found by bisection for the smallest budget: the same for every threshold."""
        tried = [self.base]
        low, high = 0, self.base.peak
        for _ in range(_HALVINGS):
            middle = (low + high) // 2
            found = self.dropping(config, middle)
            if found is None:
                low = middle
            else:
                high = middle
                tried.append(found)
        return tried

    def dropping(self, config: DTRConfig, budget: int) -> Arrangement | None:
        """Return the cheapest order that the method finds for `budget`; None: it finds none."""
        powers = dict.fromkeys(config.recomp_time_factor * share for share in _STALENESS)
        orders = [o for power in powers if (o := _played(self.timeline, config, power, budget)) is not None]
        return self.arranged(min(orders, key=self.timeline.extra)) if orders else None


def _peak(arrangement: Arrangement) -> int:
    return arrangement.peak


def _played(line: Timeline, config: DTRConfig, power: float, budget: int) -> list[int] | None:
    try:
        return evicting(line, replace(config, recomp_time_factor=power), budget)
    except TooSmallError:
        return None


def _waits(steps: Sequence[Step], updates: Mapping[Node, Node]) -> dict[int, frozenset[int]]:
    """Map steps that replace inputs to the earlier ones that read one: only then may they write in place."""
    start = {n: k for k, step in enumerate(steps) for n in step.writes}
    readers: dict[Node, set[int]] = {}
    for k, step in enumerate(steps):
        for n in step.reads:
            readers.setdefault(n, set()).add(k)
    waits: dict[int, frozenset[int]] = {}
    for new, old in updates.items():
        at = start.get(new, -1)
        waits[at] = waits.get(at, frozenset()) | {k for k in readers.get(old, ()) if k < at}
    waits.pop(-1, None)
    return waits
