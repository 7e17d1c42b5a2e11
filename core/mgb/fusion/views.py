"""Views of what is looked up: the tables and the indices are viewed so, and elements are read where they go.

``pages[rows].reshape(b, n, heads, d).transpose(0, 2, 1, 3) * scale`` looks up over the domain of the product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir import Kind, Node
from ..ops.layout import RESHAPE, TRANSPOSE, transpose
from ..ops.look_up import Along, alongs, tables_of
from ..passes.reshapes import is_one
from ..passes.rewrite import node_of, reshaped, value_of
from ..tensor import Tensor
from ..tensor.apply import apply
from .axes import Shape, axes_split

#: From a table and how its axes lie to the same for the view.
_Move = Callable[[Tensor, Along], tuple[Tensor, Along]]


def viewed(node: Node, value: Tensor) -> Tensor | None:
    """Return a transpose, or a reshape that splits axes, of what an op of kind GATHER gives as that op."""
    if node_of(value).op.kind is not Kind.GATHER:
        return None
    if node.op is TRANSPOSE:
        return _transposed(value, node.params["axes"])
    groups = axes_split(value.shape, node.spec.shape) if node.op is RESHAPE else None
    return _divided(value, groups, node.spec.shape) if groups else None


def _moved(value: Tensor, table: _Move, index: Callable[[Tensor], Tensor]) -> Tensor:
    node = node_of(value)
    tables = tables_of(node)
    moved = [table(value_of(t), along) for t, along in zip(tables, alongs(node), strict=True)]
    places = tuple(along for _, along in moved)
    several = isinstance(node.params["along"][0], tuple)
    indices = (index(value_of(i)) for i in node.inputs[len(tables) :])
    return apply(node.op, *(t for t, _ in moved), *indices, along=places if several else places[0])


def _transposed(value: Tensor, axes: Sequence[int]) -> Tensor:
    ndim = len(axes)

    def table(x: Tensor, along: Along) -> tuple[Tensor, Along]:
        return x, tuple(at if at is None else axes.index(ndim + at) - ndim for at in along)

    def index(x: Tensor) -> Tensor:
        return transpose(reshaped(x, (1,) * (ndim - x.ndim) + x.shape), axes=tuple(axes))

    return _moved(value, table, index)


def _divided(value: Tensor, groups: Sequence[Shape], shape: Shape) -> Tensor:
    """Return what is looked up with the axes of the result split into `groups`."""
    places_left = iter(range(-len(shape), 0))
    split = [[(d, next(places_left)) for d in own] for own in groups]

    def table(x: Tensor, along: Along) -> tuple[Tensor, Along]:
        lengths, places = list[int](), list[int | None]()
        for length, at in zip(x.shape, along, strict=True):
            own: list[tuple[int, int | None]] = [(length, None)] if at is None else [*split[at]]
            if at is not None and is_one(length):  # along one of them it is broadcast
                own = [(1, place) for _, place in own[-1:]]
            lengths += [d for d, _ in own]
            places += [place for _, place in own]
        return reshaped(x, tuple(lengths)), tuple(places)

    def index(x: Tensor) -> Tensor:
        own = zip(groups[len(groups) - x.ndim :], x.shape, strict=True)
        return reshaped(x, tuple(1 if is_one(length) else d for lengths, length in own for d in lengths))

    return _moved(value, table, index)
