"""The schedule: which steps run in one call, and the order of the calls."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from types import NoneType

import numpy as np

from ..backends import Backend, Kernel
from ..backends.answers import answer, check_kernel
from ..fusion import Step
from ..ir import Graph, Kind, Node
from ..ir.dtypes import HALVES
from ..ir.sizes import about
from ..loops import LOOPS, RESULT
from ..ops.dot import DOT
from ..runtime import config, memory
from ..runtime.forking import cached_property

#: A step that moves more bytes than this is worth all threads and has a call of its own.
JOINED_BYTES = 1 << 20

#: Kinds of ops whose eager rule may give back its operand or a view of it.
_ALIASING = frozenset({Kind.LAYOUT, Kind.OPAQUE, Kind.GATHER, Kind.LEAF})

#: Kinds of ops that may refuse what they read.
_FALLIBLE = frozenset({Kind.OPAQUE, Kind.GATHER, Kind.SCATTER})


@dataclass(frozen=True, eq=False)
class Call:
    """Steps that run at the same time: a single one, or several whose kernels a backend has joined.

    Attributes
    ----------
    steps : tuple of Step
        Independent of each other, so that none writes what another one reads.
    kernel : Kernel or None
        What runs them all; None: the single step runs eagerly.
    """

    steps: tuple[Step, ...]
    kernel: Kernel | None

    @cached_property
    def hands_over(self) -> bool:
        """Return whether its results come in memory that `kernel` has got."""
        return self.kernel is not None and self.kernel.results is not None

    @cached_property
    def is_plain(self) -> bool:
        """Return whether it is one kernel of a backend, which writes where it is told to."""
        one = len(self.steps) == 1 and self.steps[0].fused
        return self.kernel is not None and not self.hands_over and one

    @cached_property
    def is_atomic(self) -> bool:
        """Return whether each result with given memory is untouched or whole, whatever ends it."""
        return self.kernel is None or self.kernel.atomic

    @cached_property
    def reads(self) -> tuple[Node, ...]:
        """The operands of `kernel`."""
        return tuple(n for step in self.steps for n in step.reads)

    @cached_property
    def writes(self) -> tuple[Node, ...]:
        """Its results."""
        return tuple(n for step in self.steps for n in step.writes)

    @cached_property
    def hazards(self) -> frozenset[tuple[Node, Node]] | None:
        """`Kernel.hazards`, as (operand, result)."""
        if self.kernel is None or self.kernel.hazards is None:
            return None
        return frozenset((self.reads[i], self.writes[j]) for i, j in self.kernel.hazards)


def schedule(
    steps: Sequence[Step],
    kernels: Sequence[Kernel | None],
    updates: Mapping[Node, Node],
    backend: Backend | None,
) -> tuple[Call, ...]:
    """Put steps into calls.

    Parameters
    ----------
    steps : sequence of Step
        Each after those it reads.
    kernels : sequence of Kernel or None
        One for each step.
    updates : mapping
        From results to the inputs that they replace: such a result is written after all that reads the
        input where that is possible, never beside it, or it could not be written in place.
    backend : Backend or None
        Whose kernels they are.

    Returns
    -------
    tuple of Call
    """
    order = _order(steps, updates)
    steps, kernels = [steps[k] for k in order], [kernels[k] for k in order]
    calls = []
    for batch in _batches(steps, updates, backend is not None and backend.traits.joins):
        members = tuple(steps[k] for k in batch)
        found = [kernel for k in batch if (kernel := kernels[k]) is not None]
        joined = _joined(members, found, backend) if backend is not None and len(batch) > 1 else None
        if joined is not None:
            calls.append(Call(members, joined))
        else:
            calls += [Call((steps[k],), kernels[k]) for k in batch]
    return tuple(calls)


def _joined(steps: Sequence[Step], kernels: Sequence[Kernel], backend: Backend) -> Kernel | None:
    """Return one kernel for all `steps`; None where the backend has none."""
    joined = answer(backend, "join", (Kernel, NoneType), kernels)
    if joined is None:
        return None
    ends = sum(len(step.reads) for step in steps), sum(len(step.writes) for step in steps)
    return check_kernel(backend, "join", joined, ends, ())


def _batches(steps: Sequence[Step], updates: Mapping[Node, Node], joins: bool) -> list[list[int]]:
    """Return the numbers of the steps, those together that may run at the same time and are small.

    A step joins the first batch of small steps that comes after all it waits for. In the latest one it would
    hold up those that wait for it: hundreds of pairs that wait for each other would be a batch each. What
    runs again does so behind all steps before it: what it computes is dropped until then.
    """
    waits, seen = _waits(steps, updates), set[Graph]()
    batches: list[list[int]] = []
    place: list[int] = []  # of each step, its batch
    small: list[int] = []  # the batches of small steps
    for k, step in enumerate(steps):
        first = 1 + max((place[j] for j in waits[k]), default=-1)
        batch, is_again = len(batches), step.graph in seen
        seen.add(step.graph)
        if joins and _is_small(step) and not is_again:
            found = bisect_left(small, first)
            if found < len(small):
                batch = small[found]
            else:
                small.append(batch)
        if batch == len(batches):
            batches.append([])
        batches[batch].append(k)
        place.append(batch)
    return batches


def _waits(steps: Sequence[Step], updates: Mapping[Node, Node]) -> list[set[int]]:
    """Return for each step the earlier ones whose results it reads or whose operands it replaces.

    What replaces an operand also waits for those that may fail: else it could not be written in place. What
    reads something that is begun waits for all that are begun before.
    """
    start, readers = _start(steps), _readers(steps)
    begun = {k for k, step in enumerate(steps) if begins(step)}
    failing = {k for k, step in enumerate(steps) if may_fail(step)}
    waits = [{start[n] for n in step.reads if n in start} for step in steps]
    for k, found in enumerate(waits):
        if not begun.isdisjoint(found) and k not in begun:  # it was put behind all that is begun before
            found |= {j for j in begun if j < k}
    for new, old in updates.items():
        if new in start:
            waits[start[new]] |= {k for k in failing.union(readers.get(old, ())) if k < start[new]}
    return waits


def _order(steps: Sequence[Step], updates: Mapping[Node, Node]) -> list[int]:
    """Return the numbers of the steps.

    Views of inputs come first, so that nothing small waits for them; what only replaces inputs not before the
    last step that reads one.
    """
    start, readers = _start(steps), _readers(steps)
    unread = {k for k, step in enumerate(steps) if readers.keys().isdisjoint(step.writes)}
    after = list(range(len(steps)))
    for at, step in enumerate(steps):
        if _is_view(step) and all(n not in start or after[start[n]] < 0 for n in step.reads):
            after[at] = -1
    for new, old in updates.items():
        k = start.get(new)
        if k in unread:
            after[k] = max((after[k], *readers.get(old, ())))
    order = sorted(range(len(steps)), key=lambda k: (after[k], after[k] > k))
    return _overwriting_last(steps, order, readers)


def _overwriting_last(steps: Sequence[Step], order: list[int], readers: Mapping[Node, set[int]]) -> list[int]:
    """Return `order` with steps that may take an operand's memory after others that read it, if possible."""
    old = {k: n for k in order if (n := overwritten(steps[k])) is not None}
    if not old:
        return order
    left = {n: len(readers[n]) for n in old.values()}  # readers that are still to come
    watched: dict[int, list[Node]] = {}
    for n in left:
        for k in readers[n]:
            watched.setdefault(k, []).append(n)
    start, place = _start(steps), {k: at for at, k in enumerate(order)}
    waits = [{start[n] for n in step.reads if n in start} for step in steps]
    following: dict[int, list[int]] = {}
    for k, before in enumerate(waits):
        for j in before:
            following.setdefault(j, []).append(k)
    missing = [len(before) for before in waits]
    ready = [(False, place[k], k) for k in order if not missing[k]]
    heapify(ready)
    found = list[int]()
    while ready:
        late, at, k = heappop(ready)
        if not late and k in old and left[old[k]] > 1:  # the last reader brings it back
            heappush(ready, (True, at, k))
            continue
        found.append(k)
        for n in watched.get(k, ()):
            left[n] -= 1
            if left[n] == 1:
                ready = [(late and old.get(j) is not n, at, j) for late, at, j in ready]
                heapify(ready)
        for j in following.get(k, ()):
            missing[j] -= 1
            if not missing[j]:
                heappush(ready, (False, place[j], j))
    return found


def overwritten(step: Step) -> Node | None:
    """Return the operand that the result of `step` is, but for a window."""
    node = step.graph.outputs[0]
    if step.fused or node.op.parts is None:
        return None
    windows = node.op.parts(*(i.spec.shape for i in node.inputs), **node.params)
    old = step.outside.inputs[windows.index(None)] if None in windows else None
    return old if old in step.reads else None


def _start(steps: Sequence[Step]) -> dict[Node, int]:
    return {n: k for k, step in enumerate(steps) for n in step.writes}


def _readers(steps: Sequence[Step]) -> dict[Node, set[int]]:
    """Return the steps that read each value, or a view of it."""
    readers: dict[Node, set[int]] = {}
    seen_through: dict[Node, set[Node]] = {}
    for k, step in enumerate(steps):
        owners = set(step.reads).union(*(seen_through.get(n, ()) for n in step.reads))
        for n in owners:
            readers.setdefault(n, set()).add(k)
        if may_alias(step):
            seen_through |= dict.fromkeys(step.writes, owners)
    return readers


def is_given_memory(call: Call) -> bool:
    """Return whether a call gets memory to write to: kernels do, and ufuncs where arrays are large."""
    if call.kernel is not None or call.steps[0].fused:
        return call.kernel is not None and not call.hands_over
    return all(about(n.spec.nbytes) >= memory.SMALL for n in call.writes) and _is_ufunc(call.steps[0])


def _is_ufunc(step: Step) -> bool:
    node = step.graph.outputs[0]
    exact = all(n.spec.dtype not in HALVES for n in (node, *node.inputs))
    return isinstance(node.op.eager, np.ufunc) and exact


def may_alias(step: Step) -> bool:
    """Return whether the result of an eager step may share memory with what it reads."""
    op = step.graph.outputs[0].op
    return not step.fused and not is_loop(step) and op.kind in _ALIASING and op.parts is None


def is_loop(step: Step) -> bool:
    """Return whether it runs graphs of its own, and writes where it is told to."""
    return step.graph.outputs[0].op is RESULT and step.graph.outputs[0].inputs[0].op in LOOPS


def _is_view(step: Step) -> bool:
    return not step.fused and bool(step.reads) and step.graph.outputs[0].op.moves is not None


def may_fail(step: Step) -> bool:
    """Return whether the values that it reads may make a step raise, as indices do."""
    fallible = (n.op.kind in _FALLIBLE and n.op.name != DOT for n in step.graph.nodes)
    return any(fallible)


def begins(step: Step) -> bool:
    """Return whether it is a step that is begun, and waited for where its result is read."""
    (node, *_) = step.graph.outputs
    return not step.fused and node.op.begin is not None and config.DISTRIBUTED_OVERLAP.on()


def _is_small(step: Step) -> bool:
    return step.fused and about(sum(n.spec.nbytes for n in (*step.reads, *step.writes))) <= JOINED_BYTES
