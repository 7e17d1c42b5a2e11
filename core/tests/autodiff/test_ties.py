"""Gradients where a function has a corner or several elements are the extreme one, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from mgb import Tensor
from mgb.autodiff import GradManager
from mgb.jit import trace

TIED = np.array([[1.0, 3, 3, 0], [2, 2, 2, 2], [0, 0, -1, 0]], np.float32)
ZERO = np.zeros((2, 3), np.float32)
INF = float("inf")
CORNERS = np.array([np.nan, INF, -INF, 0.0, -0.0, 1, -1, 6, 3, -3, 2.5], np.float32)


def cases(torch: Any) -> dict[str, tuple[np.ndarray, Callable[[Any], Any], Callable[[Any], Any]]]:
    """Return (an array, a function of mgb, the same function of torch) by name."""
    return {
        "max of rows": (TIED, lambda x: F.max(x, 1), lambda x: x.amax(1)),
        "min of columns": (TIED, lambda x: F.min(x, 0, True), lambda x: x.amin(0, True)),
        "max of all": (TIED, lambda x: F.max(x), lambda x: x.amax((0, 1))),
        "max of a product": (TIED, lambda x: F.max(x * x, 1) * 3, lambda x: (x * x).amax(1) * 3),
        "abs": (TIED, F.abs, torch.abs),
        "l1 loss": (
            TIED,
            lambda x: F.l1_loss(x, x.detach()),
            lambda x: torch.nn.functional.l1_loss(x, x.detach()),
        ),
        "leaky_relu": (
            TIED,
            lambda x: F.leaky_relu(x, 0.1),
            lambda x: torch.nn.functional.leaky_relu(x, 0.1),
        ),
        "prelu": (
            TIED,
            lambda x: F.prelu(x, Tensor([0.25])),
            lambda x: torch.nn.functional.prelu(x, torch.tensor([0.25])),
        ),
        "relu": (TIED, F.relu, torch.relu),
        **{
            f"corners of {name}": (CORNERS, getattr(F, name), getattr(torch.nn.functional, theirs or name))
            for name, theirs in [
                *(
                    (n, None)
                    for n in "relu relu6 leaky_relu elu celu selu hardtanh softplus logsigmoid".split()
                ),
                ("hsigmoid", "hardsigmoid"),
            ]
        },
        "corners of prelu": (
            CORNERS,
            lambda x: F.prelu(x, Tensor([0.25])),
            lambda x: torch.nn.functional.prelu(x, torch.tensor([0.25])),
        ),
        "product with zeros": (TIED - 2, lambda x: F.prod(x, axis=1), lambda x: x.prod(1)),
        "product of zeros": (TIED, lambda x: F.prod(x, axis=1) + F.prod(x), lambda x: x.prod(1) + x.prod()),
        "std": (TIED, lambda x: F.std(x, 1), lambda x: x.std(1, correction=0)),
        **{
            f"norm {p}": (
                np.concatenate([ZERO, TIED[:, :3]]),
                lambda x, p=p: F.norm(x, p, axis=1),
                lambda x, p=p: torch.linalg.vector_norm(x, p, dim=1),
            )
            for p in (1, 2, 3, 1.5, 0.5, INF, -INF)
        },
        "norm of zeros": (ZERO, F.norm, lambda x: x.norm()),
        "normalize": (
            ZERO,
            lambda x: F.normalize(x, axis=1),
            lambda x: torch.nn.functional.normalize(x, dim=1),
        ),
    }


def gradient(function: Callable[[Any], Any], array: np.ndarray) -> np.ndarray:
    x = Tensor(array)
    with GradManager().attach(x) as manager:
        manager.backward(function(x))
    assert x.grad is not None
    return x.grad.numpy()


def test_gradients_match_torch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    for name, (array, function, truth) in cases(torch).items():
        x = torch.tensor(array, requires_grad=True)
        truth(x).sum().backward()
        for form in (function, trace(function)):
            np.testing.assert_allclose(gradient(form, array), x.grad.numpy(), rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("way", [lambda f: f, trace])
def test_tied_extremes_share_the_gradient(way: Any) -> None:
    for function, extreme in ((F.max, np.max), (F.min, np.min)):
        tied = extreme(TIED, 1, keepdims=True) == TIED
        got = gradient(way(lambda x, f=function: f(x, 1)), TIED)
        np.testing.assert_allclose(got, tied / tied.sum(1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize("way", [lambda f: f, trace])
def test_gradient_of_a_product_is_the_product_of_the_others(way: Any) -> None:
    for array in (TIED, TIED - 2, TIED[:, :3] + 1):
        others = [[np.prod(np.delete(row, i)) for i in range(row.size)] for row in array]
        np.testing.assert_allclose(gradient(way(lambda x: F.prod(x, axis=1)), array), others, rtol=1e-6)


def test_many_float16_ties_share_the_gradient() -> None:
    """More than float16 can count."""
    x = Tensor(np.ones(70000), "float16")
    with GradManager().attach(x) as manager:
        manager.backward(F.max(x), Tensor(np.float16(7000)))
    assert x.grad is not None and x.grad.dtype == np.float16
    np.testing.assert_allclose(x.grad.numpy(), 0.1, rtol=1e-3)


def test_second_derivative_of_max_with_ties(check_gradient: Callable[..., None]) -> None:
    check_gradient(lambda x: F.max(x * x, 1), TIED + np.arange(4) / 7, order=2)
