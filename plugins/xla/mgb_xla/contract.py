"""Matrix products."""

from __future__ import annotations

from jax import lax
from mgb.ir import Node

from .arithmetic import Word
from .shapes import Value, spread


def _matmul(node: Node, a: Value, b: Value) -> Value:
    batch = node.spec.shape[:-2]
    inner_a = -2 if node.params.get("transpose_a") else -1
    inner_b = -1 if node.params.get("transpose_b") else -2
    if len(b.shape) == 2:  # one product of many rows
        return dot(a, b, inner_a, inner_b, 0)
    a, b = spread(a, (*batch, *a.shape[-2:])), spread(b, (*batch, *b.shape[-2:]))
    return dot(a, b, inner_a, inner_b, len(batch))


def dot(a: Value, b: Value, of_a: int, of_b: int, batches: int) -> Value:
    """Return the products over these axes, counted from the end, for each index of `batches` axes."""
    shared = tuple(range(batches))
    sums = ((len(a.shape) + of_a,), (len(b.shape) + of_b,))
    return lax.dot_general(
        a, b, (sums, (shared, shared)), precision=lax.Precision.HIGHEST, preferred_element_type=a.dtype
    )


WORDS: dict[str, Word] = {"matmul": _matmul}
