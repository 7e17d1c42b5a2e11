"""Nodes, graphs and plans for other lengths than those with which they were made."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..fusion import Step
from ..ir import Graph, Node, Spec
from ..ir.sizes import At, is_sized, plain
from .parts import Part
from .plan import MemoryPlan, Place
from .schedule import Call


def spec_at(spec: Spec, at: At) -> Spec:
    """Return the type with other lengths."""
    return Spec(at(spec.shape), spec.dtype, spec.device) if is_sized(spec.shape) else spec


def resized(node: Node, at: At) -> Node:
    """Return one application of an op; what it reads stays as it is."""
    return Node(node.op, node.inputs, at(dict(node.params)), spec_at(node.spec, at), node.source)


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of a graph on the way to a program.

    Attributes
    ----------
    recorded, simplified : Graph
    steps : tuple of Step
    calls : tuple of Call
    memory_plan : MemoryPlan
    """

    recorded: Graph
    simplified: Graph
    steps: tuple[Step, ...]
    calls: tuple[Call, ...]
    memory_plan: MemoryPlan


class Resizer:
    """Copies with other lengths; a node that several graphs share has one copy."""

    def __init__(self, at: At) -> None:
        self._at = at
        self._nodes: dict[Node, Node] = {}
        self._graphs: dict[Graph, Graph] = {}
        self._steps: dict[int, Step] = {}

    def node(self, node: Node) -> Node:
        """Return the copy of a node whose inputs are known, or has none.

        The node itself if nothing differs.
        """
        found = self._nodes.get(node)
        if found is None:
            inputs, new = tuple([self.node(i) for i in node.inputs]), resized(node, self._at)
            same = inputs == node.inputs and new.spec is node.spec and not is_sized(dict(node.params))
            found = node if same else Node(node.op, inputs, new.params, new.spec, node.source)
            self._nodes[node] = found
        return found

    def graph(self, graph: Graph) -> Graph:
        """Return the copy of a graph."""
        found = self._graphs.get(graph)
        if found is None:
            for node in (*graph.inputs, *graph.nodes):
                self.node(node)
            ends = (tuple(map(self.node, nodes)) for nodes in (graph.inputs, graph.outputs))
            found = self._graphs[graph] = Graph(*ends)
        return found

    def step(self, step: Step) -> Step:
        """Return the copy of a step; one for those that are the same."""
        found = self._steps.get(id(step))
        if found is None:
            reads, writes = (tuple(map(self.node, nodes)) for nodes in (step.reads, step.writes))
            found = replace(step, graph=self.graph(step.graph), reads=reads, writes=writes)
            self._steps[id(step)] = found
        return found

    def stages(self, stages: Stages) -> Stages:
        """Return the copy of all."""
        recorded, simplified = self.graph(stages.recorded), self.graph(stages.simplified)
        steps = tuple(map(self.step, stages.steps))
        calls = tuple(Call(tuple(map(self.step, call.steps)), call.kernel) for call in stages.calls)
        return Stages(recorded, simplified, steps, calls, self._plan(stages.memory_plan))

    def _plan(self, plan: MemoryPlan) -> MemoryPlan:
        offsets, nbytes = plan.packed(self._at)
        lies = dict(zip(plan.temporaries, offsets, strict=True))
        places = {
            self.node(n): Place(lies.get(n), place.update, self._part(place.part))
            for n, place in plan.places.items()
        }
        dropped = tuple(tuple(map(self.node, nodes)) for nodes in plan.dropped)
        intervals = {self.node(n): interval for n, interval in plan.intervals.items()}
        given = tuple(map(self.node, plan.given))
        copies = {self.node(n): numbers for n, numbers in plan.copies.items()}
        return MemoryPlan(places, nbytes, dropped, given, intervals, copies)

    def _part(self, part: Part | None) -> Part | None:
        if part is None:
            return None
        moves = tuple((op, self._at(dict(params))) for op, params in part.moves)
        return Part(self.node(part.whole), self._at(part.window), moves)


def plain_graph(graph: Graph) -> Graph:
    """Return `graph` with the lengths that its sizes have."""
    return Resizer(plain).graph(graph) if graph.sizes is not None else graph
