"""Gradients of the norms, which are closed forms: against central differences, and torch in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest
from mgb import Tensor, tensor
from mgb.autodiff import GradManager
from mgb.jit import trace

Array = np.ndarray
SHAPE = (4, 6, 2, 3)
EPS = 1e-3

#: Each norm of (4, 6, 2, 3), and the shape of its weight and bias.
NORMS: dict[str, tuple[Callable[..., Tensor], tuple[int, ...]]] = {
    "batch": (lambda x, w, b: F.batch_norm(x, weight=w, bias=b, training=True, eps=EPS), (6,)),
    "instance": (lambda x, w, b: F.instance_norm(x, True, w, b, EPS), (6,)),
    "group": (lambda x, w, b: F.group_norm(x, 3, True, w, b, EPS), (6,)),
    "layer": (lambda x, w, b: F.layer_norm(x, (2, 3), True, w, b, EPS), (2, 3)),
    "rms": (lambda x, w, b: F.rms_norm(x, (2, 3), w, EPS) + b, (2, 3)),
}


def arrays_for(name: str, dtype: Any = np.float32) -> list[Array]:
    """Values far from 0, weight, bias, and the gradient that arrives."""
    random = np.random.default_rng(5)
    _function, parameter = NORMS[name]
    shapes = (SHAPE, parameter, parameter, SHAPE)
    x, weight, bias, g = (random.standard_normal(s) for s in shapes)
    return [a.astype(dtype) for a in (x * 3 + 2, weight, bias, g)]


def both_ways(function: Callable[..., Tensor]) -> Callable[..., list[Tensor]]:
    """The result, and the gradients for x, weight and bias when `g` arrives."""

    def step(x: Tensor, weight: Tensor, bias: Tensor, g: Tensor) -> list[Tensor]:
        wanted = (x, weight, bias)
        for t in wanted:
            t.grad = None
        manager = GradManager().attach(wanted)
        with manager:
            out = function(*wanted)
            manager.backward(out, g)
        return [out, *(t.grad for t in wanted)]

    return step


def truth_of(name: str, arrays: list[Array]) -> list[Array]:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    truths = {
        "batch": lambda x, w, b: functional.batch_norm(x, None, None, w, b, True, eps=EPS),
        "instance": lambda x, w, b: functional.instance_norm(x, weight=w, bias=b, eps=EPS),
        "group": lambda x, w, b: functional.group_norm(x, 3, w, b, EPS),
        "layer": lambda x, w, b: functional.layer_norm(x, (2, 3), w, b, EPS),
        "rms": lambda x, w, b: functional.rms_norm(x, (2, 3), w, EPS) + b,
    }
    x, weight, bias, g = (torch.tensor(a.astype(np.float64), requires_grad=True) for a in arrays)
    out = truths[name](x, weight, bias)
    return [v.detach().numpy() for v in (out, *torch.autograd.grad(out, (x, weight, bias), g))]


@pytest.mark.parametrize("name", NORMS)
def test_first_and_second_derivatives(name: str, check_gradient: Callable[..., None]) -> None:
    function, _ = NORMS[name]
    check_gradient(function, *arrays_for(name, np.float64)[:3], order=2, step=1e-4)


@pytest.mark.parametrize("wrap", [lambda f: f, trace(without_host=True)], ids=["eager", "traced"])
@pytest.mark.parametrize("name", NORMS)
def test_outputs_and_gradients_match_torch(name: str, wrap: Callable[..., Any]) -> None:
    arrays = arrays_for(name)
    truth = truth_of(name, arrays)
    step = wrap(both_ways(NORMS[name][0]))
    for _ in range(2):
        for got, want in zip(step(*map(tensor, arrays)), truth, strict=True):
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("wrap", [lambda f: f, trace(without_host=True)], ids=["eager", "traced"])
@pytest.mark.parametrize("name", NORMS)
def test_16_bit_inputs_are_normalized_in_float32(name: str, wrap: Callable[..., Any]) -> None:
    """The squares of these values are beyond float16, their statistics are not."""
    x, *rest = arrays_for(name, np.float16)
    arrays = [(x * np.float16(200)).astype(np.float16), *rest]
    given = [tensor(a, dtype="float16") for a in arrays]
    truth = truth_of(name, arrays)
    for got, want in zip(wrap(both_ways(NORMS[name][0]))(*given), truth, strict=True):
        assert got.dtype == np.float16
        np.testing.assert_allclose(got.numpy().astype(np.float64), want, rtol=1e-2, atol=2e-2)


def test_float16_input_with_float32_weights_gives_float32() -> None:
    """As the product of the two does; the gradient of each has its own dtype."""
    x, weight, bias, g = arrays_for("batch")
    given = [tensor(x, dtype="float16"), tensor(weight), tensor(bias), tensor(g)]
    out, *grads = both_ways(NORMS["batch"][0])(*given)
    assert [t.dtype.name for t in (out, *grads)] == ["float32", "float16", "float32", "float32"]


def test_gradient_of_norms_without_weight(check_gradient: Callable[..., None]) -> None:
    (x, *_) = arrays_for("batch", np.float64)
    check_gradient(lambda t: F.batch_norm(t, training=True, eps=EPS), x)
    check_gradient(lambda t: F.instance_norm(t, False, eps=EPS), x)


@pytest.mark.parametrize("wrap", [lambda f: f, trace], ids=["eager", "traced"])
def test_batch_norm_of_one_value_per_channel_raises(wrap: Callable[..., Any]) -> None:
    torch = pytest.importorskip("torch")
    layer = mgb.module.BatchNorm1d(3)
    step = wrap(lambda x: layer(x))
    with pytest.raises(ValueError, match="one value for each channel"):
        step(mgb.tensor(np.ones((1, 3), np.float32)))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        torch.nn.BatchNorm1d(3)(torch.ones(1, 3))
    assert step(mgb.tensor(np.ones((2, 3), np.float32))).shape == (2, 3)
    layer.eval()
    assert step(mgb.tensor(np.ones((1, 3), np.float32))).shape == (1, 3)
