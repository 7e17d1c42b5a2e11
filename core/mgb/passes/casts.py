"""Level 2: casts that lose nothing on the way to another dtype are skipped."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import Graph, Node, dtypes
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


def exact(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Does `target` hold every value of `source`?"""
    if dtypes.bfloat16 in (source, target):
        return source == target or source == dtypes.bool_ or target in (dtypes.float32, dtypes.float64)
    return bool(np.can_cast(source, target, "safe"))
