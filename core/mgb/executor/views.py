"""Results of layout ops that are views of their operand, with their strides in elements."""

from __future__ import annotations

from ..ir import Node
from ..ir.strides import row_major

Shape = tuple[int, ...]


def view_strides(node: Node, strides: Shape | None = None) -> Shape | None:
    """Return the strides of what the eager rule of `node` makes of its operand, when that is a view.

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
    if node.op.moves is None:
        return None
    shape = node.inputs[0].spec.shape
    return node.op.moves(shape, row_major(shape) if strides is None else strides, **node.params)


def lying(node: Node) -> Shape:
    """Return the strides of a value of a program whose inputs are row-major."""
    found = view_strides(node, lying(node.inputs[0])) if node.op.moves is not None else None
    return row_major(node.spec.shape) if found is None else found
