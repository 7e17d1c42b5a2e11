"""Level 2: cheaper spellings of arithmetic. Results may differ in the last place."""

from __future__ import annotations

from collections.abc import Callable

from ..ir import Graph, Node
from ..ir.dtypes import FLOATS
from ..ops.bodies.floats import widen_halves
from ..ops.declare import op_of
from ..ops.primitives import add, div, mul, neg, sqrt, sub
from ..tensor import Tensor
from .rewrite import Rule, by_name, constant_of, inputs_of, node_of, rewrite, shaped

_NEG = op_of(neg)

#: The powers that are cheaper as something else.
POWERS: dict[float, Callable[[Tensor], Tensor]] = {
    2.0: lambda x: mul(x, x),
    3.0: lambda x: mul(mul(x, x), x),
    0.5: sqrt,
    -0.5: lambda x: div(1.0, sqrt(x)),
    -1.0: lambda x: div(1.0, x),
    -2.0: lambda x: div(1.0, mul(x, x)),
    -3.0: lambda x: div(1.0, mul(mul(x, x), x)),
}


def arithmetic(graph: Graph) -> Graph:
    """Apply the table below once to every node."""
    return rewrite(graph, _RULE)


def _power(node: Node, x: Tensor, exponent: Tensor) -> Tensor | None:
    known = constant_of(node_of(exponent))
    if known is None or x.dtype not in FLOATS or float(known) not in POWERS:
        return None
    power = widen_halves(POWERS[float(known)])  # which rounds once, as the one op does
    return shaped(power(x), node.spec.shape)


def _add_negative(_node: Node, a: Tensor, b: Tensor) -> Tensor | None:
    if minus := inputs_of(b, _NEG):
        return sub(a, minus[0])
    minus = inputs_of(a, _NEG)
    return sub(b, minus[0]) if minus else None


def _sub_negative(_node: Node, a: Tensor, b: Tensor) -> Tensor | None:
    minus = inputs_of(b, _NEG)
    return add(a, minus[0]) if minus else None


def _both_negative(op: Callable[..., Tensor]) -> Rule:
    def rule(_node: Node, a: Tensor, b: Tensor) -> Tensor | None:
        left, right = inputs_of(a, _NEG), inputs_of(b, _NEG)
        return op(left[0], right[0]) if left and right else None

    return rule


def _minus_one(node: Node, a: Tensor, b: Tensor) -> Tensor | None:
    for x, factor in ((a, b), (b, a)):
        known = constant_of(node_of(factor))
        if known is not None and known == -1:
            return shaped(neg(x), node.spec.shape)
    return None


# fmt: off
_TABLE: dict[str, tuple[Rule, ...]] = {
    "pow": (_power,),
    "add": (_add_negative,),
    "sub": (_sub_negative,),
    "mul": (_both_negative(mul), _minus_one),
    "div": (_both_negative(div),),
}
# fmt: on
_RULE = by_name(_TABLE)
