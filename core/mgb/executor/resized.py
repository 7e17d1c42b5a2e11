"""Nodes, graphs and plans for other lengths than those with which they were made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..fusion import Step
from ..ir import Graph, Node, Spec
from ..sizes import At, Size, Sizes, is_sized, plain
from .plan import MemoryPlan, Place
from .schedule import Call


def spec_at(spec: Spec, at: At) -> Spec:
    """The type with other lengths."""
    return Spec(at(spec.shape), spec.dtype, spec.device) if is_sized(spec.shape) else spec


def resized(node: Node, at: At) -> Node:
    """One application of an op; what it reads stays as it is."""
    return Node(node.op, node.inputs, at(dict(node.params)), spec_at(node.spec, at), node.source)


def sizes_of(graph: Graph) -> Sizes | None:
    """Of the lengths that are followed in a graph; None where they are plain."""
    nodes = (*graph.inputs, *graph.nodes)
    lengths: Iterator[Any] = (d for n in nodes for d in n.spec.shape)
    return next((d.follower for d in lengths if type(d) is Size), None)


@dataclass(frozen=True, slots=True)
class Stages:
    """What became of a graph on the way to a program.

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
        """The copy of a node whose inputs are known, or has none; the node itself if nothing differs."""
        found = self._nodes.get(node)
        if found is None:
            inputs, new = tuple([self.node(i) for i in node.inputs]), resized(node, self._at)
            same = inputs == node.inputs and new.spec is node.spec and not is_sized(dict(node.params))
            found = node if same else Node(node.op, inputs, new.params, new.spec, node.source)
            self._nodes[node] = found
        return found

    def graph(self, graph: Graph) -> Graph:
        """The copy of a graph."""
        found = self._graphs.get(graph)
        if found is None:
            for node in (*graph.inputs, *graph.nodes):
                self.node(node)
            ends = (tuple(map(self.node, nodes)) for nodes in (graph.inputs, graph.outputs))
            found = self._graphs[graph] = Graph(*ends)
        return found

    def step(self, step: Step) -> Step:
        """The copy of a step; one for those that are the same."""
        found = self._steps.get(id(step))
        if found is None:
            reads, writes = (tuple(map(self.node, nodes)) for nodes in (step.reads, step.writes))
            found = replace(step, graph=self.graph(step.graph), reads=reads, writes=writes)
            self._steps[id(step)] = found
        return found

    def stages(self, stages: Stages) -> Stages:
        """The copy of all."""
        recorded, simplified = self.graph(stages.recorded), self.graph(stages.simplified)
        steps = tuple(map(self.step, stages.steps))
        calls = tuple(Call(tuple(map(self.step, call.steps)), call.kernel) for call in stages.calls)
        return Stages(recorded, simplified, steps, calls, self._plan(stages.memory_plan))

    def _plan(self, plan: MemoryPlan) -> MemoryPlan:
        offsets, nbytes = plan.packed(self._at)
        lies = dict(zip(plan.temporaries, offsets, strict=True))
        places = {self.node(n): Place(lies.get(n), place.update) for n, place in plan.places.items()}
        dropped = tuple(tuple(map(self.node, nodes)) for nodes in plan.dropped)
        intervals = {self.node(n): interval for n, interval in plan.intervals.items()}
        given = tuple(map(self.node, plan.given))
        return MemoryPlan(places, nbytes, dropped, given, intervals)


def plain_graph(graph: Graph) -> Graph:
    """`graph` with the lengths that its sizes have."""
    return Resizer(plain).graph(graph) if sizes_of(graph) is not None else graph
