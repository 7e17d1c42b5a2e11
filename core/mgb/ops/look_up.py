"""Elements at places that other values say, over the domain of a kernel: indexing by arrays, when fused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..ir import Kind, Node, Op, Spec
from ..ir.sizes import broadcast
from .declare import declare
from .eager import take as eager_take

#: For each axis of what is looked up where it lies among the axes of the result, counted from the end; None:
#: it is reached by an index.
Along = tuple[int | None, ...]


def reach(shape: Sequence[Any], along: Along, ones: Any = 1) -> tuple[Any, ...]:
    """Return the entries of the axes that no index reaches, by the axes of the result; elsewhere `ones`.

    Examples
    --------
    >>> from mgb.codegen import reach
    >>> reach((50, 8, 3), (None, -1, -3))
    (3, 1, 8)
    """
    placed = {at: length for at, length in zip(along, shape, strict=True) if at is not None}
    return tuple(placed.get(at, ones) for at in range(min(placed, default=0), 0))


def alongs(node: Node) -> tuple[Along, ...]:
    """Return how the axes of each table of `node`, of kind GATHER, lie along those of its result.

    Examples
    --------
    >>> from mgb.codegen import alongs
    >>> from mgb.ir import Spec
    >>> from mgb.ops.dot import dot
    >>> from mgb.tensor.tracing import graph_of
    >>> a, b = (Spec(shape, np.dtype("float32")) for shape in ((50, 4), (4, 9)))
    >>> alongs(graph_of(lambda a, b: dot(a, b, along=((-2, None), (None, -1))), a, b).nodes[0])
    ((-2, None), (None, -1))
    """
    along = node.params["along"]
    return along if isinstance(along[0], tuple) else (along,)


def tables_of(node: Node) -> tuple[Node, ...]:
    """Return the operands of `node`, of kind GATHER, that it reads at other places than its own."""
    return node.inputs[: len(alongs(node))]


def _infer(x: Spec, *indices: Spec, along: Along) -> Spec:
    shape = broadcast([reach(x.shape, along), *(i.shape for i in indices)])
    if shape is None:
        shapes = [i.shape for i in indices]
        raise ShapeError(f"look_up: indices of shapes {shapes} do not fit {x.shape} along {along}")
    return Spec(shape, x.dtype)


def _eager(x: Any, *indices: Any, along: Along) -> Any:
    ndim = max(i.ndim for i in indices)
    ndim = max(ndim, -min((at for at in along if at is not None), default=0))
    if len(indices) == 1 and (taken := _taken(x, indices[0], along, ndim)) is not None:
        return taken
    return x[key_of(x.shape, indices, along)]


def key_of(shape: Sequence[int], indices: Sequence[Any], along: Along) -> tuple[Any, ...]:
    """Return what stands in square brackets behind an array of `shape` that indices reach.

    Examples
    --------
    >>> from mgb.ops.look_up import key_of
    >>> [part.tolist() for part in key_of((50, 2), [np.array([[7], [9]])], (None, -1))]
    [[[7], [9]], [0, 1]]
    """
    given = iter(indices)
    return tuple(
        next(given) if at is None else np.arange(d, like=indices[0]).reshape((d,) + (1,) * (-1 - at))
        for d, at in zip(shape, along, strict=True)
    )


def _taken(x: Any, index: Any, along: Along, ndim: int) -> Any:
    """Return the result by NumPy's ``take``, where its axes are in order: much faster."""
    place, rest = along.index(None), [at for at in along if at is not None]
    spread = index.reshape((1,) * (ndim - index.ndim) + index.shape)
    if any(spread.shape[at] != 1 for at in rest) or rest != sorted(rest):
        return None
    before, after = rest[:place], rest[place:]
    inside = range(-ndim if not before else before[-1] + 1, 0 if not after else after[0])
    if len(rest) + len(inside) != ndim:
        return None
    return eager_take(x, spread.reshape(tuple(spread.shape[at] for at in inside)), place)


look_up = declare(
    Op(
        "look_up",
        Kind.GATHER,
        _infer,
        _eager,
        differentiable=False,
        cost=lambda _node: 0,
        picks=True,
        exact=True,
        meaning="The elements of `x` at the places that the indices say. ``along`` has for each axis of `x` "
        "the axis of the result that it lies along, counted from the end, or None: then the next of the "
        "indices, which broadcast to the result, has the place along it. Negative places count from the end; "
        "one out of range is an IndexError. Kernels get indexing by arrays as this; it is not recorded.",
    )
)
LOOK_UP = "look_up"
