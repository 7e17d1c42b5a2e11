"""Products of matrices with very few terms are spelled as sums of products of columns and rows.

Three products and two sums take less time than a loop in registers, which has to begin and end for each
vector, and they are like all that stands around them: a kernel that folds the result works on several
vectors side by side, and columns of what is computed are computed in the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from ..ir import Graph, Node
from ..ir.sizes import about
from ..ops.declare import op_of
from ..ops.dot import dot
from ..ops.layout import concat, slice_
from ..ops.look_up import Along
from ..ops.primitives import add, mul
from ..passes.rewrite import reshaped, rewrite
from ..tensor import Tensor

DOT = op_of(dot)

#: The most terms; elements of a result from which their views are worth it, and of its rows; how many times
#: as large it is as what is copied so that its rows lie side by side.
FEW, LARGE, LONG, LARGER = 4, 1 << 17, 1 << 8, 8


def few_terms(graph: Graph) -> Graph:
    """Return `graph` with dots of few terms as sums of products."""
    return rewrite(graph, _rule) if graph.has(DOT) else graph


def _rule(node: Node, *operands: Tensor) -> Tensor | None:
    if node.op is not DOT or about(node.spec.size) < LARGE or about(node.spec.shape[-1]) < LONG:
        return None
    alongs: tuple[Along, Along] = node.params["along"]
    inner = operands[0].shape[alongs[0].index(None)]
    if type(inner) is not int or inner > FEW:
        return None
    lines = [_lines(x, along, node, inner) for x, along in zip(operands, alongs, strict=True)]
    return reduce(add, (mul(a, b) for a, b in zip(*lines, strict=True)))


def _lines(x: Tensor, along: Along, node: Node, count: int) -> list[Tensor]:
    """Return what an operand has of each term, over the axes of the result."""
    axis, shape = along.index(None), [1] * node.spec.ndim
    for length, at in zip(x.shape, along, strict=True):
        if at is not None:
            shape[at] = length
    lies_apart = -1 in along[:axis] and about(x.size) * LARGER <= about(node.spec.size)
    found = [_term(x, axis, k) for k in range(count)]
    return [reshaped(concat(line, axis=0) if lies_apart else line, tuple(shape)) for line in found]


def _term(x: Tensor, axis: int, k: int) -> Tensor:
    window: Sequence[Any] = [(k, k + 1, 1) if a == axis else (0, d, 1) for a, d in enumerate(x.shape)]
    return slice_(x, window=tuple(window))
