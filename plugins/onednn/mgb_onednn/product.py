"""Matrix products."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mgb.tensor.libraries import Layout

from .chain import Chain
from .layouts import Axes, Shape, memory_order, strides_in
from .native import Arg, Native

#: Multiplications up to which a product is NumPy's: BLAS answers sooner, and on one thread.
SMALL = 1 << 18

#: Multiplications that are worth a thread. To wake one takes as long as some hundred thousand of them.
PER_THREAD = 1 << 21

#: A single product with so few rows or columns, as that with a vector, reads memory more than it computes:
#: BLAS reads it sooner.
THIN = 8


def factors(operands: Sequence[Layout], params: Mapping[str, Any]) -> tuple[Layout, Layout]:
    """Return the operands of ``matmul`` as they are multiplied."""
    a, b = operands
    return (
        transposed(a) if params.get("transpose_a") else a,
        transposed(b) if params.get("transpose_b") else b,
    )


def transposed(layout: Layout) -> Layout:
    """Return the last two axes exchanged."""
    shape, strides = layout.shape, layout.strides
    return replace(layout, shape=(*shape[:-2], *shape[:-3:-1]), strides=(*strides[:-2], *strides[:-3:-1]))


def is_product(a: Layout, b: Layout) -> bool:
    """Return whether ``a @ b`` is a product of matrices, or of stacks of the same shape, and large enough."""
    stacks = a.shape[:-2], b.shape[:-2]
    return stacks[1] in (stacks[0], ()) and multiplications(a, b) > SMALL and not is_thin(a, b)


def multiplications(a: Layout, b: Layout) -> int:
    """Return how many multiplications ``a @ b`` takes."""
    return math.prod(a.shape) * b.shape[-1]


def is_thin(a: Layout, b: Layout) -> bool:
    """Return whether it is one matrix times another, with few rows or columns and long sums."""
    return len(a.shape) == len(b.shape) == 2 and min(a.shape[0], b.shape[1]) <= THIN < a.shape[1]


def collapsed(a: Layout) -> Layout | None:
    """Return `a` as one matrix with all rows of its stack; None when one stride does not reach them all."""
    for i in range(len(a.shape) - 2):
        if a.shape[i] != 1 and a.strides[i] != a.strides[i + 1] * a.shape[i + 1]:
            return None
    return Layout((math.prod(a.shape[:-1]), a.shape[-1]), a.strides[-2:], a.dtype)


def order_of_product(b: Layout) -> Axes:
    """Return the order in memory of the axes of ``a @ b``: that of `b` if its rows are dense, else row-major.

    Heads of attention are a view of (batch, time, heads, width): so is then what is computed from them, and
    to put the heads side by side again costs nothing.
    """
    order = memory_order(b)
    return order if order[-1] == len(order) - 1 else tuple(range(len(order)))


def product(native: Native, a: Layout, b: Layout, threads: int) -> Chain | None:
    """Return a chain over `a`, `b` and an output in `order_of_product`, on as many threads at most.

    None when rows of `a` lie too far apart.
    """
    threads = max(1, min(threads, multiplications(a, b) // PER_THREAD))
    rows = a
    if len(b.shape) < len(a.shape):
        found = collapsed(a)
        if found is None:
            return None
        rows = found
    shape: Shape = (*rows.shape[:-1], b.shape[-1])
    item = a.dtype.itemsize
    layouts = [(o.shape, [s // item for s in o.strides]) for o in (rows, b)] + [
        (shape, strides_in(order_of_product(b), shape))
    ]
    described = [native.layout(*layout, a.dtype.name) for layout in layouts]
    left, right, out = described
    with native.threads(threads):
        create = "dnnl_matmul_primitive_desc_create"
        description = native.make(create, native.engine, left, right, None, out, native.attributes)
    roles = (Arg.SRC, Arg.WEIGHTS, Arg.DST)
    return Chain("matmul", native, description, list(zip(roles, described, strict=True)), threads)
