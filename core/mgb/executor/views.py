"""Which results of layout ops lie in the memory of their operand, and with which strides, in elements."""

from __future__ import annotations

from collections.abc import Callable

from ..codegen import broadcast_strides, collapse, row_major
from ..ir import Node

Shape = tuple[int, ...]


def view_strides(node: Node, strides: Shape | None = None) -> Shape | None:
    """The strides of what the eager rule of `node` makes of its operand, when that is a view.

    Parameters
    ----------
    node : Node
        Any op.
    strides : tuple of int, optional
        Those of the operand; row-major ones if nothing is said.

    Returns
    -------
    tuple of int or None
        None: the result has memory of its own.
    """
    rule = _RULES.get(node.op.name)
    if rule is None:
        return None
    shape = node.inputs[0].spec.shape
    return rule(shape, row_major(shape) if strides is None else strides, **node.params)


def _reshaped(old: Shape, strides: Shape, shape: Shape) -> Shape | None:
    """Each new axis must be part of one run of old ones that are stepped through evenly; else it copies."""
    if 0 in shape:
        return row_major(shape)
    loops = collapse(old, [strides])
    runs = iter(zip(loops.shape, loops.strides[0], strict=True))
    left, step, found = 1, 0, []
    for length in shape:
        if left == 1 and length > 1:
            left, step = next(runs)
        left, cut = divmod(left, length)
        if cut:
            return None
        found.append(left * step)
    return tuple(found)


def _transposed(_: Shape, strides: Shape, axes: Shape) -> Shape:
    return tuple(strides[a] for a in axes)


def _broadcast(old: Shape, strides: Shape, shape: Shape) -> Shape:
    return broadcast_strides(old, strides, shape)


def _sliced(_: Shape, strides: Shape, window: tuple[tuple[int, int, int], ...]) -> Shape | None:
    if not window:  # NumPy makes a number
        return None
    return tuple(stride * step for stride, (*_ends, step) in zip(strides, window, strict=True))


_RULES: dict[str, Callable[..., Shape | None]] = {
    "reshape": _reshaped,
    "transpose": _transposed,
    "broadcast_to": _broadcast,
    "slice": _sliced,
}
