"""The passes of a group with reductions, as plain data for any printer.

A *row* is one setting of the axes that are not reduced, with everything along those that are. A value that
does not vary along a reduced axis is a *row value*: there is one for each row. All others are *full*. Softmax
over the last axis has the passes

| pass | reads | computes | folds | stores |
| --- | --- | --- | --- | --- |
| 0 | x | | reduce_max | |
| 1 | x | x - max, exp | reduce_sum | |
| 2 | exp, from the buffer | exp / sum | | exp / sum |

A group without reductions has one pass, and all its values are full.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..ir import CONST, Graph, Kind, Node
from ..ops.reduce import EXTENT
from .domain import Shape, domain, reduced_axes, spans, values

#: A value that a later pass needs is kept in a buffer when making it again takes this many ops.
KEEP_OPS = 4

Nodes = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Pass:
    """One loop over the row, and what follows it.

    Attributes
    ----------
    reads : tuple of Node
        Full operands whose elements are loaded: inputs, ``iota`` and constants of more than one element.
    restores : tuple of Node
        Full values that an earlier pass kept.
    computes : tuple of Node
        Full values computed in the loop, in order.
    keeps : tuple of Node
        Which values of this pass to keep for a later one.
    stores : tuple of Node
        Full outputs to write.
    folds : tuple of Node
        Reductions to carry through the loop; the element of each is the value of ``node.inputs[0]``.
    after : tuple of Node
        Row values that can be computed once the folds are complete, in order.
    """

    reads: Nodes
    restores: Nodes
    computes: Nodes
    keeps: Nodes
    stores: Nodes
    folds: Nodes
    after: Nodes


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a group is computed.

    Attributes
    ----------
    shape : tuple of int
        The domain.
    reduced : tuple of int
        The reduced axes of the domain whose length is not 1.
    row_reads : tuple of Node
        Operands that are row values.
    before : tuple of Node
        Row values that need no pass, in order. A reduction among the row values, here or in ``after``, folds
        one element: it is its operand. An ``extent`` is the number of elements of a row, and reads nothing.
    passes : tuple of Pass
    row_stores : tuple of Node
        Outputs that are row values, to be written after the last pass.
    """

    shape: Shape
    reduced: tuple[int, ...]
    row_reads: Nodes
    before: Nodes
    passes: tuple[Pass, ...]
    row_stores: Nodes


def is_operand(node: Node) -> bool:
    """Whether a loop loads `node` instead of computing it; a constant of one element is neither."""
    return node.op.kind is Kind.LEAF and not (node.op is CONST and node.spec.size == 1)


def schedule(graph: Graph, keep_ops: int = KEEP_OPS) -> Schedule:
    """The passes of `graph`, a group of one domain.

    Parameters
    ----------
    graph : Graph
    keep_ops : int, optional
        A value that a later pass needs is kept when making it again takes this many ops or more.

    Raises
    ------
    GraphError
        It is no such group, see `domain` and `reduced_axes`.
    """
    facts = _Facts(graph)
    ends = [facts.ends(k) for k in range(facts.count)]
    kept = _kept(facts, ends, keep_ops)
    passes, ready = [], frozenset[Node]()
    for k in range(facts.count):
        passes.append(_pass(facts, k, ends[k], kept, ready))
        ready |= frozenset(passes[-1].keeps)
    return Schedule(
        shape=domain(graph),
        reduced=facts.reduced,
        row_reads=tuple(v for v in facts.needed if v not in facts.full and is_operand(v)),
        before=facts.rows(0),
        passes=tuple(passes),
        row_stores=tuple(v for v in facts.outputs if v not in facts.full),
    )


def _pass(facts: _Facts, k: int, ends: Nodes, kept: frozenset[Node], ready: frozenset[Node]) -> Pass:
    cone = facts.cone(ends, ready)
    return Pass(
        reads=tuple(v for v in cone if is_operand(v)),
        restores=tuple(v for v in cone if v in ready),
        computes=tuple(v for v in cone if v not in ready and not is_operand(v)),
        keeps=tuple(v for v in cone if v in kept and v not in ready),
        stores=facts.stores(k),
        folds=facts.folds(k),
        after=facts.rows(k + 1),
    )


def _kept(facts: _Facts, ends: list[Nodes], keep_ops: int) -> frozenset[Node]:
    """The dear values that one pass makes and a new value of a later pass reads."""
    first: dict[Node, int] = {}
    for k, end in enumerate(ends):
        for v in facts.cone(end):
            first.setdefault(v, k)
    wanted = {i for v in first for i in v.inputs if facts.reads(v) and first.get(i, first[v]) < first[v]}
    return frozenset(v for v in wanted if facts.cost(v) >= keep_ops)


class _Facts:
    """What the passes of one graph are made from."""

    def __init__(self, graph: Graph) -> None:
        span = spans(graph)
        self.outputs = tuple(dict.fromkeys(graph.outputs))
        self.reduced = reduced_axes(graph)
        self.full = {v for v in span if not self.reduced or any(span[v][a] for a in self.reduced)}
        self.order = values(graph)
        self.level: dict[Node, int] = {}
        for v in self.order:
            below = max((self.level[i] for i in v.inputs if self.reads(v)), default=0)
            self.level[v] = below + self.is_fold(v)
        self.needed = self._needed()
        last = [self.level[v] for v in self.outputs if v in self.full]
        last += [self.level[v] - 1 for v in self.needed if self.is_fold(v)]
        self.count = 1 + max(last, default=0)

    def reads(self, node: Node) -> bool:
        """Whether `node` looks at its inputs' elements: all do but ``extent``."""
        return node.op is not EXTENT

    def is_fold(self, node: Node) -> bool:
        reduces = node.op.kind is Kind.REDUCE and self.reads(node)
        return reduces and node not in self.full and node.inputs[0] in self.full

    def _needed(self) -> Nodes:
        found = set(self.outputs)
        for v in reversed(self.order):
            if v in found and self.reads(v):
                found.update(v.inputs)
        return tuple(v for v in self.order if v in found)

    def folds(self, k: int) -> Nodes:
        return tuple(v for v in self.needed if self.is_fold(v) and self.level[v] == k + 1)

    def stores(self, k: int) -> Nodes:
        return tuple(v for v in self.outputs if v in self.full and self.level[v] == k)

    def ends(self, k: int) -> Nodes:
        """The full values that pass `k` exists for."""
        return (*(f.inputs[0] for f in self.folds(k)), *self.stores(k))

    def rows(self, k: int) -> Nodes:
        """The row values that are computed once `k` passes are done."""
        found = (v for v in self.needed if v not in self.full and not self.is_fold(v) and not is_operand(v))
        return tuple(v for v in found if self.level[v] == k)

    def cone(self, ends: Iterable[Node], given: frozenset[Node] = frozenset()) -> Nodes:
        """The full values that `ends` need, themselves included, no further than `given`."""
        found = {v for v in ends if v in self.full}
        for v in reversed(self.order):
            if v in found and v not in given and self.reads(v):
                found.update(i for i in v.inputs if i in self.full)
        return tuple(v for v in self.order if v in found)

    def cost(self, node: Node) -> int:
        """How many ops make `node` from operands and row values."""
        return sum(v.op.kind is not Kind.LEAF for v in self.cone([node]))
