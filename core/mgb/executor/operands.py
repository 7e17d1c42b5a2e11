"""Operands and callables of a program other than kernels: constants, eager rules, copies into a layout."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import itemgetter, methodcaller
from typing import Any

import numpy as np

from ..fusion import NUMBER
from ..ir import CONST, Kind, Node, Op
from ..ir.dtypes import HALVES
from ..ir.sizes import At, is_sized, plain
from ..ops.layout import SLICE, TRANSPOSE, slices
from ..runtime.device import is_gpu, place
from ..tensor.apply import evaluate
from ..tensor.libraries import Rule


def constant(node: Node, at: At = plain) -> Any:
    """Return the row-major read-only array of a constant, on its device."""
    shape, given = at(node.spec.shape), at(node.params["value"])
    value = np.broadcast_to(np.asarray(given, node.spec.dtype), shape)
    array = np.ascontiguousarray(value).reshape(shape)
    array.flags.writeable = False
    return place(array, node.spec.device)


#: Views that are made again and again, without Python in between.
_PREPARED: dict[Op, Callable[..., Callable[[Any], Any]]] = {
    SLICE: lambda window: itemgetter(slices(window)),
    TRANSPOSE: lambda axes: methodcaller("transpose", axes),
}


def eager_rule(node: Node, at: At = plain) -> Callable[..., Any]:
    """Return a function of arrays that gives the value of `node`."""
    op, params = node.op, at(dict(node.params))
    half = any(n.spec.dtype in HALVES for n in (node, *node.inputs))
    if op.kind is Kind.LEAF:
        return lambda: place(evaluate(op, (), params), node.spec.device)
    if op.eager is None or (half and op.kind is not Kind.LAYOUT):
        return lambda *arrays: evaluate(op, arrays, params)
    if op in _PREPARED:
        return _PREPARED[op](**params)
    if isinstance(op.eager, Rule) and not is_gpu(node.spec.device):
        return op.eager.bound(**params)
    return partial(op.eager, **params) if params else op.eager


def begin_rule(node: Node, at: At = plain) -> Callable[..., Any]:
    """Return a function of arrays that begins to compute `node`, a node of an op with a `begin`."""
    assert node.op.begin is not None
    return partial(node.op.begin, **at(dict(node.params)))


def follows_lengths(node: Node) -> bool:
    """Return whether `constant` or `eager_rule` give something else for `node` if lengths differ."""
    specs = [n.spec for n in node.inputs] if isinstance(node.op.eager, Rule) else []
    specs += [node.spec] if node.op in (CONST, NUMBER) else []
    return is_sized(dict(node.params)) or any(is_sized(spec.shape) for spec in specs)


def monotone(array: Any) -> Any:
    """Return `array`, or a row-major copy where its strides grow along the axes or are negative."""
    if array.flags.c_contiguous:
        return array
    strides = [s for s, d in zip(array.strides, array.shape, strict=True) if s != 0 and d != 1]
    if all(s > 0 for s in strides) and strides == sorted(strides, reverse=True):
        return array
    return array.copy(order="C")
