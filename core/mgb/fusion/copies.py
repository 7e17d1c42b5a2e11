"""Reshapes that copy come after what is computed of them, so that a kernel writes what they would copy.

A reshape of a transposed or a broadcast array is not a view. ``x.transpose(...).reshape(...) * 2`` would copy
and then compute; computed over the axes of the transposed view, which a kernel reads as it lies, the result
is row-major and its reshape costs nothing. Other operands take these axes too, at the inputs, where that
costs nothing either: axes are split, never merged. What is repeated a few times is put side by side with
itself, for kernels that write windows: see `Op.parts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import prod

from ..ir import Graph, Kind, Node
from ..ir.sizes import count, same_shape
from ..ir.strides import row_major
from ..ops.layout import (
    BROADCAST_TO,
    RESHAPE,
    SLICE,
    TRANSPOSE,
    Window,
    broadcast_to,
    concat,
    slice_,
    transpose,
)
from ..passes.broadcasts import delay_broadcasts
from ..passes.reshapes import delay_reshapes
from ..passes.rewrite import beneath, inputs_of, needed_by, node_of, reshaped, rewrite, shaped
from ..tensor import Tensor
from ..tensor.apply import apply
from .axes import are_plain, axes_split, between, ends, plain_split, stretched_axes

Shape = tuple[int, ...]

#: What is repeated more often is copied.
FEW = 8


def delay_copies(graph: Graph) -> Graph:
    """Move reshapes that copy behind element-wise ops, broadcasts and transposes.

    What is folded or scanned next stays one with that: it goes along axes which a reshape may merge. Then
    only single numbers are read beside.
    """
    if not any(map(_may_copy, graph.nodes)):
        return graph
    rule = _Delay(graph)
    return rewrite(delay_reshapes(delay_broadcasts(rewrite(graph, rule))), _repeated)


class _Delay:
    """The rule, and which of the values that it has made are reshaped."""

    def __init__(self, graph: Graph) -> None:
        self.delayed: set[Node] = set()
        self.folded = _folded_next(graph)
        computed = needed_by(
            graph, lambda r: r.op.kind is Kind.ELEMENTWISE, (RESHAPE, BROADCAST_TO, TRANSPOSE)
        )
        self.computed = computed - self.folded
        self.sliced = needed_by(graph, lambda r: r.op is SLICE, ())

    def __call__(self, node: Node, *values: Tensor) -> Tensor | None:
        found = None
        if node.op.kind is Kind.ELEMENTWISE:
            found = self._computed(node, values)
        elif node.op is RESHAPE and (source := self._source(values[0])) is not None:
            found = reshaped(source, node.spec.shape)
        elif node.op in (BROADCAST_TO, TRANSPOSE) and node in self.computed:
            found = self._moved(node, values[0])
        elif node.op is SLICE and node.inputs[0] in self.sliced:
            found = self._cut(values[0], node.params["window"])
        if found is not None and node_of(found).op is RESHAPE:
            self.delayed.add(node_of(found))
        return found

    def _source(self, value: Tensor) -> Tensor | None:
        """Return the value before a reshape that copies, or None."""
        node = node_of(value)
        source = inputs_of(value, RESHAPE) if node in self.delayed or copies(node) else None
        return source[0] if source else None

    def _computed(self, node: Node, values: tuple[Tensor, ...]) -> Tensor | None:
        """Return an op over the axes from before the reshapes of its operands, then one such reshape."""
        shape = node.spec.shape
        sources = [self._source(v) if same_shape(v.shape, shape) else None for v in values]
        copied = [s.shape for s in sources if s is not None]
        if not copied:
            return None
        others = [v for v, s in zip(values, sources, strict=True) if s is None and v.ndim]
        if others or any(not same_shape(s, copied[0]) for s in copied):
            if node in self.folded or not are_plain(shape, *copied):
                return None
            apart = (*map(ends, copied), *(_ends_of(v, shape) for v in others))
            domain = between(frozenset().union(*apart))
        else:
            domain = copied[0]
        if domain is None:
            return None
        operands = [
            _split(v, shape, domain) if s is None else _split(s, s.shape, domain)
            for v, s in zip(values, sources, strict=True)
        ]
        return reshaped(shaped(apply(node.op, *operands, **node.params), domain), shape)

    def _moved(self, node: Node, value: Tensor) -> Tensor | None:
        """Return a broadcast or a transpose of what is reshaped, before that."""
        source = self._source(value)
        if source is None or not are_plain(value.shape, source.shape, node.spec.shape):
            return None
        domain = between(ends(source.shape) | ends(value.shape))
        if domain is None:
            return None
        groups = axes_split(value.shape, domain)
        found = shaped(_split(source, source.shape, domain), domain)
        if groups is None:
            return None
        if node.op is TRANSPOSE:
            first = list(accumulate(map(len, groups), initial=0))
            order = [k for a in node.params["axes"] for k in range(first[a], first[a + 1])]
            return reshaped(transpose(found, axes=tuple(order)), node.spec.shape)
        return _stretched(found, groups, node.spec.shape)

    def _cut(self, value: Tensor, window: Window) -> Tensor | None:
        """Return a window of what is reshaped, before that; None where it ends inside of merged axes."""
        source = self._source(value)
        groups = plain_split(value.shape, source.shape) if source is not None else None
        if source is None or groups is None:
            return None
        own: list[tuple[int, int, int]] = []
        for (start, stop, step), lengths, length in zip(window, groups, value.shape, strict=True):
            if (start, stop, step) == (0, length, 1):
                own += [(0, d, 1) for d in lengths]
                continue
            inner = prod(lengths[1:])
            if step != 1 or start % inner or stop % inner:
                return None
            own += [(start // inner, stop // inner, 1), *((0, d, 1) for d in lengths[1:])]
        return reshaped(slice_(source, window=tuple(own)), tuple(count(*axis) for axis in window))


def _folded_next(graph: Graph) -> frozenset[Node]:
    """Return the values that folds and scans need, but for ops of other kinds between."""
    found: set[Node] = set()
    for node in reversed(graph.nodes):
        for reader in graph.readers[node]:
            passes_on = reader.op.kind in (Kind.ELEMENTWISE, Kind.LAYOUT) and reader in found
            if passes_on or reader.op.kind in (Kind.REDUCE, Kind.SCAN, Kind.SCATTER):
                found.add(node)
    return frozenset(found)


def _ends_of(value: Tensor, shape: Shape) -> frozenset[int]:
    """Return the ends of axes of `shape` that have to stay apart for a value that broadcasts to it."""
    if node_of(value).op.moves is not None:
        return ends(shape)
    stretched = stretched_axes(value.shape, shape)
    long = [a for a, d in enumerate(shape) if d != 1]
    return frozenset(prod(shape[b:]) for a, b in pairwise(long) if stretched[a] != stretched[b])


def _split(value: Tensor, shape: Shape, domain: Shape) -> Tensor:
    """Return `value`, which broadcasts to `shape`, such that it broadcasts to `domain`."""
    if not value.ndim or same_shape(value.shape, domain):
        return value
    if inner := inputs_of(value, BROADCAST_TO):
        return _split(inner[0], shape, domain)
    if same_shape(value.shape, shape):
        return reshaped(value, domain)
    ends, stretched = [prod(shape[a + 1 :]) for a in range(len(shape))], stretched_axes(value.shape, shape)
    lengths = []
    for k, length in enumerate(domain):
        last = prod(domain[k + 1 :])
        axis = next(a for a, end in enumerate(ends) if end <= last and shape[a] != 1)
        lengths.append(1 if stretched[axis] else length)
    return reshaped(value, tuple(lengths))


def _stretched(value: Tensor, groups: Sequence[Shape], shape: Shape) -> Tensor:
    """Return the broadcast to `shape` of a value whose axes are split into these, and reshaped."""
    lead = len(shape) - len(groups)
    small, full = [1] * lead, list(shape[:lead])
    for length, own in zip(shape[lead:], groups, strict=True):
        small += own or (1,)
        full += own or (length,)
    return reshaped(broadcast_to(reshaped(value, tuple(small)), shape=tuple(full)), shape)


def _may_copy(node: Node) -> bool:
    """Return whether it is a reshape of a view other than a reshape."""
    return node.op is RESHAPE and beneath(node, RESHAPE).op.moves is not None


def copies(node: Node) -> bool:
    """Return whether it is a reshape whose result needs memory of its own."""
    return _may_copy(node) and _lying(node) is None


def _lying(node: Node) -> Shape | None:
    """Return the strides of what is a view of a row-major value; None where the last op copies."""
    if node.op.moves is None:
        return row_major(node.spec.shape)
    (source,) = node.inputs
    strides = _lying(source)
    shape = source.spec.shape
    return node.op.moves(shape, row_major(shape) if strides is None else strides, **node.params)


def _repeated(node: Node, *values: Tensor) -> Tensor | None:
    """Return a computed value repeated along one axis as a ``concat`` of itself, or None."""
    inner = inputs_of(values[0], BROADCAST_TO) if node.op is RESHAPE else None
    is_computed = inner is not None and beneath(node_of(inner[0]), RESHAPE).op.kind is Kind.ELEMENTWISE
    if inner is None or not is_computed or inner[0].ndim != values[0].ndim:
        return None
    lengths = zip(inner[0].shape, values[0].shape, strict=True)
    axes = [a for a, (own, full) in enumerate(lengths) if own != full]
    if len(axes) != 1 or values[0].shape[axes[0]] > FEW:
        return None
    return reshaped(concat(*inner * int(values[0].shape[axes[0]]), axis=axes[0]), node.spec.shape)
