"""What XLA must not know to be constant.

XLA rewrites floats as if they were real numbers: ``a + (c + d)`` for ``(a + c) + d``, ``a * (c * d)`` for
``(a * c) * d``, an approximate inverse root for ``a / sqrt(b)``; LLVM makes ``b - a * b`` of ``(1 - a) * b``.
The bodies of the core round to a whole number by adding and subtracting one large constant, and scale by a
power of two in two steps so that nothing overflows. In such places an operand is multiplied by a 1 that is
an argument of the program.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jax import lax
from mgb.ir import CONST, Node

from .shapes import Value

#: Ops that add, and ops that multiply, each with the operands that are added or multiplied.
_SUMS = {"add": (0, 1), "sub": (0, 1), "fma": (2,)}
_PRODUCTS = {"mul": (0, 1), "div": (0, 1), "fma": (0, 1)}


def hidden(node: Node, xs: Sequence[Value], one: Value) -> Sequence[Value]:
    """The operands of `node`, times `one` where XLA would calculate with them."""
    if node.spec.dtype.kind not in "fV":
        return xs
    places = {k for family in (_SUMS, _PRODUCTS) for k in _after_another(node, family)}
    if node.op.name in ("add", "sub"):
        places |= {k for k, operand in enumerate(node.inputs) if _is_unit(operand)}
    if node.op.name == "div" and node.inputs[1].op.name == "sqrt":
        places.add(1)
    return [_times(x, one) if k in places else x for k, x in enumerate(xs)]


def _after_another(node: Node, family: dict[str, tuple[int, ...]]) -> list[int]:
    """The constants that are added, or multiplied, after another one was."""
    places = family.get(node.op.name, ())
    if not any(_has_constant(node.inputs[k], family) for k in places):
        return []
    return [k for k in places if node.inputs[k].op is CONST]


def _has_constant(node: Node, family: dict[str, tuple[int, ...]]) -> bool:
    return any(node.inputs[k].op is CONST for k in family.get(node.op.name, ()))


def _is_unit(node: Node) -> bool:
    return node.op is CONST and bool((np.abs(node.params["value"].astype(np.float64)) == 1).all())


def _times(x: Value, one: Value) -> Value:
    factor = lax.convert_element_type(one, x.dtype)
    return lax.mul(x, lax.broadcast_in_dim(factor, x.shape, ()) if x.shape else factor)
