"""Steps that begin something and wait for it later, as exchanges with other processes: their order.

What an op with a `begin` waits for takes no time where there is something else to compute. So the operands of
such steps come first, and their results are read last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..fusion import Step
from ..ir import Node
from ..ir.sizes import about
from .schedule import Call, begins

#: After a call that moves more bytes than this what is under way is given a chance to go on.
MOVED_BYTES = 1 << 16


def token_of(step: Step) -> Node | None:
    """Return the value that a step only comes after, without reading it: the ordered one before it."""
    (node, *_) = step.graph.outputs
    if not node.op.ordered or not node.inputs or node.inputs[-1] not in step.graph.inputs:
        return None
    last = step.reads[step.graph.inputs.index(node.inputs[-1])]
    return last if last.op.ordered else None


def operands_of(step: Step) -> Iterable[Node]:
    """Return the values that a step reads."""
    if token_of(step) is None:
        return step.reads
    return [value for value in step.outside.inputs[:-1] if value in step.reads]


def begun_early(steps: Sequence[Step]) -> Sequence[Step]:
    """Return the steps in another order: all that a step which begins something needs, then this, and so on.

    What is left reads results, or has nothing to do with them: the latter comes first, then what reads the
    result of the first, of the second and so on.
    """
    if not any(map(begins, steps)):
        return steps
    maker = {n: k for k, step in enumerate(steps) for n in step.writes}
    order: dict[int, None] = {}
    for k, step in enumerate(steps):
        if begins(step):
            _with_all_it_needs(k, steps, maker, order)
    waits: list[int] = []  # for each step, the last of those that it waits for, by their place; -1: for none
    place = {k: i for i, k in enumerate(order)}
    for step in steps:
        before = (maker[n] for n in step.reads if n in maker)
        waits.append(max((place[j] if begins(steps[j]) else waits[j] for j in before), default=-1))
    rest = (k for k in range(len(steps)) if k not in order)
    return [steps[k] for k in (*order, *sorted(rest, key=lambda k: waits[k]))]


def _with_all_it_needs(
    last: int, steps: Sequence[Step], maker: dict[Node, int], order: dict[int, None]
) -> None:
    needed, waiting = {last}, [last]
    while waiting:
        for n in steps[waiting.pop()].reads:
            k = maker.get(n)
            if k is not None and k not in order and k not in needed:
                needed.add(k)
                waiting.append(k)
    order.update(dict.fromkeys(sorted(needed)))


def moves_much(call: Call) -> bool:
    """Return whether a call takes so long that what is under way should be looked after."""
    return bool(about(sum(n.spec.nbytes for n in (*call.reads, *call.writes))) > MOVED_BYTES)


def parted(calls: Sequence[Call]) -> list[bool]:
    """Return after which calls something may be in flight that must be handled before the next one."""
    found, waits = [], False
    for call in calls:
        begun = any(map(begins, call.steps))
        found.append(begun or (waits and moves_much(call)))
        waits = waits or begun
    return found


class UnderWay(dict[Node, str]):
    """Operations that a program has started and not yet waited for, with the name of each."""

    def ends(self, nodes: Iterable[Node]) -> Iterator[tuple[Node, str]]:
        """Yield those of `nodes`, with what waits for them."""
        for node in [n for n in nodes if n in self]:
            yield node, f"{self.pop(node)}.finish()"

    def glance(self, call: Call) -> Iterator[str]:
        """Yield, after a call that moves much, a test that lets exchanges in flight go on."""
        if self and moves_much(call):
            yield f"{next(iter(self.values()))}.test()"
