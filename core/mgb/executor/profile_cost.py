"""What a call moves and computes, by its graph alone: the ruler that a measured time is held against."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..ir import Graph, Kind, Node
from ..ops.declare import OPS
from ..passes.decompose import decompose
from .schedule import Call

#: Distinct ops that the name of a call shows.
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Cost:
    """A call, described.

    Attributes
    ----------
    name : str
        Short, for people.
    by : str
        Who runs it: a backend, or ``"eager"``.
    ops : tuple of str
        The names of its ops, constants left out.
    sources : tuple of str
        The user's lines that they come from, or for what a rewrite has put there, its operands.
    reads, writes : tuple of str
        The types of its operands and results.
    bytes_read, bytes_written : int
        Each operand and each result once; of what is indexed or gathered from, as much as is taken. An op
        that only changes the layout, run eagerly, has none: most of them make a view.
    flops : int
        An estimate: an element-wise op is one operation an element, ``exp`` like ``add``; a reduction one for
        each element that it folds; a product of matrices and a convolution two for each pair; what only
        moves elements none; anything else one for each element it reads.
    """

    name: str
    by: str
    ops: tuple[str, ...]
    sources: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    bytes_read: int
    bytes_written: int
    flops: int

    @property
    def nbytes(self) -> int:
        """Read and written."""
        return self.bytes_read + self.bytes_written


def cost_of(call: Call) -> Cost:
    """The `Cost` of a call."""
    nodes = [n for step in call.steps for n in step.graph.nodes if n.op.kind is not Kind.LEAF]
    moves = call.kernel is not None or any(n.op.kind is not Kind.LAYOUT for n in nodes)
    picks = [n.op.name for n in nodes] in _PICKS
    read = (*call.writes, *call.reads[1:]) if picks else call.reads
    ops = tuple(n.op.name for n in nodes)
    return Cost(
        _name(ops),
        next((s.backend for s in call.steps if s.backend is not None), "eager"),
        ops,
        _sources(nodes) or _sources(call.reads),
        tuple(str(n.spec) for n in call.reads),
        tuple(str(n.spec) for n in call.writes),
        sum(n.spec.nbytes for n in read) if moves else 0,
        sum(n.spec.nbytes for n in call.writes) if moves else 0,
        sum(flops(step.graph) for step in call.steps),
    )


def _sources(nodes: Iterable[Node]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n.source for n in nodes if n.source))


def _name(ops: tuple[str, ...]) -> str:
    distinct = tuple(dict.fromkeys(ops))
    return "+".join(distinct[:_SHOWN]) + "+..." * (len(distinct) > _SHOWN)


def flops(graph: Graph) -> int:
    """About how many operations on numbers a graph is; see `Cost`."""
    own = {n.op.name for n in graph.nodes if n.op.is_primitive}
    return sum(map(operations, decompose(graph, own | _words()).nodes))


def _words() -> set[str]:
    """Ops that count as one: primitives, and ``exp`` and the like, which have eager code of their own."""
    one = (op for op in OPS.values() if op.is_primitive or (op.eager and op.kind is not Kind.CONTRACT))
    return {op.name for op in one}


def operations(node: Node) -> int:
    """About how many operations on numbers one node is; see `Cost`."""
    if node.op.name in _PAIRS:
        return 2 * _PAIRS[node.op.name](node)
    if node.op.name in _MOVING:
        return 0
    if node.op.kind is Kind.ELEMENTWISE:
        return node.spec.size
    if node.op.kind in (Kind.REDUCE, Kind.OPAQUE):
        return max((i.spec.size for i in node.inputs), default=0)
    return 0


def _matmul_pairs(node: Node) -> int:
    shape = node.inputs[0].spec.shape
    return node.spec.size * shape[-2 if node.params.get("transpose_a") else -1]


def _window_pairs(images: Callable[[Node], Node], weights: Callable[[Node], Node]) -> Callable[[Node], int]:
    """Each element of the convolved images meets the weights of one output channel."""

    def pairs(node: Node) -> int:
        return images(node).spec.size * math.prod(weights(node).spec.shape[1:])

    return pairs


#: They read of their first operand what they give.
_PICKS = (["index_get"], ["gather"])

#: They move elements, or read none, though their kinds say otherwise.
_MOVING = frozenset(["index_get", "index_set", "slice_set", "gather", "scatter", "transfer", "extent"])

#: How often two numbers are multiplied, for the ops in which that is the work.
_PAIRS: dict[str, Callable[[Node], int]] = {
    "matmul": _matmul_pairs,
    "conv2d": _window_pairs(lambda n: n, lambda n: n.inputs[1]),
    "conv2d_grad_input": _window_pairs(lambda n: n.inputs[0], lambda n: n.inputs[1]),
    "conv2d_grad_weight": _window_pairs(lambda n: n.inputs[0], lambda n: n),
}
