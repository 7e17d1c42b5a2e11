"""A Step: a Graph with its place in the run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..ir import CONST, Graph, Node, input_node
from ..ops.primitives import IOTA
from ..tensor.libraries import Rule


@dataclass(frozen=True, slots=True)
class Step:
    """Run `graph` on the values of `reads`; its outputs are the values of `writes`.

    Attributes
    ----------
    graph : Graph
        With inputs of its own; constants and iotas are copied into it.
    reads, writes : tuple of Node
        Of the whole graph, in the order of ``graph.inputs`` and ``graph.outputs``.
    fused : bool
        True: `graph` is for a backend. False: it holds one op, run eagerly.
    backend : str or None
        The backend that compiles it, once that is settled.
    reason : str
        In words: why it is not fused, or why the group ends where it does.
    """

    graph: Graph
    reads: tuple[Node, ...]
    writes: tuple[Node, ...]
    fused: bool
    backend: str | None = None
    reason: str = ""

    @property
    def outside(self) -> Node:
        """The op of a step of one op, on values of the whole graph and on the constants that the step has."""
        (node, *_), outer = self.graph.outputs, dict(zip(self.graph.inputs, self.reads, strict=True))
        return Node(node.op, tuple(outer.get(i, i) for i in node.inputs), node.params, node.spec, node.source)

    @property
    def by(self) -> str:
        """The executor of the step: the backend, or for an opaque op ``"library"`` or ``"eager"`` (NumPy)."""
        if self.backend is not None:
            return self.backend
        is_library = len(self.graph.outputs) == 1 and isinstance(self.graph.outputs[0].op.eager, Rule)
        return "library" if is_library else "eager"


def is_copied(node: Node, below: int = 2) -> bool:
    """Return whether each step that reads `node` makes it: iotas and constants of so few elements."""
    return node.op is IOTA or (node.op is CONST and 0 < node.spec.size < below)


def make_step(
    members: Sequence[Node], writes: Collection[Node], fused: bool, reason: str, below: int = 2
) -> Step:
    """Return the step that computes `members`, given in order, and leaves the values of `writes`.

    Constants of fewer than `below` elements are part of it; larger ones are read.
    """
    inside = set(members)
    operands = dict.fromkeys(i for n in members for i in n.inputs if i not in inside)
    reads = tuple(i for i in operands if not is_copied(i, below))
    copy = {i: i if is_copied(i, below) else input_node(i.spec, i.source) for i in operands}
    for node in members:
        copy[node] = Node(node.op, tuple(copy[i] for i in node.inputs), node.params, node.spec, node.source)
    wanted = frozenset(writes)
    left = tuple(n for n in members if n in wanted)
    graph = Graph(tuple(copy[i] for i in reads), tuple(copy[w] for w in left))
    return Step(graph, reads, left, fused, None, reason)
