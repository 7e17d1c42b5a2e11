"""Look-ups and scatters lose axes of length 1, which would keep them from sharing a kernel with others.

``x[:, :1]`` of rows that are looked up has the domain (n, 1), what is computed of the indices alone (n,).
Such an axis becomes a reshape behind the op, and `delay_reshapes` moves that out of the way.
"""

from __future__ import annotations

from typing import Any

from ..ir import Graph, Kind, Node
from ..ops.look_up import Along
from ..passes.rewrite import reshaped, rewrite
from ..tensor import Tensor
from ..tensor.apply import apply
from .gathers import LOOK_UP
from .legality import scattered

Shape = tuple[Any, ...]


def squeezed(graph: Graph) -> Graph:
    """Return `graph` with look-ups and scatters over domains without axes of length 1."""
    return rewrite(graph, _rule)


def _rule(node: Node, *values: Tensor) -> Tensor | None:
    if node.op.kind is Kind.SCATTER:
        domain = scattered(node)
    elif node.op is LOOK_UP:
        domain = node.spec.shape
    else:
        return None
    gone = [a - len(domain) for a, d in enumerate(domain) if type(d) is int and d == 1]
    if not 0 < len(gone) < len(domain):
        return None
    along: Along = node.params["along"]
    table = (node if node.op.kind is Kind.SCATTER else node.inputs[0]).spec.shape
    kept = [a for a, at in enumerate(along) if at not in gone]
    params = {"along": tuple(_behind(along[a], gone) for a in kept)}
    small = tuple(table[a] for a in kept)
    if node.op.kind is Kind.SCATTER:
        params["shape"] = small
        inside = [_without(v, gone) for v in values]
    else:
        inside = [reshaped(values[0], small), *(_without(v, gone) for v in values[1:])]
    return reshaped(apply(node.op, *inside, **params), node.spec.shape)


def _behind(at: int | None, gone: list[int]) -> int | None:
    return None if at is None else at + sum(a > at for a in gone)


def _without(value: Tensor, gone: list[int]) -> Tensor:
    return reshaped(value, tuple(d for a, d in enumerate(value.shape, -value.ndim) if a not in gone))
