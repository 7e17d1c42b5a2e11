"""Attention without its weights: the op of a library that computes them in parts and keeps none.

``softmax(q @ k.T) @ v`` in simpler ops stores a weight for each pair of places. Where a library takes these
ops, memory grows with the length, not with its square, and the weights never leave the caches.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir import Kind, Op, Spec, dtypes
from ...runtime.precision import LOW
from ...tensor import Tensor
from ...tensor.libraries import Rule
from ..bodies.transcendental import exp
from ..declare import FLOATING, declare, op_of
from ..layout import concat, cut_along, reshape, transpose
from ..primitives import iota, le, where
from ..reduce import reduce_max, reduce_sum
from .contract import matmul


def below(x: Tensor, diagonal: int = 0) -> Tensor:
    """Return a mask of the elements on or below a diagonal of the matrices in `x`."""
    rows, columns = x.shape[-2:]
    row = iota(shape=(rows, 1), dtype=dtypes.int32, device=x._device)
    return le(iota(shape=(1, columns), dtype=dtypes.int32, device=x._device), row + diagonal)


# shapes


def _infer(q: Spec, k: Spec, v: Spec, causal: bool) -> Spec:
    if min(q.ndim, k.ndim, v.ndim) < 2 or not (
        q.shape[:-2] == k.shape[:-2] == v.shape[:-2]
        and q.shape[-1] == k.shape[-1]
        and k.shape[-2] == v.shape[-2]
    ):
        raise ShapeError(
            f"attention: queries of {q.shape}, keys of {k.shape} and values of {v.shape} do not fit"
        )
    return Spec((*q.shape[:-1], v.shape[-1]), q.dtype)


def _gradient_infer(g: Spec, q: Spec, k: Spec, v: Spec, causal: bool) -> Spec:
    out = _infer(q, k, v, causal)
    if g.shape != out.shape:
        raise ShapeError(f"attention_grad: the gradient has shape {g.shape}, attention gives {out.shape}")
    return Spec((q.size + k.size + v.size,), q.dtype)


def _exchanged(ndim: int) -> tuple[int, ...]:
    """Return the axes with heads and places exchanged, where there are heads."""
    axes = tuple(range(ndim))
    return axes if ndim < 3 else (*axes[:-3], ndim - 2, ndim - 3, ndim - 1)


# over NumPy


def _weights_eager(q: Any, k: Any, causal: bool) -> Any:
    scores = q @ k.swapaxes(-1, -2)
    if causal:
        below = np.tri(*scores.shape[-2:], dtype=np.bool_, like=scores)
        scores = np.where(below, scores, scores.dtype.type(-math.inf))
    most = scores.max(axis=-1, keepdims=True) if scores.shape[-1] else 0
    weights = np.exp(scores - most)
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


def _eager(q: Any, k: Any, v: Any, causal: bool) -> Any:
    return _weights_eager(q, k, causal) @ v


def _gradient_eager(g: Any, q: Any, k: Any, v: Any, causal: bool) -> Any:
    p = _weights_eager(q, k, causal)
    dp = g @ v.swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True))
    parts = ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g
    return np.concatenate([d.transpose(_exchanged(d.ndim)).reshape(-1) for d in parts])


# in simpler ops


def _weights(q: Tensor, k: Tensor, causal: bool) -> Tensor:
    scores = matmul(q, k, transpose_b=True)
    if causal:
        scores = where(below(scores), scores, -math.inf)
    last = (q.ndim - 1,)
    weights = exp(scores - reduce_max(scores, axis=last))
    return weights / reduce_sum(weights, axis=last)


def _body(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    return matmul(_weights(q, k, causal), v)


def _gradient_body(g: Tensor, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    p = _weights(q, k, causal)
    dp = matmul(g, v, transpose_b=True)
    ds = p * (dp - reduce_sum(p * dp, axis=(q.ndim - 1,)))
    parts = matmul(ds, k), matmul(ds, q, transpose_a=True), matmul(p, g, transpose_a=True)
    return concat(*(reshape(transpose(d, axes=_exchanged(d.ndim)), shape=(d.size,)) for d in parts), axis=0)


def _grad(g: Tensor, _y: Spec, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, ...]:
    packed = attention_grad(g, q, k, v, causal=causal)
    start, parts = 0, []
    for x in (q, k, v):
        axes = _exchanged(x.ndim)
        part = reshape(cut_along(packed, 0, start, start + x.size), shape=tuple(x.shape[a] for a in axes))
        parts.append(transpose(part, axes=axes))
        start += x.size
    return tuple(parts)


attention = declare(
    Op(
        "attention",
        Kind.CONTRACT,
        _infer,
        Rule("attention", _eager, _infer),
        _grad,
        _body,
        FLOATING.promote,
        precision=LOW,
        meaning="``softmax(q @ k.T) @ v`` of matrices in the last two axes; the axes before are the same. "
        "With `causal`, row i of `q` sees the rows of `k` up to the i-th.",
    )
)

attention_grad = declare(
    Op(
        "attention_grad",
        Kind.CONTRACT,
        _gradient_infer,
        Rule("attention_grad", _gradient_eager, _gradient_infer),
        None,
        _gradient_body,
        FLOATING.promote,
        meaning="The gradients of q, k and v in one vector, one after the other, each row-major with the "
        "axes of heads (the third from the end) and places exchanged: as the projections before "
        "attention give them.",
    )
)


def is_served(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> bool:
    """Return whether the operands fit each other, and a library takes `attention` of them."""
    specs = [Spec(t.shape, t.dtype, t._device) for t in (q, k, v)]
    op = op_of(attention)
    try:
        op.infer(*specs, causal=causal)
    except ShapeError:
        return False
    assert isinstance(op.eager, Rule)
    return op.eager.is_served(*specs, causal=causal)
