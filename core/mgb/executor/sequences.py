"""Calls in a row that a backend makes as one: kernels, views of their operands, copies into windows.

Between two small kernels Python takes longer than the kernels do. Where each operand lies, in which array, is
known before a program runs; the arrays themselves come with the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from ..backends import Backend, Kernel, Strided, Traits, Turn
from ..fusion import NUMBER, Step
from ..fusion.legality import accepts
from ..ir import CONST, Kind, Node
from ..ir.sizes import At, about, same_shape
from ..ops.layout import BROADCAST_TO, RESHAPE, SLICE, TRANSPOSE
from ..runtime import memory
from ..runtime.device import is_gpu
from .overlap import parted
from .plan import MemoryPlan
from .schedule import Call, may_fail, overwritten
from .views import lying, view_strides

#: Ops whose results are views, whatever their operands are.
_VIEWS = frozenset({BROADCAST_TO, SLICE, TRANSPOSE})

#: Ops that give what is there before the program runs.
_GIVEN = frozenset({CONST, NUMBER})

#: So many calls, views among them, are worth it.
SHORTEST = 2

#: So many kernels and assignments are a long program.
MANY = 8

#: Kinds of ops that can be a kernel alone.
_PRINTED = frozenset({Kind.ELEMENTWISE, Kind.REDUCE})

#: What stands for an array: a value for that of a call, a number for what is made of these.
Slot = Node | int


@dataclass(frozen=True, slots=True)
class View:
    """A view: what a function makes of an array."""

    rule: Callable[[At], Callable[[Any], Any]]
    of: Slot
    to: int


@dataclass(frozen=True, slots=True)
class Act:
    """A kernel on its inputs and outputs, or a copy from one array to another."""

    kernel: Kernel | None
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The contents of a sequence: ``layout(arrays)`` gives its turns, see `Backend.sequence`.

    Attributes
    ----------
    entries : tuple
        In their order.
    arrays : tuple of Node
        Those of a call.
    at : callable
        Its lengths.
    """

    entries: tuple[View | Act, ...]
    arrays: tuple[Node, ...]
    at: At

    def __call__(self, arrays: Sequence[Any]) -> list[Turn]:
        held: dict[Slot, Any] = dict(zip(self.arrays, arrays, strict=True))
        bases: dict[Slot, int] = {n: k for k, n in enumerate(self.arrays)}
        turns = []
        for entry in self.entries:
            if isinstance(entry, View):
                held[entry.to] = entry.rule(self.at)(held[entry.of])
                bases[entry.to] = bases[entry.of]
            else:
                operands = tuple(held[s] for s in entry.slots)
                places = tuple(bases[s] for s in entry.slots)
                turns.append(Turn(entry.kernel, (operands,), (0,) * len(operands), bases=places))
        return turns


def in_rows(steps: tuple[Step, ...], traits: Traits) -> tuple[Step, ...]:
    """Return `steps`; where many kernels and assignments follow each other, an op alone is a kernel too."""
    many = sum(step.fused or overwritten(step) is not None for step in steps) >= MANY
    if not traits.sequences or not many:
        return steps
    return tuple(replace(step, fused=True, reason="") if _is_alone(step, traits) else step for step in steps)


def _is_alone(step: Step, traits: Traits) -> bool:
    """Return whether a step that runs eagerly is one op that the backend prints."""
    nodes = [n for n in step.graph.nodes if n.op not in _GIVEN]
    kinds = {n.op.kind for n in nodes}
    return len(nodes) == 1 and kinds <= _PRINTED and not step.fused and accepts(traits, nodes[0]) is None


def sequences(
    calls: Sequence[Call], plan: MemoryPlan, backend: Backend | None, is_sized: bool
) -> list[tuple[bool, range]]:
    """Cut calls into those that may be made as one, for which True is said, and others, by their numbers.

    None goes on where memory is freed, or something is in flight that must be handled.
    """
    found: list[tuple[bool, range]] = []
    cutter, in_flight = _Cutter(plan, backend, is_sized), parted(calls)
    begin, made, before = 0, set[Node](), False
    for k, call in enumerate(calls):
        fits = cutter.fits(call)
        ends = k > 0 and (in_flight[k - 1] or cutter.frees(k - 1, made))
        if k > begin and (fits != before or (fits and ends)):
            found.append((before, range(begin, k)))
            begin, made = k, set()
        made.update(call.writes)
        before = fits
    return [*found, (before, range(begin, len(calls)))]


@dataclass
class _Cutter:
    """Says which calls fit, one after the other."""

    plan: MemoryPlan
    backend: Backend | None
    is_sized: bool
    windows: set[Node] = field(default_factory=set)  # what lies in a window of a larger value

    def __post_init__(self) -> None:
        traits = self.backend.traits if self.backend is not None else None
        self.serves = traits is not None and traits.sequences and traits.strided is Strided.ANY

    def frees(self, k: int, made: Set[Node]) -> bool:
        """Return whether much memory is free behind call `k` that is not of what is `made` by a sequence."""
        dropped = (n for n in self.plan.dropped[k] if n not in made and n.op.moves is None)
        return any(about(n.spec.nbytes) >= memory.SMALL for n in dropped)

    def fits(self, call: Call) -> bool:
        """Return whether a call can be part of a sequence."""
        places = [(n, self.plan.places[n].part) for n in call.writes if n in self.plan.places]
        self.windows |= {n for n, part in places if part and (part.window or part.whole in self.windows)}
        on_cpu = not any(is_gpu(n.spec.device) or 0 in n.spec.shape for n in (*call.reads, *call.writes))
        if not self.serves or not on_cpu:
            return False
        if call.kernel is not None:
            apart = call.hands_over or any(not s.fused or may_fail(s) for s in call.steps)
            return not apart and not (self.is_sized and call.kernel.at is not None)
        if call.writes[0] in self.plan.copies:
            return not self.is_sized
        return all(n.op in _VIEWS or self.is_view(n, call) for n in computed(call))

    def is_view(self, node: Node, call: Call) -> bool:
        """Return whether a reshape makes a view, however its operand lies in calls to come."""
        if node.op is not RESHAPE or not call.reads:
            return False
        old, new = ([d for d in n.spec.shape if d != 1] for n in (node.inputs[0], node))
        if same_shape(tuple(old), tuple(new)):
            return True
        operand, places = call.reads[0], self.plan.places
        while operand.op.moves is not None and operand not in places:
            operand = operand.inputs[0]
        is_known = operand in places and operand not in self.windows
        return is_known and view_strides(node, lying(call.reads[0])) is not None


def computed(call: Call) -> list[Node]:
    """Return what an eager step does, but for what is there before the program runs."""
    return [n for n in call.steps[0].graph.nodes if n.op not in _GIVEN]
