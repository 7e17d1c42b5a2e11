"""Words that are an instruction for some operands only, or for none, as graphs of others."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np

from ..ir import Graph, Op, Spec, dtypes
from ..ops.bodies.division import remainder
from ..ops.declare import OPS, arity
from ..tensor.tracing import graph_of
from .text import Spelling, Table, expression


@cache
def guard(op: Op, dtype: np.dtype[Any]) -> Graph:
    """Return an op that has a `guard`, as a graph from its operands; the op itself is the instruction in it.

    A backend folds it by its own words, and prints the op inside as its plain instruction.

    Examples
    --------
    >>> from mgb import dtypes
    >>> from mgb.codegen import OPS, guard
    >>> [n.op.name for n in guard(OPS["shl"], dtypes.int32).nodes]
    ['const', 'bit_and', 'shl']
    """
    assert op.guard is not None
    return graph_of(op.guard, *[Spec((), dtype)] * arity(op))


def guarded(table: Table) -> dict[str, Spelling]:
    """Return a table of instructions, ``(node, *operands) -> value`` or text, with the guards of their ops.

    Examples
    --------
    >>> from mgb import dtypes
    >>> from mgb.codegen import OPS, expression, guard, guarded
    >>> table = guarded({"shl": "({0} << {1})", "bit_and": "({0} & {1})", "const": lambda _node: "31"})
    >>> expression(guard(OPS["shl"], dtypes.int32).nodes[-1], "xn", table)
    '(x << (n & 31))'
    """

    def spell(node: Any, *operands: Any) -> Any:
        graph = guard(node.op, node.spec.dtype)
        (found,) = graph.fold(lambda inner, *xs: expression(inner, xs, table), operands)
        return found

    return {**table, **dict.fromkeys((n for n in table if n in OPS and OPS[n].guard is not None), spell)}


@cache
def long_division(fused: bool) -> Graph:
    """Return the remainder of the sizes of two float32 as a graph of float64, without a call or a branch.

    Parameters
    ----------
    fused : bool
        Does `fma` round once? Then there are 6 steps, not 10.

    Examples
    --------
    >>> from mgb.codegen import long_division
    >>> [sum(n.op.name == "fma" for n in long_division(fused).nodes) for fused in (True, False)]
    [12, 20]
    """
    return graph_of(partial(remainder, fused=fused), *[Spec((), dtypes.float64)] * 2)
