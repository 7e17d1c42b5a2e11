"""Gradients of softmax, logsumexp and log-softmax, which are closed forms: against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable

import mgb.functional as F
import numpy as np
import pytest
from mgb import Tensor, tensor
from mgb.autodiff import GradManager
from mgb.jit import trace

Array = np.ndarray


def soft(x: Array) -> Array:
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def _softmax(x: Array, g: Array) -> Array:
    y = soft(x)
    return y * (g - (g * y).sum(-1, keepdims=True))


FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Array, Array], Array]]] = {
    "softmax": (lambda x: F.softmax(x, axis=-1), _softmax),
    "logsumexp": (lambda x: F.logsumexp(x, -1, keepdims=True), lambda x, g: g * soft(x)),
    "logsoftmax": (
        lambda x: F.logsoftmax(x, axis=-1),
        lambda x, g: g - soft(x) * g.sum(-1, keepdims=True),
    ),
}
INPUTS = {
    "moderate": np.random.default_rng(0).standard_normal((4, 9)),
    "far from 0": np.random.default_rng(1).standard_normal((4, 9)) * 30 + 500,
    "masked": np.where(np.tri(4, 9, 2) > 0, np.random.default_rng(2).standard_normal((4, 9)), -np.inf),
}


@pytest.mark.parametrize("values", INPUTS.values(), ids=INPUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("wrap", [lambda f: f, trace(without_host=True)], ids=["eager", "traced"])
def test_gradients_match_the_closed_forms(wrap: Callable, name: str, values: Array) -> None:
    function, truth = FUNCTIONS[name]
    x = tensor(values.astype(np.float32))
    weight = tensor(np.random.default_rng(3).standard_normal(function(x).shape).astype(np.float32))
    manager = GradManager().attach(x)

    @wrap
    def step(weight: Tensor) -> Tensor:
        x.grad = None
        with manager:
            manager.backward(function(x), weight)
        return x.grad

    expected = truth(x.numpy().astype(np.float64), weight.numpy().astype(np.float64))
    for _ in range(2):
        np.testing.assert_allclose(step(weight).numpy(), expected, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives_match_finite_differences(name: str) -> None:
    """Of the gradient along one direction, against central differences of the gradient's closed form."""
    function, truth = FUNCTIONS[name]
    random = np.random.default_rng(4)
    values, direction = random.standard_normal((2, 3, 5))
    x = tensor(values, dtype=np.float64)
    weight = random.standard_normal(function(x).shape)
    outer, inner = GradManager().attach(x), GradManager().attach(x)
    with outer:
        with inner:
            inner.backward(function(x), tensor(weight, dtype=np.float64))
        slope = x.grad
        x.grad = None
        outer.backward((slope * tensor(direction, dtype=np.float64)).sum())
    h = 1e-5
    expected = (truth(values + h * direction, weight) - truth(values - h * direction, weight)) / (2 * h)
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-6, atol=1e-8)
