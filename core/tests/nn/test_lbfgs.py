"""L-BFGS against torch's, which takes the same steps, and against SciPy's minimum."""

import mgb
import mgb.functional as F
import numpy as np
import pytest
import scipy.optimize
from mgb import Parameter, tensor
from mgb.autodiff import GradManager
from mgb.errors import ArgumentError
from mgb.jit import trace
from mgb.optimizer import LBFGS

torch = pytest.importorskip("torch")

RANDOM = np.random.default_rng(0)
DATA, GOAL = RANDOM.normal(size=(30, 4)), RANDOM.normal(size=30)
START = RANDOM.normal(size=4)


def loss_of(library, data, goal, weight, bias):
    return ((library.exp(data @ weight * 0.3) + bias - goal) ** 2).mean() + (weight**2).sum() * 0.1


def closure_of(optimizer, manager, compute):
    def closure():
        optimizer.clear_grad()
        with manager:
            loss = compute()
            manager.backward(loss)
        return loss

    return closure


def ours(steps, traced=False, **options):
    weight, bias = Parameter(START, dtype="float64"), Parameter(np.zeros(1), dtype="float64")
    data, goal = tensor(DATA, dtype="float64"), tensor(GOAL, dtype="float64")
    optimizer, manager = LBFGS([weight, bias], **options), GradManager().attach([weight, bias])
    compute = trace(lambda: loss_of(F, data, goal, weight, bias)) if traced else (
        lambda: loss_of(F, data, goal, weight, bias))  # fmt: skip
    closure = closure_of(optimizer, manager, compute)
    losses = [optimizer.step(closure).item() for _ in range(steps)]
    return losses, np.concatenate([weight.numpy(), bias.numpy()])


def theirs(steps, **options):
    weight = torch.tensor(START, requires_grad=True)
    bias = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], **options)

    def closure():
        optimizer.zero_grad()
        loss = loss_of(torch, torch.tensor(DATA), torch.tensor(GOAL), weight, bias)
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(steps)]
    return losses, np.concatenate([weight.detach().numpy(), bias.detach().numpy()])


@pytest.mark.parametrize("options", [
    {"lr": 0.3}, {"lr": 0.5, "max_iter": 5}, {"lr": 0.5, "history_size": 2, "max_iter": 7},
    {"lr": 0.3, "max_iter": 30, "max_eval": 4}, {"lr": 0.5, "tolerance_change": 1e-2},
])  # fmt: skip
def test_steps_match_torch(options):
    for got, wanted in zip(ours(4, **options), theirs(4, **options), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-7)


@pytest.mark.parametrize("traced", [False, True])
def test_strong_wolfe_line_search_finds_the_minimum(traced):
    found = scipy.optimize.minimize(
        lambda x: loss_of(np, DATA, GOAL, x[:4], x[4:]), np.r_[START, 0], tol=1e-12
    )
    options = {"line_search_fn": "strong_wolfe", "tolerance_grad": 1e-10, "tolerance_change": 1e-15}
    losses, point = ours(3, traced, **options)
    np.testing.assert_allclose(point, found.x, rtol=1e-4)
    assert losses == sorted(losses, reverse=True)
    theirs_losses, _ = theirs(3, **options)
    np.testing.assert_allclose(losses[-1], theirs_losses[-1], rtol=1e-8)


def test_rosenbrock_function_is_minimized():
    """Rosenbrock's, from where Newton's method without a search goes astray."""
    x = Parameter(np.full(10, -1.2), dtype="float64")
    manager, optimizer = GradManager().attach([x]), LBFGS([x], max_iter=60, line_search_fn="strong_wolfe")

    def compute():
        return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()

    for _ in range(4):
        optimizer.step(closure_of(optimizer, manager, compute))
    np.testing.assert_allclose(x.numpy(), 1, atol=1e-5)


def test_invalid_options_raise():
    x, y = Parameter([1.0]), Parameter([2.0])
    with pytest.raises(ArgumentError, match="one group"):
        LBFGS([{"params": [x]}, {"params": [y]}])
    with pytest.raises(ArgumentError, match="strong_wolfe"):
        LBFGS([x], line_search_fn="armijo")
    with pytest.raises(ArgumentError, match="at least 1"):
        LBFGS([x], history_size=0)
    with pytest.raises(TypeError, match="closure"):
        LBFGS([x]).step()


def test_float32_and_parameters_without_gradients():
    x, unused = Parameter([3.0, -2.0]), Parameter([5.0])
    manager, optimizer = GradManager().attach([x]), LBFGS([x, unused], line_search_fn="strong_wolfe")
    optimizer.step(closure_of(optimizer, manager, lambda: ((x - tensor([1.0, 2.0])) ** 2).sum()))
    np.testing.assert_allclose(x.numpy(), [1, 2], atol=1e-5)
    assert (x.dtype, unused.tolist()) == ("float32", [5])
    assert optimizer.state_dict()["param_groups"][0]["history_size"] == 100
    assert mgb.optimizer.LBFGS is LBFGS
