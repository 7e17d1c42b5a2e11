"""Products of matrices over the domain of a kernel, where the inner axis is short."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..ir import Kind, Op, Spec
from ..ir.sizes import broadcast, same_shape
from .declare import declare
from .look_up import Along, reach


def _infer(a: Spec, b: Spec, along: tuple[Along, Along]) -> Spec:
    inner = [
        tuple(d for d, at in zip(x.shape, own, strict=True) if at is None) for x, own in zip((a, b), along)
    ]
    shape = broadcast([reach(x.shape, own) for x, own in zip((a, b), along)])
    if shape is None or len(inner[0]) != 1 or not same_shape(*inner):
        raise ShapeError(f"dot: {a.shape} and {b.shape} do not multiply along {along}")
    return Spec(shape, a.dtype)


def _eager(a: Any, b: Any, along: tuple[Along, Along]) -> Any:
    ndim = -min(at for own in along for at in own if at is not None)
    letters = "".join(map(chr, range(97, 97 + ndim)))
    terms = ["".join("z" if at is None else letters[at] for at in own) for own in along]
    shape = np.broadcast_shapes(*(reach(x.shape, own) for x, own in zip((a, b), along, strict=True)))
    kept = "".join(c for c in letters if any(c in term for term in terms))
    return np.einsum(f"{terms[0]},{terms[1]}->{kept}", a, b, optimize=True).reshape(shape)


dot = declare(
    Op(
        "dot",
        Kind.GATHER,
        _infer,
        _eager,
        differentiable=False,
        meaning="The sums of the products of `a` and `b` along one axis of each. ``along`` has for each axis "
        "of each operand the axis of the result that it lies along, counted from the end, or None for that "
        "which is summed. Kernels get products of matrices with a short inner axis as this; it is not "
        "recorded.",
    )
)
DOT = "dot"
