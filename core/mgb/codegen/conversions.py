"""Casts to and from narrow floats as graphs of plain ops, for backends that have no instruction for them."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np

from ..ir import Graph, Spec, dtypes
from ..ops.bodies.narrow import narrow_bits, widen_bits
from ..tensor.tracing import graph_of


@cache
def narrowing(dtype: np.dtype[Any]) -> Graph:
    """Return the cast of a float32 to a narrow float: a graph from the number to its bits.

    A backend folds it by its own words where a value of such a dtype is stored or rounded. The ops are of
    those that every backend prints: bits and shifts, sums, comparisons, `where`, `cast` and `bitcast`.

    Examples
    --------
    >>> from mgb import dtypes
    >>> graph = narrowing(dtypes.bfloat16)
    >>> [str(n.spec) for n in (*graph.inputs, *graph.outputs)]
    ['float32[]', 'uint16[]']
    """
    return graph_of(partial(narrow_bits, row=dtypes.ROWS[dtype]), Spec((), dtypes.float32))


@cache
def widening(dtype: np.dtype[Any]) -> Graph:
    """Return the cast of a narrow float to float32: a graph from the bits to the number.

    Examples
    --------
    >>> from mgb import dtypes
    >>> sorted({n.op.name for n in widening(dtypes.bfloat16).nodes} - {"const"})
    ['bitcast', 'cast', 'shl']
    """
    row = dtypes.ROWS[dtype]
    return graph_of(partial(widen_bits, row=row), Spec((), row.word))
