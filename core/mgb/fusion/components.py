"""An axis of two to four elements that a sum goes along, as the coordinates of points, is taken apart.

Distances of all pairs of points are computed over an axis of coordinates, which is folded; what they weigh is
summed over the points, and has that axis again. So there are two domains, thus two kernels, and most of a
vector is empty. Taken apart, each coordinate is a value of its own, all are computed in one kernel, and what
they come from is computed once. That pays where values of the whole domain are made in kernels alone: what is
read and what leaves has to be small beside them. It pays, too, where rows of a table are looked up, which no
view turns: each coordinate is looked up in a column of the table; where rows are scattered, for the same
reason; and where each reader takes one coordinate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

from ..backends import Traits
from ..ir import Graph, Kind, Node
from ..ir.dtypes import HALVES
from ..ir.sizes import about, fixed, plain
from ..ops.layout import RESHAPE, SLICE, concat, reshape, slice_
from ..passes.merge import merge
from ..passes.reshapes import delay_reshapes, long, moves_ones
from ..tensor import Tensor
from ..tensor.apply import apply
from ..tensor.tracing import copy_node, rebuild
from .gathers import LOOK_UP
from .legality import DEFAULT, FusionConfig, Shape, accepts
from .squeezed import squeezed

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
    more: Graph | None = graph if traits.short_rows and traits.strided_outputs else None
    while more is not None:
        graph, more = more, _next_apart(more, traits, config)
    return graph


def _next_apart(graph: Graph, traits: Traits, config: FusionConfig) -> Graph | None:
    """Return `graph` with the first short axis taken apart for which that pays, or None."""
    for reader, first, axis in _starts(graph):
        fits = reader.op is SLICE or accepts(traits, reader, config) is None
        if fits and (parts := _Parts.of(graph, first, axis)):
            made = rebuild(lambda *xs, parts=parts: parts.write(xs), graph.inputs)
            return merge(delay_reshapes(squeezed(made)))
    return None


def _starts(graph: Graph) -> Iterator[tuple[Node, Node, int]]:
    """Yield what has a reason to take a short axis apart, of which value, and which axis that is of it.

    It is counted from the end.
    """
    for node in graph.nodes:
        if node.op.kind is Kind.SCATTER:
            along = node.params["along"]
            found = [(node, a - len(along)) for a, at in enumerate(along) if at is not None]
        elif node.inputs and node.inputs[0].op.kind is Kind.ELEMENTWISE:
            (source, *_), ndim = node.inputs, node.inputs[0].spec.ndim
            axes: Sequence[int] = range(ndim) if node.op is SLICE else ()
            if _reduces(node) and node.spec.dtype not in HALVES:  # whose sums are rounded once
                axes = node.params["axis"]
            found = [(source, a - ndim) for a in axes if node.op is not SLICE or _picked(node, a) is not None]
        else:
            continue
        for first, axis in found:
            if 1 < plain(first.spec.shape[axis]) <= LONGEST:
                yield node, first, axis


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
        if not nodes or not parts._pays() or len(nodes) * parts.count > OPS or not parts._agree():
            return None
        fixed(tuple(n.spec.shape[a] for n, a in nodes.items()))  # there is a value for each element
        return parts

    def _pays(self) -> bool:
        nodes = self.axes
        self.largest = max(about(n.spec.size) for node in nodes for n in (node, *_scattered(node)))
        leaving = [node for node in nodes if self.leaves(node)]
        reached = any(node.op is LOOK_UP or node.op.kind is Kind.SCATTER for node in nodes)
        picked = not leaving and any(self.picks(r) for node in nodes for r in self.graph.readers[node])
        return reached or picked or all(map(self.is_small, (*self.read, *leaving)))

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
        kinds = node.op.kind is Kind.ELEMENTWISE or _reduces(node) or moves_ones(node)
        along = self._goes_along(node, axis) or self._sinks_along(node, axis)
        return node in self.graph.readers and bool(node.inputs) and (kinds or along)

    def _goes_along(self, node: Node, axis: int) -> bool:
        """Return whether it looks up rows of a table, which have the axis."""
        if node.op is not LOOK_UP or axis not in node.params["along"]:
            return False
        table, *indices = node.inputs
        return table not in indices and table.spec.size > self.count

    def _sinks_along(self, node: Node, axis: int) -> bool:
        """Return whether it scatters rows, which have the axis."""
        if node.op.kind is not Kind.SCATTER or (at := node.params["along"][axis]) is None:
            return False
        value, *indices = node.inputs
        return self.has(value, at) and not any(self.has(i, at) for i in indices)

    def _in_operand(self, node: Node, operand: Node, axis: int) -> int | None:
        """Return the axis of an operand; None: it has none, or one that is broadcast."""
        if node.op is RESHAPE:
            return _moved(node.spec.shape, operand.spec.shape, axis)
        if node.op.kind is Kind.SCATTER:
            at = node.params["along"][axis]
            return at if self.has(operand, at) else None
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

    def picks(self, node: Node) -> bool:
        """Return whether it is one element along the axis of what is taken apart."""
        return node.op is SLICE and node.inputs[0] in self.axes and self._place(node) is not None

    def _place(self, pick: Node) -> Any:
        (source,) = pick.inputs
        return _picked(pick, self.axes[source] + source.spec.ndim)

    def leaves(self, node: Node) -> bool:
        """Return whether a value that is taken apart is wanted whole, too."""
        others = (r for r in self.graph.readers[node] if r not in self.axes)
        return node in self._outputs or any(not (self.folds(r) or self.picks(r)) for r in others)

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
            elif self.picks(node):
                part, window = apart[node.inputs[0]][self._place(node)], list(node.params["window"])
                window[self.axes[node.inputs[0]]] = (0, 1, 1)
                is_all = all(w == (0, d, 1) for w, d in zip(window, part.shape, strict=True))
                whole[node] = part if is_all else slice_(part, window=tuple(window))
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
        params = dict(node.params)
        if node.op.kind is Kind.SCATTER:
            params["shape"] = tuple(
                1 if a == axis else d for a, d in enumerate(node.spec.shape, -node.spec.ndim)
            )
        return apply(node.op, *operands, **params)

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
    is_row = axis == -1 and x.ndim > 1 and bool(long(x.shape[-2:-1]))
    return concat(part, axis=0) if again and is_row else part


def _reduces(node: Node) -> bool:
    """Return whether it is a reduction that says how it combines; a scan folds no axis away."""
    return node.op.kind is Kind.REDUCE and node.op.reduction is not None


def _is_fold(node: Node, operand: Node, axis: int) -> bool:
    return _reduces(node) and axis + operand.spec.ndim in node.params["axis"]


def _picked(pick: Node, axis: int) -> Any:
    """Return the place of the one element that a slice takes along an axis, or None."""
    start, stop, _ = pick.params["window"][axis]
    return start if type(start) is int and abs(stop - start) == 1 else None


def _scattered(node: Node) -> tuple[Node, ...]:
    return node.inputs[:1] if node.op.kind is Kind.SCATTER else ()


def _in_reader(reader: Node, node: Node, axis: int) -> int | None:
    """Return the axis in what reads a value; None: it folds it, or is nothing that can be taken apart."""
    if reader.op.kind is Kind.SCATTER:
        along = reader.params["along"]
        return along.index(axis) - len(along) if node is reader.inputs[0] and axis in along else None
    if reader.op is LOOK_UP:
        at: int | None = reader.params["along"][axis] if node is reader.inputs[0] else None
        return at
    computes = reader.op.kind is Kind.ELEMENTWISE or _reduces(reader)
    if computes and not _is_fold(reader, node, axis):
        return axis
    return _moved(node.spec.shape, reader.spec.shape, axis) if moves_ones(reader) else None


def _moved(shape: Shape, other: Shape, axis: int) -> int:
    """Return the place of an axis in the shape with other axes of length 1, counted from the end."""
    behind = len(long(shape[axis:]))
    return next(-n for n in range(1, len(other) + 1) if len(long(other[-n:])) == behind)
