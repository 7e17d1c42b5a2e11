"""The dtypes of values and of chunks of reductions, the same for every printer."""

from __future__ import annotations

from functools import cache

import numpy as np
from mgb.codegen import accumulator, is_sequential
from mgb.ir import Node, dtypes

#: The dtypes whose values a kernel holds as another one between load and store.
HELD = {d.name: dtypes.ROWS[d].carrier.name for d in dtypes.HALVES}


def held(node: Node) -> str:
    """Return the name of the dtype that a kernel computes the value of `node` in."""
    return _held(node.spec.dtype)


@cache
def _held(dtype: np.dtype[np.generic]) -> str:
    return HELD.get(dtype.name, dtype.name)  # NumPy takes microseconds to spell a name


def wide(fold: Node) -> str:
    """Return the name of the dtype in which chunks are folded."""
    return _held(accumulator(fold))


def parts(scan: Node) -> int:
    """Return how many numbers a scan carries.

    Examples
    --------
    >>> from mgb.ir import Spec, dtypes
    >>> from mgb.ops.scans import cumsum_, logcumsumexp_
    >>> from mgb.tensor.tracing import graph_of
    >>> spec = Spec((8,), dtypes.float32)
    >>> graph = graph_of(lambda x: cumsum_(logcumsumexp_(x, axis=0), axis=0), spec)
    >>> [parts(node) for node in graph.nodes]
    [2, 1]
    """
    if is_sequential(scan):
        carries: int = scan.params["carries"]
        return carries
    return 1 if scan.op.state is None else len(scan.op.state.begin)
