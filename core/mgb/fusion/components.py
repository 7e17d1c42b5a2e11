"""An axis of two to four elements that a sum goes along, as the coordinates of points, is taken apart.

Distances of all pairs of points are computed over an axis of coordinates, which is folded; what they weigh is
summed over the points, and has that axis again. So there are two domains, thus two kernels, and most of a
vector is empty. Taken apart, each coordinate is a value of its own, all are computed in one kernel, and what
they come from is computed once. That pays where values of the whole domain are made in kernels alone: what is
read and what leaves has to be small beside them. It pays, too, where rows of a table are looked up, which no
view turns: each coordinate is looked up in a column of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

from ..backends import Traits
from ..ir import Graph, Kind, Node
from ..ir.dtypes import HALVES
from ..ir.sizes import about, fixed, plain, same_shape
from ..ops.layout import RESHAPE, concat, reshape, slice_
from ..passes.merge import merge
from ..passes.reshapes import delay_reshapes
from ..tensor import Tensor
from ..tensor.apply import apply
from ..tensor.tracing import copy_node, rebuild
from .gathers import LOOK_UP
from .legality import DEFAULT, FusionConfig, accepts

#: The longest axis that is taken apart; how many ops that may make; how many times what is read or leaves is
#: contained in the largest value.
LONGEST, OPS, LARGER = 4, 128, 4


def taken_apart(graph: Graph, traits: Traits, config: FusionConfig = DEFAULT) -> Graph:
    """Return `graph` with the elements of short axes that are folded as values of their own.

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
    if not (traits.short_rows and traits.strided_outputs):
        return graph
    for fold, axis in _folds(graph):
        if accepts(traits, fold, config) is None and (parts := _Parts.of(graph, fold.inputs[0], axis)):
            made = rebuild(lambda *xs, parts=parts: parts.write(xs), graph.inputs)
            return taken_apart(merge(delay_reshapes(made)), traits, config)
    return graph


def _folds(graph: Graph) -> Iterator[tuple[Node, int]]:
    """Yield reductions of short axes, and which axis that is, counted from the end."""
    for node in graph.nodes:
        if not _reduces(node) or node.inputs[0].op.kind is not Kind.ELEMENTWISE:
            continue
        if node.spec.dtype in HALVES:  # whose sums are rounded once
            continue
        shape = node.inputs[0].spec.shape
        for axis in node.params["axis"]:
            if 1 < plain(shape[axis]) <= LONGEST:
                yield node, axis - len(shape)


class _Parts:
    """Values that are split into components, each with its axis, counted from the end.

    Parameters
    ----------
    graph : Graph
    count : int
        The length of that axis.
    """

    def __init__(self, graph: Graph, count: int) -> None:
        self.graph, self.count = graph, count
        self.axes: dict[Node, int] = {}
        self.read: set[Node] = set()  # what is computed otherwise, and cut
        self.largest: int = 0  # elements of the largest value that is taken apart
        self._outputs = frozenset(graph.outputs)

    @classmethod
    def of(cls, graph: Graph, first: Node, axis: int) -> _Parts | None:
        """Collect from a value on all that is connected; None where it does not pay."""
        parts = cls(graph, plain(first.spec.shape[axis]))
        parts._grow(first, axis)
        nodes = parts.axes
        parts.largest = max(about(node.spec.size) for node in nodes)
        border = [*parts.read, *(node for node in nodes if parts.leaves(node))]
        pays = any(node.op is LOOK_UP for node in nodes) or all(map(parts.is_small, border))
        if not pays or len(nodes) * parts.count > OPS or not parts._agree():
            return None
        fixed(tuple(n.spec.shape[a] for n, a in nodes.items()))  # there is a value for each element
        return parts

    def is_small(self, node: Node) -> bool:
        """Return whether it is small beside the largest value."""
        return bool(about(node.spec.size) * LARGER <= self.largest)

    def _agree(self) -> bool:
        """Return whether each value has one axis, whoever reads it."""
        pairs = ((node, i) for node in self.axes for i in node.inputs if i in self.axes)
        return all(self._in_operand(node, i, self.axes[node]) == self.axes[i] for node, i in pairs)

    def _grow(self, first: Node, axis: int) -> None:
        todo = [(first, axis)]
        while todo:
            node, axis = todo.pop()
            if node in self.axes or node in self.read:
                continue
            if not self._can(node, axis):
                self.read.add(node)
                continue
            self.axes[node] = axis
            around = [(i, self._in_operand(node, i, axis)) for i in node.inputs]
            around += [(r, _in_reader(r, node, axis)) for r in self.graph.readers[node]]
            todo += [(other, place) for other, place in around if place is not None]

    def _can(self, node: Node, axis: int) -> bool:
        kinds = node.op.kind is Kind.ELEMENTWISE or _reduces(node) or self._goes_along(node, axis)
        return node in self.graph.readers and bool(node.inputs) and (kinds or _moves_ones(node))

    def _goes_along(self, node: Node, axis: int) -> bool:
        """Return whether it looks up rows of a table, which have the axis."""
        if node.op is not LOOK_UP or axis not in node.params["along"]:
            return False
        table, *indices = node.inputs
        return table not in indices and table.spec.size > self.count

    def _in_operand(self, node: Node, operand: Node, axis: int) -> int | None:
        """Return the axis of an operand; None: it has none, or one that is broadcast."""
        if node.op is RESHAPE:
            return _moved(node.spec.shape, operand.spec.shape, axis)
        if node.op is LOOK_UP and operand is node.inputs[0]:
            return int(node.params["along"].index(axis)) - operand.spec.ndim
        return axis if self.has(operand, axis) else None

    def has(self, node: Node, axis: int) -> bool:
        """Return whether it has the axis, not to be broadcast."""
        shape = node.spec.shape
        return len(shape) >= -axis and plain(shape[axis]) == self.count

    def folds(self, node: Node) -> bool:
        """Return whether it is a reduction of what is taken apart, along that axis."""
        (*_, operand) = node.inputs or (node,)
        return node not in self.axes and operand in self.axes and _is_fold(node, operand, self.axes[operand])

    def leaves(self, node: Node) -> bool:
        """Return whether a value that is taken apart is wanted whole, too."""
        readers = self.graph.readers[node]
        return node in self._outputs or any(r not in self.axes and not self.folds(r) for r in readers)

    def write(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs of the graph over these inputs."""
        whole = dict(zip(self.graph.inputs, inputs, strict=True))
        apart: dict[Node, list[Tensor]] = {}
        for node in self.graph.nodes:
            if node in self.axes:
                apart[node] = [self._part(node, k, whole, apart) for k in range(self.count)]
                if self.leaves(node):
                    whole[node] = concat(*apart[node], axis=node.spec.ndim + self.axes[node])
            elif self.folds(node):
                whole[node] = self._folded(node, apart[node.inputs[0]])
            else:
                whole[node] = copy_node(node, *(whole[i] for i in node.inputs))
        return [whole[node] for node in self.graph.outputs]

    def _part(self, node: Node, k: int, whole: dict[Node, Tensor], apart: dict[Node, list[Tensor]]) -> Tensor:
        """Return the element `k` of a value."""
        axis = self.axes[node]
        operands = []
        for i in node.inputs:
            place = self._in_operand(node, i, axis)
            if place is None:
                operands.append(whole[i])
            else:
                again = self.is_small(i) and not (node.op is LOOK_UP and i is node.inputs[0])
                operands.append(apart[i][k] if i in apart else _cut(whole[i], place, k, again))
        if node.op is RESHAPE:
            shape, place = node.spec.shape, axis + node.spec.ndim
            return reshape(operands[0], shape=(*shape[:place], 1, *shape[place + 1 :]))
        return apply(node.op, *operands, **node.params)

    def _folded(self, node: Node, parts: Sequence[Tensor]) -> Tensor:
        (operand,) = node.inputs
        short = operand.spec.ndim + self.axes[operand]
        rest = tuple(a for a in node.params["axis"] if a != short)
        folded: Iterable[Tensor] = [apply(node.op, x, axis=rest) for x in parts] if rest else parts
        reduction = node.op.reduction
        assert reduction is not None
        return reduce(lambda a, b: apply(reduction.combine, a, b), folded)


def _cut(x: Tensor, axis: int, k: int, again: bool) -> Tensor:
    """Return the element `k` along an axis; one that is read again and again lies side by side."""
    window: list[Any] = [(0, d, 1) for d in x.shape]
    window[axis] = (k, k + 1, 1)
    part = slice_(x, window=tuple(window))
    is_row = axis == -1 and x.ndim > 1 and bool(_long(x.shape[-2:-1]))
    return concat(part, axis=0) if again and is_row else part


def _reduces(node: Node) -> bool:
    """Return whether it is a reduction that says how it combines; a scan folds no axis away."""
    return node.op.kind is Kind.REDUCE and node.op.reduction is not None


def _is_fold(node: Node, operand: Node, axis: int) -> bool:
    return _reduces(node) and axis + operand.spec.ndim in node.params["axis"]


def _in_reader(reader: Node, node: Node, axis: int) -> int | None:
    """Return the axis in what reads a value; None: it folds it, or is nothing that can be taken apart."""
    computes = reader.op.kind is Kind.ELEMENTWISE or _reduces(reader)
    if computes and not _is_fold(reader, node, axis):
        return axis
    return _moved(node.spec.shape, reader.spec.shape, axis) if _moves_ones(reader) else None


def _moves_ones(node: Node) -> bool:
    """Return whether it only adds and drops axes of length 1."""
    return node.op is RESHAPE and same_shape(_long(node.inputs[0].spec.shape), _long(node.spec.shape))


def _long(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Return the lengths but 1; those that are followed count as longer."""
    return tuple(d for d in shape if type(d) is not int or d != 1)


def _moved(shape: Sequence[Any], other: Sequence[Any], axis: int) -> int:
    """Return the place of an axis in the shape with other axes of length 1, counted from the end."""
    behind = len(_long(shape[axis:]))
    return next(-n for n in range(1, len(other) + 1) if len(_long(other[-n:])) == behind)
