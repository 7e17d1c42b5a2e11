"""Steps as numbers, for passes that ask when a step runs and not what it computes.

An *order* is a list of the numbers of steps. A step that stands in it a second time runs again, and whoever
reads its results from then on reads the new ones: so no order can read a value that was dropped, and what an
order is worth follows from it alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...fusion import NUMBER, Step
from ...ir import CONST, Graph, Kind, Node
from ...passes.cost import operations
from ...runtime.forking import cached_property
from ..views import view_strides

#: What a step is taken to cost, in nanoseconds: the call, each byte, each multiplication and addition.
#: Only ratios matter, so a processor of a few cores stands for all.
_CALL, _BYTE, _FLOP = 1000.0, 0.1, 0.02


@dataclass(frozen=True, eq=False)
class Timeline:
    """The reads and writes of each step, by number; inputs and constants are left out.

    Attributes
    ----------
    reads, writes : tuple of tuple of int
        For each step, its values; a value is written after it was first numbered and before it is read.
    owner : tuple of int
        For each value the one in whose memory it lies: itself, unless it is a view.
    nbytes : tuple of int
        For each value the size of its own memory: 0 for a view.
    cost : tuple of float
        For each step an estimate of its time, in nanoseconds.
    returned : frozenset of int
        The values whose memory leaves the program, or stays for another reason.
    """

    reads: tuple[tuple[int, ...], ...]
    writes: tuple[tuple[int, ...], ...]
    owner: tuple[int, ...]
    nbytes: tuple[int, ...]
    cost: tuple[float, ...]
    returned: frozenset[int]

    def __len__(self) -> int:
        return len(self.reads)

    @cached_property
    def writer(self) -> tuple[int, ...]:
        """The step that writes each value."""
        writer = [0] * len(self.owner)
        for step, values in enumerate(self.writes):
            for value in values:
                writer[value] = step
        return tuple(writer)

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """For each owner of memory the steps that read it, in order; views count for their owner."""
        readers: list[list[int]] = [[] for _ in self.owner]
        for step, values in enumerate(self.reads):
            for root in dict.fromkeys(self.owner[v] for v in values):
                readers[root].append(step)
        return tuple(map(tuple, readers))

    def live(self, order: Sequence[int]) -> list[int]:
        """Return the live bytes during each step of `order`, including its results."""
        memory: list[int] = [-1] * len(self.owner)  # of each value, the last run's
        start: list[int] = []
        end: list[int] = []
        nbytes: list[int] = []
        for place, step in enumerate(order):
            for value in self.reads[step]:
                end[memory[value]] = place
            for value in self.writes[step]:
                if self.owner[value] == value:
                    found = len(start)
                    start.append(place)
                    end.append(place)
                    nbytes.append(self.nbytes[value])
                else:
                    found = next(memory[v] for v in self.reads[step] if self.owner[v] == self.owner[value])
                if memory[value] < 0 or value not in self.returned:
                    memory[value] = found
        for value in self.returned:
            end[memory[value]] = len(order) - 1
        change = [0] * (len(order) + 1)
        for first, last, size in zip(start, end, nbytes, strict=True):
            change[first] += size
            change[last + 1] -= size
        alive, total = [], 0
        for difference in change[:-1]:
            total += difference
            alive.append(total)
        return alive

    def peak(self, order: Sequence[int]) -> int:
        """Return the most bytes that are alive at a time."""
        return max(self.live(order), default=0)

    def extra(self, order: Sequence[int]) -> float:
        """Return the cost of the steps that run again."""
        return math.fsum(self.cost[step] for step in order) - math.fsum(self.cost)


def _bytes_of(node: Node) -> int:
    return node.spec.nbytes


def timeline_of(steps: Sequence[Step], graph: Graph, nbytes: Callable[[Node], int] = _bytes_of) -> Timeline:
    """Return the timeline of the steps of `graph`; what is not a view is taken to be row-major.

    Parameters
    ----------
    steps : sequence of Step
        Each after those it reads.
    graph : Graph
        The whole program.
    nbytes : callable
        The size of what a value has for its own.

    Returns
    -------
    Timeline
    """
    number: dict[Node, int] = {}
    owner: list[int] = []
    sizes: list[int] = []
    reads, writes = [], []
    views = _views(steps)
    for step, view in zip(steps, views, strict=True):
        known = tuple(number[n] for n in dict.fromkeys(step.reads) if n in number)
        written = () if _is_bound(step) else step.writes
        for node in written:
            number[node] = len(owner)
            owner.append(owner[known[0]] if view and known else len(owner))
            sizes.append(0 if view else nbytes(node))
        reads.append(known)
        writes.append(tuple(number[n] for n in written))
    once = {n for step in steps for n in step.writes if n.op.ordered}  # never dropped, so never made again
    left = {number[n] for n in once.union(graph.outputs) if n in number}
    returned = frozenset(left | {owner[v] for v in left})
    costs = tuple(_cost(step, view) for step, view in zip(steps, views, strict=True))
    return Timeline(tuple(reads), tuple(writes), tuple(owner), tuple(sizes), costs, returned)


def steps_in(steps: Sequence[Step], order: Sequence[int], graph: Graph) -> tuple[Step, ...]:
    """Return `steps` in `order`; those that run again write new values, which later readers read.

    The new values of what `graph` returns are read by nobody.
    """
    returned = frozenset(graph.outputs)
    current: dict[Node, Node] = {}
    done: set[int] = set()
    found = []
    for number in order:
        step = steps[number]
        reads = tuple(current.get(n, n) for n in step.reads)
        if number in done:
            step = replace(step, writes=tuple(map(_anew, step.writes)), reason="computed again")
            pairs = zip(steps[number].writes, step.writes, strict=True)
            current |= {old: new for old, new in pairs if old not in returned}
        done.add(number)
        found.append(step if reads == step.reads else replace(step, reads=reads))
    return tuple(found)


def _anew(node: Node) -> Node:
    return Node(node.op, node.inputs, node.params, node.spec, node.source)


def _is_bound(step: Step) -> bool:
    """Return whether it is a constant, which the program has before it runs."""
    return not step.fused and step.graph.outputs[0].op in (CONST, NUMBER)


def _views(steps: Sequence[Step]) -> tuple[bool, ...]:
    """Return for each step whether it makes a view of its operand."""
    strides: dict[Node, tuple[int, ...]] = {}  # of views
    found = []
    for step in steps:
        view = None
        if not step.fused:
            operand = strides.get(step.reads[0]) if step.reads else None
            view = view_strides(step.graph.outputs[0], operand)
        if view is not None:
            strides[step.writes[0]] = view
        found.append(view is not None)
    return tuple(found)


def _cost(step: Step, view: bool) -> float:
    moved = sum(n.spec.nbytes for n in (*step.reads, *step.writes))
    if _is_bound(step) or view:
        return _CALL
    return _CALL + _BYTE * moved + _FLOP * sum(operations(n) for n in step.graph.nodes if _computes(n))


def _computes(node: Node) -> bool:
    """Return whether what it computes counts beside what it moves."""
    return node.op.kind is Kind.CONTRACT or node.op.cost is not None
