"""Which steps run in one call, and the order of the calls."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType

from ..answers import answer, check_kernel
from ..backend import Backend, Kernel
from ..forking import cached_property
from ..fusion import Step
from ..ir import Kind, Node
from ..sizes import about

#: A step that moves more bytes than this is worth all threads and has a call of its own.
JOINED_BYTES = 1 << 20

#: Kinds of ops whose eager rule may give back its operand or a view of it.
_ALIASING = frozenset({Kind.LAYOUT, Kind.OPAQUE, Kind.LEAF})


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
        """Do its results come in memory that `kernel` has got?"""
        return self.kernel is not None and self.kernel.results is not None

    @cached_property
    def is_plain(self) -> bool:
        """Is it one kernel, which writes where it is told to?"""
        return self.kernel is not None and not self.hands_over and len(self.steps) == 1

    @cached_property
    def is_atomic(self) -> bool:
        """Is each result that it is given memory for untouched or whole, whatever ends it? A ufunc's is."""
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
    late = _late(steps, updates)
    steps, kernels = [steps[k] for k in late], [kernels[k] for k in late]
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
    """One kernel for all `steps`; None where the backend has none."""
    joined = answer(backend, "join", (Kernel, NoneType), kernels)
    if joined is None:
        return None
    ends = sum(len(step.reads) for step in steps), sum(len(step.writes) for step in steps)
    return check_kernel(backend, "join", joined, ends, ())


def _batches(steps: Sequence[Step], updates: Mapping[Node, Node], joins: bool) -> list[list[int]]:
    """The numbers of the steps, those together that may run at the same time and are small.

    A step joins the first batch of small steps that comes after all it waits for. In the latest one it would
    hold up those that wait for it: hundreds of pairs that wait for each other would be a batch each.
    """
    waits = _waits(steps, updates)
    batches: list[list[int]] = []
    place: list[int] = []  # of each step, its batch
    small: list[int] = []  # the batches of small steps
    for k, step in enumerate(steps):
        first = 1 + max((place[j] for j in waits[k]), default=-1)
        batch = len(batches)
        if joins and _is_small(step):
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
    """For each step the earlier ones whose results it reads or whose operands it replaces.

    What replaces an operand also waits for those that may fail: else it could not be written in place.
    """
    start, readers = _start(steps), _readers(steps)
    failing = {k for k, step in enumerate(steps) if may_fail(step)}
    waits = [{start[n] for n in step.reads if n in start} for step in steps]
    for new, old in updates.items():
        if new in start:
            waits[start[new]] |= {k for k in failing.union(readers.get(old, ())) if k < start[new]}
    return waits


def _late(steps: Sequence[Step], updates: Mapping[Node, Node]) -> list[int]:
    """The numbers of the steps, those that only replace inputs not before the last step that reads one."""
    start, readers = _start(steps), _readers(steps)
    unread = {k for k, step in enumerate(steps) if readers.keys().isdisjoint(step.writes)}
    after = list(range(len(steps)))
    for new, old in updates.items():
        k = start.get(new)
        if k in unread:
            after[k] = max((after[k], *readers.get(old, ())))
    return sorted(range(len(steps)), key=lambda k: (after[k], after[k] > k))


def _start(steps: Sequence[Step]) -> dict[Node, int]:
    return {n: k for k, step in enumerate(steps) for n in step.writes}


def _readers(steps: Sequence[Step]) -> dict[Node, set[int]]:
    """The steps that read each value, or a view of it."""
    readers: dict[Node, set[int]] = {}
    seen_through: dict[Node, set[Node]] = {}
    for k, step in enumerate(steps):
        owners = set(step.reads).union(*(seen_through.get(n, ()) for n in step.reads))
        for n in owners:
            readers.setdefault(n, set()).add(k)
        if may_alias(step):
            seen_through |= dict.fromkeys(step.writes, owners)
    return readers


def may_alias(step: Step) -> bool:
    """May the result of an eager step share memory with what it reads?"""
    return not step.fused and step.graph.outputs[0].op.kind in _ALIASING


def may_fail(step: Step) -> bool:
    """May the values it reads make a step raise, as indices do?"""
    return any(n.op.kind is Kind.OPAQUE for n in step.graph.nodes)


def _is_small(step: Step) -> bool:
    return step.fused and about(sum(n.spec.nbytes for n in (*step.reads, *step.writes))) <= JOINED_BYTES
