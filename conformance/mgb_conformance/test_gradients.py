"""The gradient of every op, compiled as it is in training: forward and backward in one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mgb import dtypes
from mgb.autodiff import GradManager
from mgb.ops.bodies.transcendental import exp, log, tanh
from mgb.ops.declare import OPS
from mgb.ops.reduce import reduce_max, reduce_sum
from mgb.passes import simplify

from .cases import Batches, call, check, elementwise, of, samples
from .drive import Driver


def gradients(function: Callable[..., Any], *args: Any) -> list[Any]:
    """Return the result of `function` and its gradient in each float operand that it depends on.

    The last of `args` is the gradient of the result; the others are the operands.
    """
    *xs, dy = args
    xs = [x.detach() for x in xs]
    floats = [x for x in xs if x.dtype in dtypes.FLOATS]
    manager = GradManager().attach(floats)
    with manager:
        y = function(*xs)
        manager.backward(y, dy)
    return [y, *(x.grad for x in floats if x.grad is not None)]


def _inputs(given: tuple[np.dtype[Any], ...]) -> list[np.ndarray]:
    dtype = next(d for d in given if d in dtypes.FLOATS)
    return [samples(d.name, (5, 61), seed=i) for i, d in enumerate((*given, dtype))]


def _family(name: str) -> Callable[..., list[Any]]:
    return lambda *xs: gradients(call(OPS[name]), *xs)


CASES = tuple((d, n) for d, n in elementwise() if d in ("float32", "float64") and OPS[n].differentiable)
BATCHES = Batches(CASES, _inputs, _family, size=8)


def loss(x: Any, w: Any, b: Any) -> Any:
    """Return a row-wise classifier: broadcast operands, whose gradients are sums."""
    z = tanh(x * w + b)
    shifted = z - reduce_max(z, axis=(1,))
    return log(reduce_sum(exp(shifted), axis=(1,))) - reduce_sum(shifted * w, axis=(1,))


class TestGradients:
    @pytest.mark.parametrize(("dtype", "name"), CASES)
    def test_op(self, driver: Driver, dtype: str, name: str) -> None:
        BATCHES.ask(driver, dtype, name)

    def test_gradient_of_a_reduction(self, driver: Driver) -> None:
        arrays = [samples("float32", (6, 40), 1), samples("float32", (6, 1), 2)]
        self._check(driver, lambda x: reduce_sum(tanh(x) * x, axis=(1,)), arrays)

    def test_gradient_of_a_group(self, driver: Driver) -> None:
        arrays = [samples("float32", (6, 40), seed) for seed in range(3)]
        self._check(driver, loss, [*arrays, samples("float32", (6, 1), 3)])

    def _check(self, driver: Driver, function: Callable[..., Any], arrays: list[np.ndarray]) -> None:
        """Check it as the fusion detector would pass it: broadcasts are left to the readers."""
        check(driver, simplify(of(lambda *xs: gradients(function, *xs), *arrays), 3), arrays)
