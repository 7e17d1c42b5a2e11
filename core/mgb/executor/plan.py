"""The memory plan: where each result of a step is stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..backends import Backend
from ..fusion import Step
from ..ir import Graph, Kind, Node
from ..ir.sizes import plain
from ..passes.rewrite import stretches
from .packing import aligned, pack
from .parts import Part, Parts, find_parts
from .schedule import Call, is_given_memory, may_alias, may_fail, schedule

_IN_DOMAIN = frozenset({Kind.ELEMENTWISE, Kind.REDUCE, Kind.LEAF})


@dataclass(frozen=True, slots=True)
class Place:
    """Where a result is written; a fresh array, if nothing else is said.

    Attributes
    ----------
    offset : int or None
        Here in the arena that the temporaries of a call share.
    update : int or None
        Over the memory of this input, in those calls where nobody else holds it. It may be that of a result
        whose kernel has got memory for it otherwise.
    part : Part or None
        In the memory of a larger value.
    """

    offset: int | None = None
    update: int | None = None
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The memory of one call.

    Attributes
    ----------
    places : mapping
        For each value that a step is given memory for, and those that may replace an input.
    arena_bytes : int
        The size of the arena.
    dropped : tuple of tuple of Node
        For each call, the values that eager rules made and that nothing reads any more.
    given : tuple of Node
        The values that a step is given memory for.
    intervals : mapping
        For each value in the arena, the first and the last call that needs it.
    copies : mapping
        For values that others are written into, the numbers of the operands that are copied: see `Parts`.
    """

    places: Mapping[Node, Place]
    arena_bytes: int
    dropped: tuple[tuple[Node, ...], ...]
    given: tuple[Node, ...]
    intervals: Mapping[Node, tuple[int, int]]
    copies: Mapping[Node, tuple[int, ...]]

    @property
    def bytes_before(self) -> int:
        """The bytes that `given` would need if each value had memory of its own."""
        return sum(aligned(plain(n.spec.nbytes)) for n in self.given)

    @property
    def bytes_after(self) -> int:
        """The bytes that the plan needs."""
        apart = (n for n, place in self.places.items() if place == Place())
        return self.arena_bytes + sum(aligned(plain(n.spec.nbytes)) for n in apart)

    @property
    def temporaries(self) -> tuple[Node, ...]:
        """The values in the arena."""
        return tuple(self.intervals)

    @property
    def updates(self) -> frozenset[int]:
        """The inputs that some result may be written over."""
        return frozenset(place.update for place in self.places.values() if place.update is not None)

    def packed(self, at: Callable[[Any], Any]) -> tuple[list[int], int]:
        """Return where `temporaries` lie in the arena for other lengths, and how large that is."""
        specs = ((interval, n.spec) for n, interval in self.intervals.items())
        return pack([(*i, math.prod(at(spec.shape)) * spec.dtype.itemsize) for i, spec in specs])

    def __str__(self) -> str:
        updated = sum(p.update is not None for p in self.places.values())
        return (
            f"memory: {self.bytes_before} bytes before planning, {self.bytes_after} after; "
            f"arena {self.arena_bytes}, {updated} of {len(self.places)} results may replace an input in place"
        )


def plan_memory(
    graph: Graph, calls: Sequence[Call], updates: Mapping[int, int], backend: Backend | None = None
) -> MemoryPlan:
    """Plan the memory of a program.

    Parameters
    ----------
    graph : Graph
        The whole program.
    calls : sequence of Call
        In the order in which they run; each is one moment, whose steps may run in any order.
    updates : mapping
        From positions in ``graph.outputs`` to the positions in ``graph.inputs`` that they replace.
    backend : Backend, optional
        One whose kernels may be told to write into larger values.

    Returns
    -------
    MemoryPlan
    """
    parts = find_parts(calls, backend, frozenset(graph.outputs))
    lives = _Lives(graph, calls, parts)
    given = [n for call in calls for n in call.writes if n in parts.copies or is_given_memory(call)]
    places = {n: Place(part=parts.places.get(n)) for n in given}
    home = device_of(graph)  # where the arena is
    temporary = [
        n for n in given if n not in parts.places and lives.ends(n) < len(calls) and n.spec.device == home
    ]
    intervals = {n: (lives.start[n], lives.ends(n)) for n in temporary}
    offsets, arena_bytes = pack([(*interval, plain(n.spec.nbytes)) for n, interval in intervals.items()])
    places |= {n: Place(offset=offset) for n, offset in zip(temporary, offsets, strict=True)}
    allowed = {call.writes[o]: call.reads[i] for call in calls for o, i in replaced_by(call)}
    taken = set()
    for output, position in updates.items():
        old, new = graph.inputs[position], graph.outputs[output]
        if position in taken or new in parts.copies:
            continue
        handed = allowed.get(new) is old and lives.may_take(old, new)
        if handed or (places.get(new) == Place() and lives.may_overwrite(old, new)):
            places[new] = Place(update=position)
            taken.add(position)
    return MemoryPlan(places, arena_bytes, lives.dropped(), tuple(given), intervals, parts.copies)


def device_of(graph: Graph) -> str:
    """Return the device of a program: that of its first output."""
    nodes = (*graph.outputs, *graph.inputs)
    return nodes[0].spec.device if nodes else "xpux:0"


def replaced_by(call: Call) -> tuple[tuple[int, int], ...]:
    """Return the results of a kernel that may take an operand's memory, each with that operand, by number."""
    return call.kernel.replaces if call.kernel is not None else ()


def replacements(
    graph: Graph, steps: Sequence[Step], updates: Mapping[int, int]
) -> dict[Graph, tuple[tuple[int, int], ...]]:
    """Find outputs that may reuse the memory of an operand, for kernels with buffers of their own.

    Parameters
    ----------
    graph : Graph
        The whole program.
    steps : sequence of Step
        Each after those that it reads; none runs again.
    updates : mapping
        As for `plan_memory`.

    Returns
    -------
    dict
        By the graph of a step: the numbers of an output and of the input whose memory it may take.
    """
    updated = {graph.outputs[o]: graph.inputs[i] for o, i in updates.items()}
    lives = _Lives(graph, schedule(steps, [None] * len(steps), updated, None), Parts())
    found: dict[Graph, dict[int, int]] = {}
    for new, old in updated.items():
        step = lives.step.get(new)
        if step is not None and step.fused and old in step.reads and lives.may_take(old, new):
            pairs = found.setdefault(step.graph, {})
            pairs.setdefault(step.reads.index(old), step.writes.index(new))
    return {group: tuple((o, i) for i, o in sorted(pairs.items())) for group, pairs in found.items()}


class _Lives:
    """When each value is written and last read, views of it included."""

    def __init__(self, graph: Graph, calls: Sequence[Call], parts: Parts) -> None:
        self.graph, self.calls, self.taken = graph, calls, parts.taken
        self.start = {n: k for k, call in enumerate(calls) for n in call.writes}
        for n in parts.places:
            root = parts.root(n)
            self.start[root] = min(self.start[root], self.start[n])
        self.memory_of = {n: frozenset({n}) for n in graph.inputs}  # of inputs and of planned values
        for call in calls:
            operands = [self._memory_of(n) for n in call.reads] if may_alias(call.steps[0]) else []
            for n in call.writes:
                own = frozenset({parts.root(n)} if n in parts.copies or is_given_memory(call) else ())
                self.memory_of[n] = own.union(*operands)
        steps = [step for call in calls for step in call.steps]
        self.step = {n: step for step in steps for n in step.writes}
        self.inner = {  # by a step and a value of the program: what stands for the value in the step's graph
            (id(step), outer): inner
            for step in steps
            for outer, inner in zip((*step.reads, *step.writes), (*step.graph.inputs, *step.graph.outputs))
        }
        self.readers: dict[Node, list[int]] = {}  # the calls, in order, once for each operand
        for k, call in enumerate(calls):
            for n in call.reads:
                for owner in self._memory_of(n):
                    self.readers.setdefault(owner, []).append(k)
        self.last_to_fail = max((k for k, call in enumerate(calls) if _may_fail(call)), default=-1)
        self.returned = frozenset(o for n in graph.outputs for o in self._memory_of(n))

    def _memory_of(self, node: Node) -> frozenset[Node]:
        return self.memory_of.get(node, frozenset())

    def ends(self, owner: Node) -> int:
        """Return the last call that needs the memory of `owner`.

        One past the last call when it is returned.
        """
        if owner in self.returned:
            return len(self.calls)
        readers = self.readers.get(owner)
        return readers[-1] if readers else self.start[owner]

    def dropped(self) -> tuple[tuple[Node, ...], ...]:
        """Return for each call the eager results that no later one reads."""
        last = {n: k for k, call in enumerate(self.calls) for n in (*call.writes, *call.reads)}
        eager = {n for c in self.calls if not is_given_memory(c) for n in c.writes}
        eager = eager.difference(self.graph.outputs, self.taken)
        return tuple(
            tuple(n for n in dict.fromkeys((*c.reads, *c.writes)) if n in eager and last[n] == k)
            for k, c in enumerate(self.calls)
        )

    def may_take(self, old: Node, new: Node) -> bool:
        """Return whether a call that reads `old` may give its memory to `new`. No view has a later reader."""
        if (old.spec.shape, old.spec.dtype) != (new.spec.shape, new.spec.dtype) or old in self.returned:
            return False
        at, readers = self.start[new], self.readers.get(old, [])
        return self.last_to_fail <= at and bool(readers) and readers[-1] == at and readers[-2:-1] != [at]

    def may_overwrite(self, old: Node, new: Node) -> bool:
        """Return whether the input `old`, views included, is not read after `new` is written over it."""
        if (old.spec.shape, old.spec.dtype) != (new.spec.shape, new.spec.dtype) or old in self.returned:
            return False
        at, step, readers = self.start[new], self.step[new], self.readers.get(old, [])
        if self.last_to_fail >= at or (readers and readers[-1] > at) or not self.calls[at].is_atomic:
            return False
        if not readers or readers[-1] < at:
            return True
        source, target = self.inner.get((id(step), old)), self.inner[id(step), new]
        if readers[-2:-1] == [at] or source is None:  # read twice, or a view of it
            return False
        hazards = self.calls[at].hazards
        if hazards is not None:
            return (old, new) not in hazards
        return not step.fused or reads_in_place(step.graph, source, target)


def _may_fail(call: Call) -> bool:
    """Return whether the values that it reads may make a call raise. Then no input may have changed yet."""
    return any(map(may_fail, call.steps))


def reads_in_place(group: Graph, old: Node, new: Node) -> bool:
    """Return whether a kernel for `group` has read each element of `old` before it writes `new` there.

    So it is when `old` is read by element-wise nodes of its own, full shape, and when `group` has one pass.
    With reductions it has several, and a later pass could read what an earlier one wrote: then `old` may lead
    to `new` alone. What has nothing to do with `old` may have any shape.
    """
    nodes = group.nodes
    if any(
        n.op.kind not in _IN_DOMAIN or not stretches(n.spec.shape, old.spec.shape)
        for n in _around(group, old, new)
    ):
        return False
    if any(r.op.kind is not Kind.ELEMENTWISE or r.spec.shape != old.spec.shape for r in group.readers[old]):
        return False
    folds = [n for n in nodes if n.op.kind is Kind.REDUCE]
    if not folds:
        return True
    reached = {old}
    for node in nodes:
        if not reached.isdisjoint(node.inputs):
            reached.add(node)
    return reached.isdisjoint(folds) and reached.isdisjoint(set(group.outputs) - {new})


def _around(group: Graph, *nodes: Node) -> set[Node]:
    """Return the nodes of `group` that these lead to, and all that those are computed with, from and for."""
    around, waiting = set(nodes), list(nodes)
    while waiting:
        node = waiting.pop()
        # An operand with other readers does not tie them together.
        is_operand = node.op.kind is Kind.LEAF and node not in nodes
        for n in (*node.inputs, *(() if is_operand else group.readers[node])):
            if n not in around:
                around.add(n)
                waiting.append(n)
    return around
