"""What is true, for the element-wise tests: mpmath in ULPs, and finite differences."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np
from mgb.autodiff import GradManager
from mgb.ir import Node, Op
from mgb.tensor import Tensor
from mgb.tensor.apply import apply
from mgb.tensor.tracing import graph_of

Array = np.ndarray
DTYPES = (np.float32, np.float64)


def tensors(*arrays: Any, dtype: Any = None) -> list[Tensor]:
    """The arrays as Tensors, 64-bit dtypes kept."""
    return [Tensor(a, dtype=dtype or np.asarray(a).dtype) for a in arrays]


def in_words(op: Op, *inputs: Tensor, **params: Any) -> Tensor:
    """The body of `op`, and the bodies of what it is made of, evaluated in primitives alone."""

    def rule(node: Node, *values: Tensor) -> Tensor:
        if node.op.name == "const":
            return Tensor(node.params["value"], dtype=node.spec.dtype)
        if node.op.body is None:
            return apply(node.op, *values, **node.params)
        return in_words(node.op, *values, **node.params)

    if op.body is None:
        return apply(op, *inputs, **params)
    graph = graph_of(lambda *xs: op.body(*xs, **params), *(t.spec for t in inputs))
    return graph.fold(rule, inputs)[0]


def sample(dtype: Any, low: float, high: float, count: int = 60) -> Array:
    """Numbers in [low, high]: of every exponent, near 0, near 1, and spread evenly."""
    random = np.random.default_rng(5)
    bits = random.integers(0, 1 << 32, 4 * count, dtype=np.uint64) << np.uint64(32)
    leading = (bits >> np.uint64(32)).astype(np.uint32)
    every = bits.view(np.float64) if dtype == np.float64 else leading.view(np.float32)
    edges = [
        0.0,
        -0.0,
        1,
        -1,
        0.5,
        np.finfo(dtype).tiny,
        np.finfo(dtype).smallest_subnormal,
        np.finfo(dtype).max,
    ]
    pieces = [
        every.astype(dtype),
        random.uniform(max(low, -1e4), min(high, 1e4), count),
        random.uniform(-2, 2, count),
        1 + random.uniform(-1e-3, 1e-3, count // 4),
        np.array(edges, dtype),
        -np.array(edges, dtype),
    ]
    x = np.concatenate([np.asarray(p, dtype) for p in pieces])
    return x[(low <= x) & (x <= high)]


def ulps(got: Array, truth: Callable[..., Any], *inputs: Array) -> tuple[float, Any]:
    """The largest error of `got` in units in the last place of the true result, and where it is.

    Results that should overflow must be infinite; where `truth` is None the result must be NaN.
    """
    info, worst = np.finfo(got.dtype), (0.0, None)
    limit = mpmath.mpf(2) ** info.maxexp * (1 - mpmath.mpf(2) ** (-info.nmant - 2))
    for value, *point in zip(got, *inputs, strict=True):
        want = truth(*(mpmath.mpf(float(p)) for p in point))
        if want is None:
            assert np.isnan(value), (point, value)
        elif abs(want) >= limit:
            assert np.isinf(value) and (value > 0) == (want > 0), (point, value)
        else:
            assert np.isfinite(value), (point, value, want)
            exponent = max(mpmath.frexp(want)[1] - 1, info.minexp) if want else info.minexp
            error = abs(mpmath.mpf(float(value)) - want) / mpmath.mpf(2) ** (int(exponent) - info.nmant)
            worst = max(worst, (float(error), tuple(map(float, point))), key=lambda w: w[0])
    return worst


def assert_same(got: Array, want: Array, rtol: float) -> None:
    """Equal to `rtol`, with NaN, infinities and the signs of zeros in the same places."""
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))
    np.testing.assert_allclose(got, want, rtol=rtol, atol=0)


def check_gradient(op: Op, *inputs: Array, rtol: float = 1e-6, **params: Any) -> int:
    """Compare the rule of `op` with central differences in float64; says how many inputs have a gradient."""
    xs = [np.asarray(x, np.float64) for x in inputs]
    g = np.random.default_rng(3).uniform(0.5, 1.5, np.broadcast_shapes(*(x.shape for x in xs)))
    grads = gradients(op, tensors(*xs), Tensor(g, dtype="float64"), **params)
    for i, grad in enumerate(grads):
        if grad is None:
            continue
        h = 1e-6 * np.maximum(1, abs(xs[i]))
        moved = [[x + s * h if j == i else x for j, x in enumerate(xs)] for s in (1, -1)]
        up, down = (apply(op, *tensors(*m), **params).numpy() for m in moved)
        np.testing.assert_allclose(grad.numpy(), g * (up - down) / (2 * h), rtol=rtol, atol=1e-8)
    return sum(grad is not None for grad in grads)


def gradients(op: Op, xs: Sequence[Tensor], g: Tensor, **params: Any) -> Sequence[Tensor | None]:
    """What the rule of `op` says, a name with an underscore seeing the spec only; else what its body says."""
    if op.grad is None:
        return _through_the_body(op, xs, g, params)
    y = apply(op, *xs, **params)
    names = list(inspect.signature(op.grad).parameters)[1 : 2 + len(xs)]
    seen = [v.spec if n.startswith("_") else v for n, v in zip(names, (y, *xs), strict=True)]
    return op.grad(g, *seen, **params)


def _through_the_body(op: Op, xs: Sequence[Tensor], g: Tensor, params: Any) -> Sequence[Tensor | None]:
    inputs = [x._alias(x._tape) for x in xs]
    with GradManager().attach(inputs) as manager:
        manager.backward(apply(op, *inputs, **params), g)
    return [t.grad for t in inputs]
