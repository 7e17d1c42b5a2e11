"""The peak memory of a program, and the bytes that planning and rematerialization save."""

from __future__ import annotations

from dataclasses import dataclass

from ...fusion import Step
from ...ir import Graph, Node
from ...runtime.forking import cached_property
from ..packing import aligned
from ..plan import MemoryPlan, Place
from ..program import Program
from ..schedule import Call
from .timeline import timeline_of


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """The bytes of a call, what it is given apart.

    Attributes
    ----------
    inputs : int
        What the caller holds: parameters, states, arguments.
    apart : int
        The call's own bytes if each result had memory of its own until the end.
    planned : int
        The most that the call holds at a time, when each step runs once.
    peak : int
        The most that it holds: less than `planned` where steps run again.
    steps, again : int
        How many steps there are, and how many runs of them are repetitions.
    """

    inputs: int
    apart: int
    planned: int
    peak: int
    steps: int
    again: int

    def __str__(self) -> str:
        return (
            f"peak {self.apart} bytes without planning, {self.planned} planned, "
            f"{self.peak} after rematerialisation; inputs {self.inputs} bytes apart\n"
            f"{self.again} of {self.steps} steps run again"
        )


@dataclass(frozen=True, eq=False)
class Arrangement:
    """Steps as they will run.

    Attributes
    ----------
    graph : Graph
        The whole program.
    steps : tuple of Step
    calls : tuple of Call
    plan : MemoryPlan
    """

    graph: Graph
    steps: tuple[Step, ...]
    calls: tuple[Call, ...]
    plan: MemoryPlan

    @cached_property
    def peak(self) -> int:
        """The most bytes that a call of the program holds at a time, its inputs apart.

        The arena is there from the first call to the last, results that are returned from the call that
        writes them, those of eager rules from then to their last reader. A result that may replace an input
        is taken to do so. What an eager rule or a library needs inside is not known.
        """
        steps = [step for call in self.calls for step in call.steps]
        timeline = timeline_of(steps, self.graph, self._bytes_outside)
        return self.plan.arena_bytes + timeline.peak(range(len(steps)))

    def _bytes_outside(self, node: Node) -> int:
        """Return the bytes that a value needs outside of the arena and of the inputs."""
        return aligned(node.spec.nbytes) if self.plan.places.get(node, Place()) == Place() else 0


def memory_report(program: Program) -> MemoryReport:
    """Return the memory that a program needs, with and without its plan and its recomputation."""
    graph = program.simplified
    peak = Arrangement(graph, program.steps, program.calls, program.memory_plan).peak
    once = {step.graph: step for step in reversed(program.steps)}  # a repetition runs the graph of the first
    first = list(reversed(once.values()))
    apart = timeline_of(first, graph, lambda node: aligned(node.spec.nbytes))
    return MemoryReport(
        inputs=sum(spec.nbytes for spec in program.inputs),
        apart=sum(apart.nbytes),
        planned=peak if program.planned_bytes is None else program.planned_bytes,
        peak=peak,
        steps=len(first),
        again=len(program.steps) - len(first),
    )
