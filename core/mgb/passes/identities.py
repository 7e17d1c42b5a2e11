"""Level 1: identities of arithmetic, and formulas that have an op of their own.

Those of `identities` hold for every number, NaN, infinities and signed zeros too; ``log(exp(x))`` and its
kin do not overflow any more. Those of `finite_identities`, such as ``x - x == 0`` and ``x + 0 == x``, which
is 0 for x = -0, hold only for some; MegEngine applies them always, we when the user asks for fast math.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ..ir import INPUT, Graph, Kind, Node
from ..ir.dtypes import COMPLEX, FLOATS, HALVES
from ..ir.sizes import same_shape
from ..ops.declare import OPS
from ..ops.primitives import CAST
from ..tensor import Tensor
from ..tensor.apply import apply
from .rewrite import Rule, by_name, constant_of, full, inputs_of, node_of, rewrite, shaped


def identities(graph: Graph) -> Graph:
    """Apply the identities that always hold once to every node."""
    return rewrite(graph, _RULE)


def finite_identities(graph: Graph) -> Graph:
    """Apply the identities that hold for finite numbers, up to the sign of a zero, once to every node."""
    return rewrite(graph, _FINITE_RULE)


def _is(value: Tensor, number: float) -> bool:
    known = constant_of(node_of(value))
    return known is not None and bool(known == number)


def _has_sign(value: Tensor, negative: bool) -> bool:
    """Return whether it is a constant zero of this sign, or one of a dtype without signed zeros."""
    known = constant_of(node_of(value))
    if known is None or not _is(value, 0):
        return False
    if value.dtype in COMPLEX:
        return bool(np.signbit(known.real) == negative and np.signbit(known.imag) == negative)
    return value.dtype not in FLOATS or bool(np.signbit(np.float64(known)) == negative)


def _named(name: str, *args: Tensor) -> Tensor:
    return apply(OPS[name], *args)


# rules that are made to measure


def _same(number: float) -> Rule:
    """Make the rule that an op on x and x gives `number`."""
    return lambda node, a, b: full(number, node.spec) if node_of(a) is node_of(b) else None


def _left(number: float) -> Rule:
    """Make the rule that `number` on the left changes nothing."""
    return lambda node, a, b: shaped(b, node.spec.shape) if _is(a, number) else None


def _right(number: float) -> Rule:
    """Make the rule that `number` on the right changes nothing."""
    return lambda node, a, b: shaped(a, node.spec.shape) if _is(b, number) else None


def _add_zero(node: Node, a: Tensor, b: Tensor) -> Tensor | None:
    """Remove an addition of -0, the only number that changes nothing: -0 + 0 is 0."""
    if _has_sign(a, negative=True):
        return shaped(b, node.spec.shape)
    return shaped(a, node.spec.shape) if _has_sign(b, negative=True) else None


def _subtract_zero(node: Node, a: Tensor, b: Tensor) -> Tensor | None:
    """Remove a subtraction of 0, the only number that changes nothing: -0 - (-0) is 0."""
    return shaped(a, node.spec.shape) if _has_sign(b, negative=False) else None


def _absorbing(number: float) -> Rule:
    """Make the rule that `number` on either side is the result."""
    return lambda node, a, b: full(number, node.spec) if _is(a, number) or _is(b, number) else None


def _undoes(name: str) -> Rule:
    """Return the op of that name is its inverse."""

    def rule(_node: Node, x: Tensor) -> Tensor | None:
        inner = inputs_of(x, OPS[name])
        return None if inner is None else inner[0]

    return rule


def _integer(rule: Rule) -> Rule:
    """Restrict `rule` to integers: there it always holds."""
    return lambda node, *values: rule(node, *values) if node.spec.dtype.kind in "iu" else None


def _real(rule: Rule) -> Rule:
    """Restrict `rule` to where no complex number has several logarithms."""
    return lambda node, *values: None if node.spec.dtype in COMPLEX else rule(node, *values)


def _of_many_digits(rule: Rule) -> Rule:
    """Restrict `rule` where it would leave out a rounding to 16 bits that eager code has, which shows."""
    return lambda node, *values: None if node.spec.dtype in HALVES else rule(node, *values)


# rules for one op


def _either(_node: Node, a: Tensor, b: Tensor) -> Tensor | None:
    return a if node_of(a) is node_of(b) else None


def _branches(node: Node, _condition: Tensor, a: Tensor, b: Tensor) -> Tensor | None:
    return shaped(a, node.spec.shape) if node_of(a) is node_of(b) else None


def _power_zero(node: Node, _x: Tensor, exponent: Tensor) -> Tensor | None:
    return full(1, node.spec) if _is(exponent, 0) else None


def _whole(node: Node, x: Tensor, divisor: Tensor) -> Tensor | None:
    if not _is(divisor, 1):
        return None
    return shaped(_named("floor", x) if x.dtype in FLOATS else x, node.spec.shape)


def _expm1(_node: Node, a: Tensor, b: Tensor) -> Tensor | None:
    power = inputs_of(a, OPS["exp"])
    return _named("expm1", power[0]) if power and _is(b, 1) and b.ndim <= a.ndim else None


def _log_of_sum(_node: Node, x: Tensor) -> Tensor | None:
    terms = inputs_of(x, OPS["add"])
    if terms is None:
        return None
    a, b = terms
    powers = inputs_of(a, OPS["exp"]), inputs_of(b, OPS["exp"])
    if powers[0] and powers[1]:
        return _named("logaddexp", powers[0][0], powers[1][0])
    if _is(a, 1) and same_shape(x.shape, b.shape):
        return _named("log1p", b)
    return _named("log1p", a) if _is(b, 1) and same_shape(x.shape, a.shape) else None


def _log_of_product(_node: Node, x: Tensor) -> Tensor | None:
    a, b = inputs_of(x, OPS["mul"]) or (x, x)
    for power, factor in ((inputs_of(a, OPS["exp"]), b), (inputs_of(b, OPS["exp"]), a)):
        if power and factor is not x:
            return _named("add", power[0], _named("log", factor))
    return None


def _log_of_quotient(_node: Node, x: Tensor) -> Tensor | None:
    a, b = inputs_of(x, OPS["div"]) or (x, x)
    power = inputs_of(a, OPS["exp"]) if a is not x else None
    return _named("sub", power[0], _named("log", b)) if power else None


def _whole_window(node: Node, x: Tensor) -> Tensor | None:
    """Remove a border of no elements; that of an argument is a copy of it."""
    is_whole = all(w == (0, d, 1) for w, d in zip(node.params["window"], x.shape, strict=True))
    return (
        x
        if is_whole and same_shape(x.shape, node.spec.shape) and _viewed(node_of(x)).op is not INPUT
        else None
    )


# fmt: off
_TABLE: dict[str, tuple[Rule, ...]] = {
    "add":         (_add_zero,),
    "sub":         (_integer(_same(0)), _subtract_zero, _of_many_digits(_expm1)),
    "mul":         (_left(1), _right(1), _integer(_absorbing(0))),
    "div":         (_right(1),),
    "floor_div":   (_whole,),
    "pow":         (_power_zero, _right(1)),
    "neg":         (_undoes("neg"),),
    "logical_not": (_undoes("logical_not"),),
    "maximum":     (_either,),
    "minimum":     (_either,),
    "where":       (_branches,),
    "unslice":     (_whole_window,),
    "log":         tuple(_of_many_digits(_real(rule)) for rule in
                          (_undoes("exp"), _log_of_sum, _log_of_product, _log_of_quotient)),
}
_FINITE: dict[str, tuple[Rule, ...]] = {
    "add":         (_left(0), _right(0)),
    "sub":         (_same(0), _right(0)),
    "mul":         (_absorbing(0),),
    "div":         (_same(1),),
    "floor_div":   (_same(1),),
}
# fmt: on
_RULE = by_name(_TABLE)
_FINITE_RULE = by_name(_FINITE)


def own_results(before: Graph, after: Graph, updated: Collection[int] = ()) -> Graph:
    """Copy inputs in `after` where `before`, of which it was made, computed a value of its own.

    So no result shares memory with an argument that it does not share memory with in eager code.

    Parameters
    ----------
    before, after : Graph
    updated : collection of int
        The places of outputs that replace an input: nobody sees these beside it.
    """
    pairs = enumerate(zip(before.outputs, after.outputs))
    outputs = tuple(
        Node(CAST, (new,), {"dtype": new.spec.dtype}, new.spec, old.source)
        if place not in updated and _viewed(new).op is INPUT and _viewed(old).op is not INPUT
        else new
        for place, (old, new) in pairs
    )
    return after.ending_in(outputs)


def _viewed(node: Node) -> Node:
    """Return the node that `node` may be a view of."""
    while node.op.kind is Kind.LAYOUT and len(node.inputs) == 1:
        (node,) = node.inputs
    return node
