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

A *scan* is full too. Who cuts a row into chunks must know what a scan makes of those before: the pass before
finds what it makes of each chunk alone. Who goes through the whole row leaves out a pass that is for nothing
else. Where no use can be made of what a chunk makes alone, the row is *whole*: one chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from ..ir import CONST, Graph, Kind, Node
from ..ir.dtypes import FLOATS
from ..loops import RECURRENCE
from ..ops.declare import op_of
from ..ops.primitives import mul
from ..ops.reduce import EXTENT
from .domain import Shape, domain, operands, reduced_axes, spans, values

#: A value that a later pass needs is kept in a buffer when making it again takes this many ops.
KEEP_OPS = 4

MUL = op_of(mul)

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
    totals : tuple of Node
        Scans of the next pass: what each makes of its inputs in a chunk alone is to be found.
    scatters : tuple of Node
        What to fold elements into: the value of ``node.inputs[0]``, where the other inputs say.

    Examples
    --------
    >>> from mgb.codegen import schedule
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> graph = graph_of(lambda x: F.softmax(x, axis=1), Spec((4, 8), np.dtype("float32")))
    >>> [[node.op.name for node in (*p.folds, *p.stores)] for p in schedule(graph).passes]
    [['reduce_max'], ['reduce_sum'], ['mul']]
    """

    reads: Nodes
    restores: Nodes
    computes: Nodes
    keeps: Nodes
    stores: Nodes
    folds: Nodes
    after: Nodes
    totals: Nodes = ()
    scatters: Nodes = ()

    @property
    def is_for_chunks(self) -> bool:
        """Return whether it is needed only where several share a row."""
        return not (self.stores or self.folds or self.scatters)

    @property
    def ends(self) -> Nodes:
        """The values that it is there for."""
        folded = (i for f in (*self.folds, *self.totals, *self.scatters) for i in f.inputs)
        return (*self.stores, *folded)


@dataclass(frozen=True, slots=True)
class Schedule:
    """The loops that compute a group.

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

    Examples
    --------
    >>> from mgb.codegen import schedule
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> graph = graph_of(lambda x: F.softmax(x, axis=1), Spec((4, 8), np.dtype("float32")))
    >>> found = schedule(graph)
    >>> found.shape, found.reduced, len(found.passes)
    ((4, 8), (1,), 3)
    """

    shape: Shape
    reduced: tuple[int, ...]
    row_reads: Nodes
    before: Nodes
    passes: tuple[Pass, ...]
    row_stores: Nodes


def is_operand(node: Node) -> bool:
    """Return whether a loop loads `node` instead of computing it; a constant of one element is neither.

    Examples
    --------
    >>> from mgb.ir import Spec, const_node, input_node
    >>> x, two = input_node(Spec((4,), np.dtype("float32"))), const_node(2, np.dtype("float32"))
    >>> is_operand(x), is_operand(two)
    (True, False)
    """
    return node.op.kind is Kind.LEAF and not (node.op is CONST and node.spec.size == 1)


def is_scatter(node: Node) -> bool:
    """Return whether a kernel folds elements into places of `node` that values say.

    Examples
    --------
    >>> from mgb.ir import Spec, input_node
    >>> is_scatter(input_node(Spec((4,), np.dtype("float32"))))
    False
    """
    return node.op.kind is Kind.SCATTER


def is_whole(node: Node) -> bool:
    """Return whether `node` is a scan whose row is not cut: what a part of it makes alone is of no use.

    That is so of recurrences, and of products: those of a part may overflow or underflow alone.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> graph = graph_of(lambda x: F.cumprod(F.cumsum(x, 0), 0), Spec((8,), np.dtype("float32")))
    >>> [is_whole(node) for node in graph.nodes]
    [False, True]
    """
    if node.op.kind is not Kind.SCAN or node.spec.shape[node.params["axis"]] == 1:
        return False
    if node.op.state is not None or node.op is RECURRENCE:
        return node.op.state is None or node.op.state.factor is not None
    return node.op.reduction is not None and node.op.reduction.combine is MUL and node.spec.dtype in FLOATS


def schedule(graph: Graph, keep_ops: int = KEEP_OPS, dear: Set[str] = frozenset()) -> Schedule:
    """Return the passes of `graph`, a group of one domain.

    Parameters
    ----------
    graph : Graph
    keep_ops : int, optional
        A value that a later pass needs is kept when making it again takes this many ops or more.
    dear : set of str, optional
        The names of ops each of which takes as long as so many others.

    Raises
    ------
    GraphError
        It is not such a group, see `domain` and `reduced_axes`.

    Examples
    --------
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> graph = graph_of(lambda x: F.softmax(x, axis=1), Spec((4, 8), np.dtype("float32")))
    >>> [[node.op.name for node in p.computes] for p in schedule(graph).passes]
    [[], ['sub', 'exp'], ['sub', 'exp', 'mul']]
    """
    facts = _Facts(graph, dict.fromkeys(dear, keep_ops))
    ends = [facts.ends(k) for k in range(facts.count)]
    kept = _kept(facts, ends, keep_ops)
    passes, ready = [], frozenset[Node]()
    for k in range(facts.count):
        passes.append(_pass(facts, k, ends[k], kept if facts.is_needed(k) else frozenset(), ready))
        ready |= frozenset(passes[-1].keeps)
    return Schedule(
        shape=domain(graph),
        reduced=facts.reduced,
        row_reads=tuple(v for v in facts.needed if v not in facts.full and is_operand(v)),
        before=facts.rows(0),
        passes=tuple(passes),
        row_stores=tuple(v for v in facts.outputs if v not in facts.full and not is_scatter(v)),
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
        totals=facts.totals(k),
        scatters=facts.scatters(k),
    )


def _kept(facts: _Facts, ends: list[Nodes], keep_ops: int) -> frozenset[Node]:
    """Return the dear values that one pass makes and a new value of a later pass reads."""
    first: dict[Node, int] = {}
    for k, end in enumerate(ends):
        for v in facts.cone(end) if facts.is_needed(k) else ():
            first.setdefault(v, k)
    wanted = {i for v in first for i in operands(v) if first.get(i, first[v]) < first[v]}
    return frozenset(v for v in wanted if facts.cost(v) >= keep_ops)


class _Facts:
    """Facts about one graph, from which its passes are made."""

    def __init__(self, graph: Graph, weights: Mapping[str, int]) -> None:
        self.weights = weights
        span = spans(graph)
        self.outputs = tuple(dict.fromkeys(graph.outputs))
        self.reduced = reduced_axes(graph)
        self.full = {v for v in span if not self.reduced or any(span[v][a] for a in self.reduced)}
        self.order = values(graph)
        self.level: dict[Node, int] = {}
        for v in self.order:
            below = max((self.level[i] for i in operands(v)), default=0)
            self.level[v] = below + (self.is_fold(v) or self.is_scan(v) or is_scatter(v))
        self.needed = self._needed()
        last = [self.level[v] for v in self.outputs if v in self.full]
        folds = [v for v in self.needed if self.is_fold(v) or is_scatter(v)]
        last += [self.level[v] - 1 for v in folds]
        self.count = 1 + max(last, default=0)

    def is_fold(self, node: Node) -> bool:
        reduces = node.op.kind is Kind.REDUCE and node.op is not EXTENT
        return reduces and node not in self.full and node.inputs[0] in self.full

    def is_scan(self, node: Node) -> bool:
        folds = node.op.kind is Kind.SCAN and not is_whole(node)
        return folds and node.spec.shape[node.params["axis"]] != 1

    def is_needed(self, k: int) -> bool:
        """Return whether pass `k` is for more than the chunks of scans."""
        return bool(self.folds(k) or self.stores(k) or self.scatters(k))

    def _needed(self) -> Nodes:
        found = set(self.outputs)
        for v in reversed(self.order):
            if v in found:
                found.update(operands(v))
        return tuple(v for v in self.order if v in found)

    def folds(self, k: int) -> Nodes:
        return tuple(v for v in self.needed if self.is_fold(v) and self.level[v] == k + 1)

    def totals(self, k: int) -> Nodes:
        return tuple(v for v in self.needed if self.is_scan(v) and self.level[v] == k + 1)

    def scatters(self, k: int) -> Nodes:
        return tuple(v for v in self.needed if is_scatter(v) and self.level[v] == k + 1)

    def stores(self, k: int) -> Nodes:
        return tuple(v for v in self.outputs if v in self.full and self.level[v] == k)

    def ends(self, k: int) -> Nodes:
        """Return the full values that pass `k` exists for."""
        folded = (i for f in (*self.folds(k), *self.totals(k), *self.scatters(k)) for i in f.inputs)
        return (*folded, *self.stores(k))

    def rows(self, k: int) -> Nodes:
        """Return the row values that are computed once `k` passes are done."""
        found = (v for v in self.needed if v not in self.full and self.level[v] == k)
        return tuple(v for v in found if not (self.is_fold(v) or is_scatter(v) or is_operand(v)))

    def cone(self, ends: Iterable[Node], given: frozenset[Node] = frozenset()) -> Nodes:
        """Return the full values that `ends` need, themselves included, no further than `given`."""
        found = {v for v in ends if v in self.full}
        for v in reversed(self.order):
            if v in found and v not in given:
                found.update(i for i in operands(v) if i in self.full)
        return tuple(v for v in self.order if v in found)

    def cost(self, node: Node) -> int:
        """Count the ops that make `node` from operands and row values."""
        made = (v.op for v in self.cone([node]) if v.op.kind is not Kind.LEAF)
        return sum(self.weights.get(op.name, 1) for op in made)
