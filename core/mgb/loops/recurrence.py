"""Loops whose turns work element by element, as a scan: kernels go along an axis with what they carry."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import LoopError
from ..ir import Body, Kind, Op, Spec
from ..ir.sizes import broadcast
from ..ops.declare import register
from ..runtime.device import array_module
from .bundle import as_they_are
from .ops import run_graph


def _infer(*specs: Spec, axis: int, body: Body, carries: int, reverse: bool) -> Spec:
    shape = broadcast([s.shape for s in specs])
    if shape is None:
        raise LoopError(f"recurrence: operands of shapes {[s.shape for s in specs]} do not broadcast")
    return Spec(shape, body.graph.outputs[carries].spec.dtype)


def _eager(*arrays: Any, axis: int, body: Body, carries: int, reverse: bool) -> Any:
    shape, spec = np.broadcast_shapes(*(x.shape for x in arrays)), body.graph.outputs[carries].spec
    library = array_module(spec.device)
    out = library.empty(shape, spec.dtype)
    given = [np.moveaxis(library.broadcast_to(x, shape), axis, 0) for x in arrays]
    found, carry = np.moveaxis(out, axis, 0), [x[:1] for x in given[:carries]]
    for t in reversed(range(len(found))) if reverse else range(len(found)):
        *carry, row = run_graph(body.graph, (*carry, *(x[t : t + 1] for x in given[carries:])))
        found[t] = row[0] if row.ndim else row
    return out


#: Fusion makes it of a `scan` for backends that print it.
RECURRENCE = register(
    Op(
        "recurrence",
        Kind.SCAN,
        _infer,
        _eager,
        promote=as_they_are,
        differentiable=False,
        meaning="``*carry, y[i] = body(*carry, *xs[i])`` along `axis`, element by element and one after the "
        "other, from the last one if `reverse`. The first `carries` operands are the first carry. It is not "
        "recorded.",
    )
)
