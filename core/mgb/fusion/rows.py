"""Rows of a few elements are taken apart where they are cut, turned or put together between computations.

Quaternions are normalised, cut into their four numbers, and these make matrices of nine, which turn points:
each step is an op over many short rows, but what stands between moves elements, so each would be a kernel
whose result lies in memory. Taken apart, every element of a row is a value of its own, as long as there are
rows. What moves elements within a row then only says which value is meant; all is element-wise in one domain,
thus one kernel, and what a row has is in registers. It reads the columns of what is given and writes those of
the results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from ..backends import Traits
from ..ir import CONST, Graph, Kind, Node, Spec
from ..ir.dtypes import HALVES
from ..ir.sizes import about, same_shape
from ..ops.declare import op_of
from ..ops.layout import BROADCAST_TO, RESHAPE, SLICE, TRANSPOSE, concat, reshape, slice_, slices, unslice
from ..ops.reduce import EXTENT
from ..passes.merge import merge
from ..passes.reshapes import delay_reshapes
from ..passes.rewrite import full, reshaped, shaped
from ..tensor import Tensor
from ..tensor.apply import apply
from ..tensor.tracing import copy_node, rebuild
from .legality import DEFAULT, FusionConfig, accepts, weight

Shape = tuple[int, ...]
#: The elements of a row, each a Tensor over all rows, in an array of objects.
Elements = np.ndarray[Any, Any]

CONCAT, UNSLICE = op_of(concat), op_of(unslice)

#: Rows from which it is worth it; elements of a row that is read or leaves, and of one in between; how many
#: ops that may make.
ROWS, WIDE, WIDEST, OPS = 1 << 12, 16, 64, 384

#: What moves elements, each within its row, as NumPy does it with an array of them.
_MOVES: dict[Any, Callable[..., Elements]] = {
    RESHAPE: lambda node, rows, x: x.reshape(rows.of(node)),
    TRANSPOSE: lambda node, rows, x: x.transpose([a - rows.lead for a in node.params["axes"][rows.lead :]]),
    SLICE: lambda node, rows, x: x[slices(node.params["window"][rows.lead :])],
    BROADCAST_TO: lambda node, rows, x: np.broadcast_to(x, rows.of(node)),
    CONCAT: lambda node, rows, *xs: np.concatenate(xs, axis=node.params["axis"] - rows.lead),
    UNSLICE: lambda node, rows, x: _bordered(node, rows, x),
}


def rows_apart(graph: Graph, traits: Traits, config: FusionConfig = DEFAULT) -> Graph:
    """Return `graph` with the elements of short rows as values of their own, where that saves kernels.

    Parameters
    ----------
    graph : Graph
        Simplified.
    traits : Traits
        Of the backend that is to compile the groups.
    config : FusionConfig
        What the user allows.

    Returns
    -------
    Graph
    """
    if not (traits.short_rows and traits.strided_outputs and graph.has(*_MOVES)):
        return graph
    of: dict[Node, _Rows] = {}
    tried = set[tuple[Node, int]]()
    for seed in graph.nodes:
        rows = _around(graph, seed, traits, config)
        if rows is None or seed in of or (seed, rows.lead) in tried:
            continue
        rows.grow(seed)
        tried.update((node, rows.lead) for node in rows.inside)
        if rows.pays() and not of.keys() & rows.inside:
            of |= dict.fromkeys(rows.inside, rows)
    if not of:
        return graph
    return merge(delay_reshapes(rebuild(lambda *xs: _Writer(graph, of, xs).outputs(), graph.inputs)))


def _around(graph: Graph, seed: Node, traits: Traits, config: FusionConfig) -> _Rows | None:
    """Return the rows within which a node moves elements, the shortest ones."""
    if seed.op not in _MOVES:
        return None
    for lead in range(seed.spec.ndim, 0, -1):
        rows = _Rows(graph, seed.spec.shape[:lead], traits, config)
        if rows.can(seed) and rows.moves(seed):
            return rows if about(prod(rows.shape)) >= ROWS else None
    return None


class _Rows:
    """Values with the same rows, connected by ops that stay within these.

    Parameters
    ----------
    graph : Graph
    shape : tuple of int
        Of the axes along which the rows lie.
    traits, config
        As for `rows_apart`.
    """

    def __init__(self, graph: Graph, shape: Shape, traits: Traits, config: FusionConfig) -> None:
        self.graph, self.shape, self.traits, self.config = graph, shape, traits, config
        self.lead = len(shape)
        self.inside: dict[Node, None] = {}
        self._outputs = frozenset(graph.outputs)

    # what is inside

    def has(self, node: Node) -> bool:
        """Return whether a value has these rows, of few elements."""
        shape = node.spec.shape
        if len(shape) < self.lead or not all(type(d) is int for d in shape[self.lead :]):
            return False
        return same_shape(shape[: self.lead], self.shape) and 0 < prod(self.of(node)) <= WIDEST

    def of(self, node: Node) -> Shape:
        """Return the shape of one row of a value."""
        return node.spec.shape[self.lead :]

    def can(self, node: Node) -> bool:
        """Return whether a node computes each element of a row from elements of the same row."""
        if not self.has(node) or not node.inputs or node not in self.graph.readers:
            return False
        if node.op.kind is Kind.ELEMENTWISE:
            others = any(i.spec.ndim != node.spec.ndim and self.has(i) for i in node.inputs)  # by other axes
            return not others and accepts(self.traits, node, self.config) is None
        if not all(map(self.has, node.inputs)):
            return False
        if node.op is RESHAPE:
            return True
        if node.op in _MOVES:
            same = node.op in (TRANSPOSE, CONCAT) or node.inputs[0].spec.ndim == node.spec.ndim
            return same and self._stays(**node.params)
        return _folds(node) and node.params["axis"][0] >= self.lead

    def _stays(self, axes: Shape = (), axis: int | None = None, window: Sequence[Any] = (), **_: Any) -> bool:
        """Return whether an op with these parameters leaves the rows where they are."""
        in_order = tuple(axes[: self.lead]) == tuple(range(len(axes[: self.lead])))
        forwards = all(step == 1 for *_, step in window[: self.lead])
        return in_order and forwards and (axis is None or axis >= self.lead)

    def moves(self, node: Node) -> bool:
        """Return whether it moves elements of rows that have several."""
        return node.op in _MOVES and max(prod(self.of(n)) for n in (node, *node.inputs)) > 1

    def grow(self, seed: Node) -> None:
        """Collect all that is connected."""
        todo = [seed]
        while todo:
            node = todo.pop()
            if node in self.inside or not self.can(node):
                continue
            self.inside[node] = None
            todo += [*node.inputs, *self.graph.readers[node]]

    # whether it pays

    def pays(self) -> bool:
        """Return whether elements move between what is computed, with few ops and operands."""
        inside = self.inside
        read = {(i, self._columns(i, n)) for n in inside for i in n.inputs if i not in inside}
        columns = [count for node, count in read if node.op is not CONST]
        leave = [prod(self.of(n)) for n in inside if self.leaves(n)]
        small = max((*columns, *leave), default=0) <= WIDE and sum(leave) <= self.traits.max_inputs
        few = small and sum(columns) <= self.traits.max_inputs // 2
        return few and self._moves_between() and sum(map(self._ops, inside)) <= OPS

    def _columns(self, operand: Node, node: Node) -> int:
        """Return how many elements an operand has for a row of `node`."""
        return int(about(prod(operand.spec.shape[self.rows_of(operand, node) :])))

    def rows_of(self, operand: Node, node: Node) -> int:
        """Return how many axes of an operand are those of rows, along which it may be broadcast."""
        if node.op.kind is not Kind.ELEMENTWISE:
            return self.lead
        return max(0, operand.spec.ndim - node.spec.ndim + self.lead)

    def _ops(self, node: Node) -> int:
        """Count the ops that a node becomes beside those it is; it has several where a row has."""
        if node.op.kind is Kind.ELEMENTWISE:
            return weight(self.traits, node) * prod(self.of(node)) if prod(self.of(node)) > 1 else 0
        return prod(self.of(node.inputs[0])) - 1 if _folds(node) and node.op is not EXTENT else 0

    def _moves_between(self) -> bool:
        """Return whether what moves elements reads what is computed, and is computed with."""
        order = [n for n in self.graph.nodes if n in self.inside]
        computed, wanted = set[Node](), set[Node]()
        for node in order:
            if node.op not in _MOVES or any(i in computed for i in node.inputs):
                computed.add(node)
        for node in reversed(order):
            readers = [r for r in self.graph.readers[node] if r in self.inside]
            if any(r.op not in _MOVES or r in wanted for r in readers):
                wanted.add(node)
        return any(self.moves(n) and n in wanted and any(i in computed for i in n.inputs) for n in order)

    def leaves(self, node: Node) -> bool:
        """Return whether a value is wanted whole."""
        readers = self.graph.readers[node]
        return node in self._outputs or any(r not in self.inside and not self.folds(r) for r in readers)

    def folds(self, node: Node) -> bool:
        """Return whether it folds rows of what is inside into one."""
        return _folds(node) and node.inputs[0] in self.inside and node.params["axis"][0] < self.lead

    # what is written

    def write(self, node: Node, operands: Sequence[Elements]) -> Elements:
        """Return the elements of a row of `node`."""
        if node.op in _MOVES:
            return _MOVES[node.op](node, self, *operands)
        found = np.empty(self.of(node), object)
        if node.op.kind is Kind.ELEMENTWISE:
            spread = [np.broadcast_to(x, found.shape) for x in operands]
            for place in np.ndindex(found.shape):
                found[place] = apply(node.op, *(x[place] for x in spread), **node.params)
            return found
        (x,) = operands
        axes = tuple(a - self.lead for a in node.params["axis"])
        for place in np.ndindex(found.shape):
            run = x[tuple(slice(None) if a in axes else slice(p, p + 1) for a, p in enumerate(place))]
            found[place] = self._folded(node, list(run.flat))
        return found

    def _folded(self, node: Node, elements: Sequence[Tensor]) -> Tensor:
        if node.op is EXTENT:
            return full(len(elements), Spec((), node.spec.dtype, node.spec.device))
        reduction = node.op.reduction
        assert reduction is not None
        return reduce(lambda a, b: apply(reduction.combine, a, b), elements)

    def fold(self, node: Node, x: Elements) -> Tensor:
        """Return a reduction along the rows, and perhaps within them, of the elements `x`."""
        along = tuple(a for a in node.params["axis"] if a < self.lead)
        axes = tuple(a - self.lead for a in node.params["axis"] if a >= self.lead)
        found = []
        for place in np.ndindex(*node.spec.shape[self.lead :]):
            run = x[tuple(slice(None) if a in axes else slice(p, p + 1) for a, p in enumerate(place))]
            elements = [shaped(e, self.shape) for e in run.flat]
            if node.op is EXTENT:
                rows = apply(node.op, elements[0], axis=along)
                found.append(rows * full(len(elements), Spec((), node.spec.dtype, node.spec.device)))
            else:
                found.append(apply(node.op, self._folded(node, elements), axis=along))
        return _together(found, node.spec.shape)

    def together(self, node: Node, elements: Elements) -> Tensor:
        """Return the value whose rows have these elements."""
        return _together([shaped(e, self.shape) for e in elements.flat], node.spec.shape)


def _together(parts: Sequence[Tensor], shape: Shape) -> Tensor:
    columns = [reshape(x, shape=(*x.shape, 1)) for x in parts]
    return reshaped(columns[0] if len(columns) == 1 else concat(*columns, axis=columns[0].ndim - 1), shape)


def _folds(node: Node) -> bool:
    """Return whether it folds elements, and says how it combines two."""
    reduces = node.op.kind is Kind.REDUCE and node.spec.dtype not in HALVES  # whose sums are rounded once
    return reduces and bool(node.params["axis"]) and (node.op is EXTENT or node.op.reduction is not None)


def _bordered(node: Node, rows: _Rows, x: Elements) -> Elements:
    found = np.empty(rows.of(node), object)
    found.fill(full(0, Spec((), node.spec.dtype, node.spec.device)))
    found[slices(node.params["window"][rows.lead :])] = x
    return found


class _Writer:
    """Writes `graph` over `inputs`, with what `of` has taken apart."""

    def __init__(self, graph: Graph, of: Mapping[Node, _Rows], inputs: Sequence[Tensor]) -> None:
        self.graph, self.of = graph, of
        self.whole = dict(zip(graph.inputs, inputs, strict=True))
        self.apart: dict[Node, Elements] = {}
        self.cuts: dict[tuple[Node, int], Elements] = {}

    def outputs(self) -> list[Tensor]:
        """Return the outputs of the graph."""
        for node in self.graph.nodes:
            rows = self.of.get(node)
            if rows is None:
                self.whole[node] = self._whole(node)
                continue
            self.apart[node] = rows.write(node, [self._elements(i, node, rows) for i in node.inputs])
            if rows.leaves(node):
                self.whole[node] = rows.together(node, self.apart[node])
        return [self.whole[node] for node in self.graph.outputs]

    def _elements(self, operand: Node, node: Node, rows: _Rows) -> Elements:
        if self.of.get(operand) is rows:
            return self.apart[operand]
        key = operand, rows.rows_of(operand, node)
        if key not in self.cuts:
            self.cuts[key] = _cut(operand, self.whole[operand], key[1])
        return self.cuts[key]

    def _whole(self, node: Node) -> Tensor:
        rows = next((self.of[i] for i in node.inputs if i in self.of and self.of[i].folds(node)), None)
        if rows is not None:
            return rows.fold(node, self.apart[node.inputs[0]])
        return copy_node(node, *(self.whole[i] for i in node.inputs))


def _cut(node: Node, value: Tensor, lead: int) -> Elements:
    """Return the elements of the rows of a whole value; `lead` axes are those of the rows."""
    shape = value.shape
    found = np.empty(shape[lead:], object)
    for place in np.ndindex(found.shape):
        if node.op is CONST and not lead:
            found[place] = full(node.params["value"][place], Spec((), value.dtype, node.spec.device))
            continue
        window = (*((0, d, 1) for d in shape[:lead]), *((p, p + 1, 1) for p in place))
        part = value if found.size == 1 else slice_(value, window=window)
        found[place] = reshaped(part, shape[:lead])
    return found
