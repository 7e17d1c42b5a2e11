"""The gradient of every op, compiled as it is in training: forward and backward in one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mgb import dtypes
from mgb.autodiff import GradManager
from mgb.ir import Kind
from mgb.ops.declare import OPS
from mgb.ops.reduce import reduce_max, reduce_sum
from mgb.ops.transcendental import exp, log, tanh

from .cases import Batches, call, check, elementwise, of, samples
from .drive import Driver


def gradients(function: Callable[..., Any], *xs: Any) -> list[Any]:
    """The result of `function` and its gradient in each float operand that it depends on."""
    xs = tuple(x.detach() for x in xs)
    floats = [x for x in xs if x.dtype in dtypes.FLOATS]
    manager = GradManager().attach(floats)
    with manager:
        y = function(*xs)
        manager.backward(y)
    return [y, *(x.grad for x in floats if x.grad is not None)]


def _inputs(given: tuple[np.dtype[Any], ...]) -> list[np.ndarray]:
    return [samples(d.name, (5, 61), seed=i) for i, d in enumerate(given)]


def _family(name: str) -> Callable[..., list[Any]]:
    return lambda *xs: gradients(call(OPS[name]), *xs)


CASES = tuple((d, n) for d, n in elementwise() if d in ("float32", "float64") and OPS[n].differentiable)
BATCHES = Batches(CASES, _inputs, _family, size=8)


def loss(x: Any, w: Any, b: Any) -> Any:
    """A row-wise classifier: broadcast operands, whose gradients are sums."""
    z = tanh(x * w + b)
    shifted = z - reduce_max(z, axis=(1,))
    return log(reduce_sum(exp(shifted), axis=(1,))) - reduce_sum(shifted * w, axis=(1,))


class TestGradients:
    @pytest.mark.parametrize(("dtype", "name"), CASES)
    def test_op(self, driver: Driver, dtype: str, name: str) -> None:
        BATCHES.ask(driver, dtype, name)

    def test_of_a_reduction(self, driver: Driver) -> None:
        x = samples("float32", (6, 40))
        check(driver, of(lambda x: gradients(lambda x: reduce_sum(tanh(x) * x, axis=(1,)), x), x), [x])

    def test_of_a_group(self, driver: Driver) -> None:
        arrays = [samples("float32", shape, seed) for seed, shape in enumerate([(6, 40), (6, 40), (6, 40)])]
        if Kind.REDUCE not in driver.backend.traits.kinds:
            pytest.skip("traits.kinds has no reduce")
        check(driver, of(lambda *xs: gradients(loss, *xs), *arrays), arrays)
