"""Level 2: casts that lose nothing on the way to another dtype are skipped."""

from __future__ import annotations

from ..ir import Graph, Node
from ..ir.dtypes import exact
from ..ops.primitives import CAST, cast
from ..tensor import Tensor
from .rewrite import by_name, inputs_of, rewrite


def skip_casts(graph: Graph) -> Graph:
    """Drop casts that change nothing, and the first of two where its dtype holds every value exactly."""
    return rewrite(graph, by_name({"cast": (_skip,)})) if graph.has(CAST) else graph


def _skip(node: Node, x: Tensor) -> Tensor | None:
    wanted = node.spec.dtype
    inner = inputs_of(x, CAST)
    source = inner[0] if inner and exact(inner[0].dtype, x.dtype) else x
    if source.dtype == wanted:
        return source
    return cast(source, dtype=wanted) if source is not x else None
