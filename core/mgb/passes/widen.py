"""16-bit floats are computed in float32, and each result is rounded to its 16 bits, as eager code does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from ..ir import CONST, Graph, Kind, Node, Op, dtypes
from ..ops.primitives import BITCAST, CAST, IOTA, cast, iota
from ..tensor import Tensor, wrap
from ..tensor.apply import apply
from ..tensor.tracing import copy_node, rebuild


@dataclass(frozen=True, slots=True)
class Wide:
    """A value as it is carried.

    `value` never has 16 bits; `narrow` is the same number in 16 bits, where it has been rounded to them.
    """

    value: Tensor
    narrow: Tensor | None = None

    def rounded(self, dtype: np.dtype[np.generic]) -> Tensor:
        """Return the value in `dtype`."""
        if self.narrow is not None and self.narrow.dtype == dtype:
            return self.narrow
        return self.value if self.value.dtype == dtype else cast(self.value, dtype=dtype)


def widen(graph: Graph, rounds: bool = True) -> Graph:
    """Compute narrow floats in float32, and round what each op gives, once.

    The ops of `graph` are those that eager code runs one by one. So this pass runs before any of them
    is decomposed into its body, of which no step is rounded.

    Parameters
    ----------
    graph : Graph
    rounds : bool
        False: only casts, which the user wrote, and products of matrices round between inputs and outputs.
    """
    if not any(n.spec.dtype in dtypes.HALVES for n in (*graph.inputs, *graph.nodes)):
        return graph

    def build(*inputs: Tensor) -> list[Tensor]:
        out = graph.fold(partial(_visit, rounds), [_carry(x) for x in inputs])
        return [wide.rounded(o.spec.dtype) for wide, o in zip(out, graph.outputs, strict=True)]

    return rebuild(build, graph.inputs)


def _carry(value: Tensor) -> Wide:
    if value.dtype not in dtypes.HALVES:
        return Wide(value)
    return Wide(cast(value, dtype=dtypes.float32), value)


def _visit(rounds: bool, node: Node, *inputs: Wide) -> Wide:
    dtype = node.spec.dtype
    if node.op is CONST and dtype in dtypes.HALVES:
        return Wide(wrap(node.params["value"].astype(np.float32), node.spec.device))
    if node.op is IOTA and dtype in dtypes.HALVES:
        return _carry(cast(iota(**{**node.params, "dtype": dtypes.float32}), dtype=dtype))
    if node.op is CAST:
        return _cast(inputs[0], node)
    if node.op is BITCAST:
        (source,) = node.inputs
        return _carry(apply(node.op, inputs[0].rounded(source.spec.dtype), **node.params))
    if not any(i.spec.dtype in dtypes.HALVES for i in (node, *node.inputs)):
        return Wide(copy_node(node, *(i.value for i in inputs)))
    if node.op.kind is Kind.CONTRACT:
        return _contract(node, inputs)
    if node.op.kind is Kind.GATHER:  # what is looked up stays as it lies
        read = inputs[0].rounded(node.inputs[0].spec.dtype)
        return _carry(apply(node.op, read, *(i.value for i in inputs[1:]), **node.params))
    out = apply(node.op, *(i.value for i in inputs), **node.params)
    exact = dtype not in dtypes.HALVES or node.op.kind is Kind.LAYOUT or _is_exact(node.op, dtype)
    return _carry(out if exact or not rounds else cast(out, dtype=dtype))


def _is_exact(op: Op, dtype: np.dtype[np.generic]) -> bool:
    """Return whether `dtype` holds the results of `op`: an extreme of nothing is infinite."""
    return op.exact and (dtypes.ROWS[dtype].infinite or op.kind is not Kind.REDUCE)


def _cast(value: Wide, node: Node) -> Wide:
    dtype = node.spec.dtype
    if dtype in dtypes.HALVES:
        return _carry(value.rounded(dtype))
    return Wide(value.value if value.value.dtype == dtype else cast(value.value, dtype=dtype))


def _contract(node: Node, inputs: tuple[Wide, ...]) -> Wide:
    """Return a product of 16-bit floats, as a library has it.

    Of numbers of 16 bits, and rounded to 16 bits.
    """
    read = [_carry(x.rounded(i.spec.dtype)).value for x, i in zip(inputs, node.inputs, strict=True)]
    out = apply(node.op, *read, **node.params)
    return _carry(out if out.dtype == node.spec.dtype else cast(out, dtype=node.spec.dtype))
