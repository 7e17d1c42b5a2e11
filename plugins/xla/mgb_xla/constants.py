"""Constants and products that are hidden from XLA's rewrites.

XLA rewrites floats as if they were real numbers: ``a + (c + d)`` for ``(a + c) + d``, ``a * (c * d)`` for
``(a * c) * d``; LLVM makes ``b - a * b`` of ``(1 - a) * b``, and one rounding of the two of ``a * b + c``, so
that a product that overflows does not. The bodies of the core round to a whole number by adding and
subtracting one large constant, and scale by a power of two in two steps so that nothing overflows. In such
places an operand is multiplied by a 1 that is an argument of the program. To a product -0 times that 1 is
added: LLVM contracts these two, which rounds as the product alone does and costs what the product did.

An ``fma`` is a product and a sum for XLA, and LLVM makes one of them where nothing else reads the product.
So a body that asks what a product lost in rounding, ``fma(a, b, -(a * b))``, must not share that product.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jax import lax
from mgb.ir import CONST, Kind, Node

from .shapes import Value, number, spread

#: Ops that add, and ops that multiply, each with the operands that are added or multiplied.
_SUMS = {"add": (0, 1), "sub": (0, 1), "fma": (2,)}
_PRODUCTS = {"mul": (0, 1), "div": (0, 1), "fma": (0, 1)}

#: Ops that add what they read, each with the operands that must be rounded before; of the arms of a `where`,
#: ``a * c`` and ``b * c``, LLVM makes one product, which it joins with a sum that follows.
_ADDENDS = {
    "add": (0, 1), "sub": (0, 1), "where": (1, 2), "reduce_sum": (0,), "floor_div": (0,), "mod": (1,),
}  # fmt: skip


def hidden(node: Node, xs: Sequence[Value], one: Value) -> Sequence[Value]:
    """Return the operands of `node`, times `one` where XLA would calculate with them."""
    if node.spec.dtype.kind not in "fV":
        return xs
    places = {k for family in (_SUMS, _PRODUCTS) for k in _after_another(node, family)}
    products = {k for k in _ADDENDS.get(node.op.name, ()) if _is_product(node.inputs[k])}
    if node.op.name == "reduce_sum" and _is_square(node.inputs[0]):
        products = set()
    if node.op.name in ("add", "sub"):
        places |= {k for k, operand in enumerate(node.inputs) if _is_unit(operand)}
    if node.op.name == "div" and node.inputs[0].op is CONST:  # `arithmetic` hides the divisor behind it
        places.add(0)
    if node.op.name == "fma" and _is_rest(node):
        places.add(0)
    hide = [_times if k in places else _rounded if k in products else _same for k in range(len(xs))]
    return [how(x, one) for how, x in zip(hide, xs, strict=True)]


def _after_another(node: Node, family: dict[str, tuple[int, ...]]) -> list[int]:
    """Return the constants that are added, or multiplied, after another one was."""
    places = family.get(node.op.name, ())
    if not any(_has_constant(node.inputs[k], family) for k in places):
        return []
    return [k for k in places if node.inputs[k].op is CONST]


def _has_constant(node: Node, family: dict[str, tuple[int, ...]]) -> bool:
    return any(node.inputs[k].op is CONST for k in family.get(node.op.name, ()))


def _is_unit(node: Node) -> bool:
    return node.op is CONST and bool((np.abs(node.params["value"].astype(np.float64)) == 1).all())


def _moved(node: Node) -> set[Node]:
    """Return the nodes with the elements of `node`, signs and layout apart; joined arrays are several."""
    found, waiting, seen = set(), [node], {node}
    while waiting:
        here = waiting.pop()
        if (here.op.kind is Kind.LAYOUT or here.op.name == "neg") and here.inputs:
            waiting += [n for n in here.inputs if n not in seen]
            seen |= {*here.inputs}
        else:
            found.add(here)
    return found


def _is_product(node: Node) -> bool:
    return any(n.op.name == "mul" for n in _moved(node))


def _is_square(node: Node) -> bool:
    """Return whether it sums squares, for which XLA's kernel is twice as fast and loses no overflow."""
    moved = _moved(node)
    return len(moved) == 1 and all(n.op.name == "mul" and n.inputs[0] is n.inputs[1] for n in moved)


def _is_rest(node: Node) -> bool:
    """Return whether it is a product less what it is rounded to; it must not share the multiplication."""
    *factors, other = node.inputs
    rounded = other.inputs[0] if other.op.name == "neg" else other
    return rounded.op.name == "mul" and set(rounded.inputs) == set(factors)


def _same(x: Value, _one: Value) -> Value:
    return x


def _times(x: Value, one: Value) -> Value:
    return lax.mul(x, spread(lax.convert_element_type(one, x.dtype), x.shape))


def _rounded(x: Value, one: Value) -> Value:
    zero = lax.mul(lax.convert_element_type(one, x.dtype), number(-0.0, x.dtype))
    return lax.add(x, spread(zero, x.shape))
