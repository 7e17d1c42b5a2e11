"""Cheap values are computed again by the kernels that read them, instead of being stored by their maker.

A normalisation's gradient reads the deviations ``x - mean`` and the normalised values. The forward kernel
would write each of them in full; the backward kernel gets them from `x`, which is stored anyway, and a few
numbers for each row. What counts is traffic with memory: a value is recomputed where that moves fewer bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..backends import Scope, Traits
from ..ir import Graph, Kind, Node
from ..ir.sizes import about, same_shape
from ..ops.look_up import tables_of
from .legality import bare
from .products import holds_product
from .step import Step, is_copied, make_step

#: A value that takes more ops than this is stored.
LONGEST = 8


def recompute(graph: Graph, steps: Sequence[Step], traits: Traits) -> list[Step]:
    """Move the computation of cheap values into the steps that read them, where that saves memory traffic.

    Parameters
    ----------
    graph : Graph
        The whole program.
    steps : sequence of Step
        What `detect` made of it, in the order in which they run.
    traits : Traits
        Of the backend that is to compile the groups; one that takes any set of nodes decides for itself.

    Returns
    -------
    list of Step
        In the same order; a step that nobody reads any more is left out.
    """
    if traits.scope is Scope.GRAPH:
        return list(steps)
    plan = _Plan(graph, steps, traits)
    for node in graph.nodes:
        if plan.is_stored_by_kernel(node):
            plan.consider(node)
    return plan.steps()


class _Plan:
    """The steps that compute, read and write each value, while they change."""

    def __init__(self, graph: Graph, steps: Sequence[Step], traits: Traits) -> None:
        self.graph, self.given, self.traits = graph, steps, traits
        self.outputs = frozenset(graph.outputs)
        self.reads = [set(step.reads) for step in steps]
        self.writes = [set(step.writes) for step in steps]
        self.members = [_between(step) for step in steps]
        # A product keeps its kernel as it was cut: it could be left with nothing around it.
        self.changes = [step.fused and not holds_product(step.graph.nodes) for step in steps]
        self.maker = {n: place for place, nodes in enumerate(self.members) for n in nodes}
        self.readers: dict[Node, list[int]] = {}
        for place, step in enumerate(steps):
            for node in step.reads:
                self.readers.setdefault(node, []).append(place)

    def is_stored_by_kernel(self, node: Node) -> bool:
        """Return whether `node` is written by a kernel, for other steps only, all of which may change."""
        maker = self.maker.get(node)
        if maker is None or node in self.outputs or node not in self.writes[maker]:
            return False
        if any(r.op.kind is Kind.GATHER for r in self.graph.readers[node]):
            return False
        return self.changes[maker] and all(self.changes[r] for r in self.readers.get(node, ()))

    def consider(self, value: Node) -> None:
        """Have the readers of `value` compute it, if that moves fewer bytes."""
        found = self._chain(value)
        if found is None:
            return
        chain, leaves = found
        readers = self.readers.get(value, [])
        new = {r: leaves - self.reads[r] for r in readers}
        cost = sum(leaf.spec.nbytes for wanted in new.values() for leaf in wanted)
        if about(cost - value.spec.nbytes * (1 + len(readers))) >= 0:
            return
        if all(self._fits(value, r, new[r]) for r in readers):
            self._move(value, chain, leaves)

    def _chain(self, value: Node) -> tuple[set[Node], set[Node]] | None:
        """Return the ops that make `value` of values which are stored, or may be, and those values."""
        chain: set[Node] = set()
        leaves: set[Node] = set()
        waiting = [value]
        while waiting:
            node = waiting.pop()
            if (
                node.op.kind is not Kind.ELEMENTWISE
                or not node.op.cheap
                or not same_shape(node.spec.shape, value.spec.shape)
            ):
                return None
            chain.add(node)
            if len(chain) > LONGEST:
                return None
            for operand in node.inputs:
                if is_copied(operand) or operand in chain:
                    continue
                if self._is_stored(operand) or self._is_row(operand):
                    leaves.add(operand)
                else:
                    waiting.append(operand)
        return chain, leaves

    def _is_stored(self, node: Node) -> bool:
        maker = self.maker.get(node)
        return maker is None or node in self.writes[maker]

    def _is_row(self, node: Node) -> bool:
        """Return whether the kernel of `node` may write it, since its reductions leave that shape."""
        folds = (n for n in self.members[self.maker[node]] if n.op.kind is Kind.REDUCE)
        return any(same_shape(n.spec.shape, node.spec.shape) for n in folds)

    def _fits(self, value: Node, reader: int, new: set[Node]) -> bool:
        """Return whether a reader loops over the shape of `value`, and has room for `new` inputs."""
        nodes = self.members[reader] | self.reads[reader]
        nodes -= {table for n in nodes if n.op.kind is Kind.GATHER for table in tables_of(n)}
        nodes = {n for n in nodes if n.op.kind is not Kind.SCATTER}
        largest = max(nodes, key=lambda n: n.spec.size).spec.shape
        room = self.traits.max_inputs + 1 - len(self.reads[reader])
        return bare(largest) == bare(value.spec.shape) and len(new) <= room

    def _move(self, value: Node, chain: set[Node], leaves: set[Node]) -> None:
        for leaf in leaves:
            if leaf in self.maker:
                self.writes[self.maker[leaf]].add(leaf)
        for reader in self.readers.pop(value, []):
            self.members[reader] |= chain
            self.reads[reader] = (self.reads[reader] | leaves) - chain
            for leaf in leaves:
                places = self.readers.setdefault(leaf, [])
                if reader not in places:
                    places.append(reader)
        self.writes[self.maker[value]].discard(value)

    def steps(self) -> list[Step]:
        """Return the steps as they are now."""
        order = {node: place for place, node in enumerate(self.graph.nodes)}
        made = []
        for place, step in enumerate(self.given):
            same = self.writes[place] == set(step.writes) and self.reads[place] == set(step.reads)
            if same or not step.fused:
                made.append(step)
            elif self.writes[place]:
                needed = _upstream(self.writes[place], self.members[place].__contains__)
                members = sorted(needed, key=order.__getitem__)
                made.append(make_step(members, self.writes[place], True, step.reason))
        return made


def _between(step: Step) -> set[Node]:
    """Return the nodes that a step computes, as they stand in the whole graph."""
    reads, writes = set(step.reads), set(step.writes)
    return _upstream(writes, lambda n: n not in reads and (n in writes or not is_copied(n)))


def _upstream(ends: Iterable[Node], belongs: Callable[[Node], bool]) -> set[Node]:
    """Return `ends` and what they depend on, as far as it belongs."""
    found: set[Node] = set()
    waiting = list(ends)
    while waiting:
        node = waiting.pop()
        if node not in found and belongs(node):
            found.add(node)
            waiting += node.inputs
    return found
