"""Training under `trace` equals training without it: optimizers, modules with state, tapes."""

from __future__ import annotations

import mgb
import mgb.functional as F
import mgb.module as M
import mgb.optimizer as optim
import numpy as np
import pytest
from mgb import Parameter, tensor
from mgb.autodiff import Function, GradManager
from mgb.jit import trace

MODES = [{}, {"symbolic": True}, {"without_host": True}, {"imperative": True}, {"opt_level": 0}]

OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "nesterov": lambda p: optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "Adam": lambda p: optim.Adam(p, lr=0.01, weight_decay=1e-3),
    "AdamW": lambda p: optim.AdamW(p, lr=0.01),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.05, lr_decay=0.01),
    "Adadelta": lambda p: optim.Adadelta(p, lr=1.0),
    "LAMB": lambda p: optim.LAMB(p, lr=0.01),
}


class Net(M.Module):
    """A bit of everything that has state."""

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.conv = M.Conv2d(1, 4, 3, padding=1, bias=False)  # a bias here has no gradient but noise
        self.norm = M.BatchNorm2d(4)
        self.drop = M.Dropout(drop)
        self.head = M.Linear(4 * 4 * 4, 5)
        self.scale = M.LayerNorm(5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.scale(self.head(self.drop(F.flatten(x, 1))))


class Head(M.Module):
    """Parameters of one axis and of two: what tells optimizers apart needs no more."""

    def __init__(self) -> None:
        super().__init__()
        self.head = M.Linear(64, 5)
        self.scale = M.LayerNorm(5)

    def forward(self, x):
        return self.scale(self.head(F.flatten(x, 1)))


def batches(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(0)
    return [
        (random.standard_normal((8, 1, 8, 8)).astype(np.float32), random.integers(0, 5, 8).astype(np.int32))
        for _ in range(count)
    ]


def train(wrap, make_optimizer, make_model=Net, steps: int = 6, on_step=lambda step, opt: None):
    """Losses and the final state of a fresh network from a fixed seed."""
    mgb.random.seed(3)
    model = make_model()
    opt = make_optimizer(model.parameters())
    manager = GradManager().attach(model.parameters())

    def step(data, label):
        with manager:
            loss = F.loss.cross_entropy(model(data), label)
            manager.backward(loss)
            opt.step().clear_grad()
        return loss

    call = wrap(step)
    losses = []
    for number, (data, label) in enumerate(batches(steps)):
        on_step(number, opt)
        losses.append(call(tensor(data), tensor(label)).item())
    return losses, model.state_dict(), call


def assert_same_training(got, expected, rtol: float = 2e-4) -> None:
    np.testing.assert_allclose(got[0], expected[0], rtol=rtol)
    assert got[1].keys() == expected[1].keys()
    for name, value in expected[1].items():
        np.testing.assert_allclose(got[1][name], value, rtol=rtol, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_takes_the_same_steps(name: str) -> None:
    expected = train(lambda f: f, OPTIMIZERS[name], Head)
    assert_same_training(train(trace, OPTIMIZERS[name], Head), expected)
    assert_same_training(train(lambda f: trace(f, without_host=True), OPTIMIZERS[name], Head), expected)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_every_mode_takes_the_same_steps(mode: dict) -> None:
    expected = train(lambda f: f, OPTIMIZERS["Adam"])
    got = train(lambda f: trace(f, **mode), OPTIMIZERS["Adam"])
    assert_same_training(got, expected)
    assert got[2].stats()["records"] == 1


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_learning_rate_stays_live(mode: dict) -> None:
    def schedule(number: int, opt) -> None:
        opt.param_groups[0]["lr"] = 0.1 / (number + 1)

    expected = train(lambda f: f, OPTIMIZERS["SGD"], on_step=schedule)
    got = train(lambda f: trace(f, **mode), OPTIMIZERS["SGD"], on_step=schedule)
    assert_same_training(got, expected)
    constant = train(lambda f: f, OPTIMIZERS["SGD"])
    assert abs(constant[0][-1] - expected[0][-1]) > 1e-4


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_dropout_draws_the_same_numbers(mode: dict) -> None:
    expected = train(lambda f: f, OPTIMIZERS["SGD"], lambda: Net(drop=0.4))
    got = train(lambda f: trace(f, **mode), OPTIMIZERS["SGD"], lambda: Net(drop=0.4))
    assert_same_training(got, expected)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_random_state_advances_from_call_to_call(mode: dict) -> None:
    @trace(**mode)
    def draw():
        return mgb.random.uniform(size=(5,)), mgb.random.normal(size=(3,))

    mgb.random.seed(11)
    traced = [tuple(t.numpy().copy() for t in draw()) for _ in range(3)]
    mgb.random.seed(11)
    for a, b in traced:
        np.testing.assert_allclose(a, mgb.random.uniform(size=(5,)).numpy(), rtol=1e-6)
        np.testing.assert_allclose(b, mgb.random.normal(size=(3,)).numpy(), rtol=1e-5, atol=1e-6)
    assert not np.allclose(traced[0][0], traced[1][0])


def test_new_batch_size_needs_no_retrace() -> None:
    mgb.random.seed(0)
    model = Net()
    manager = GradManager().attach(model.parameters())
    opt = optim.SGD(model.parameters(), lr=0.1)

    @trace
    def step(data, label):
        with manager:
            loss = F.loss.cross_entropy(model(data), label)
            manager.backward(loss)
            opt.step().clear_grad()
        return loss

    (data, label), *_ = batches(1)
    for size in (8, 8, 5, 8, 3, 5):
        assert np.isfinite(step(tensor(data[:size]), tensor(label[:size])).item())
    assert step.stats()["records"] == 2
    assert step.stats()["variants"] == 3


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_grad_is_stored_and_callbacks_are_applied(mode: dict) -> None:
    weight = mgb.Parameter(np.array([1.0, -2.0, 3.0], np.float32))
    manager = GradManager().attach(weight, callbacks=lambda w, g: g * 2)

    @trace(**mode)
    def backward(x):
        weight.grad = None
        with manager:
            y = (weight * weight * x).sum()
            manager.backward(y)
        return y

    for factor in (1.0, 2.0, -3.0):
        backward(tensor([factor] * 3))
        np.testing.assert_allclose(weight.grad.numpy(), 2 * 2 * weight.numpy() * factor, rtol=1e-6)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_second_derivatives(mode: dict) -> None:
    @trace(**mode)
    def curvature(x):
        outer, inner = GradManager().attach(x), GradManager().attach(x)
        with outer:
            with inner:
                y = (x * x * x).sum()
                inner.backward(y)
            slope = x.grad
            x.grad = None
            outer.backward(slope.sum())
        second, x.grad = x.grad, None
        return slope, second

    for values in ([1.0, 2.0], [-3.0, 0.5]):
        slope, second = curvature(tensor(values))
        np.testing.assert_allclose(slope.numpy(), 3 * np.square(values), rtol=1e-5)
        np.testing.assert_allclose(second.numpy(), 6 * np.array(values), rtol=1e-5)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_custom_function_gradient(mode: dict) -> None:
    class Clip(Function):
        def forward(self, x):
            self.mask = F.abs(x) < 1
            return F.clip(x, -1, 1)

        def backward(self, g):
            return g * self.mask.astype("float32") * 10

    weight = mgb.Parameter(np.array([0.5, 2.0, -0.25], np.float32))
    manager = GradManager().attach(weight)

    @trace(**mode)
    def backward(x):
        weight.grad = None
        with manager:
            manager.backward((Clip()(weight) * x).sum())
        return weight.grad

    for factor in (1.0, 4.0):
        np.testing.assert_allclose(backward(tensor(factor)).numpy(), [10 * factor, 0, 10 * factor])


def test_traced_forward_under_an_outer_tape() -> None:
    """Only the forward pass is traced; the tape outside sees every op of it."""
    weight = mgb.Parameter(np.array([1.0, 2.0], np.float32))
    manager = GradManager().attach(weight)
    for mode in ({}, {"without_host": True}, {"symbolic": True}):

        @trace(**mode)
        def forward(x):
            return F.exp(weight * x).sum()

        for factor in (0.5, 1.0, 0.25):
            weight.grad = None
            with manager:
                manager.backward(forward(tensor(factor)))
            np.testing.assert_allclose(
                weight.grad.numpy(), factor * np.exp(weight.numpy() * factor), rtol=1e-5
            )
        np.testing.assert_allclose(forward(tensor(1.0)).item(), np.exp([1.0, 2.0]).sum(), rtol=1e-5)


def test_eval_and_train_are_separate_traces() -> None:
    mgb.random.seed(1)
    model = Net()
    (data, _), *_ = batches(1)
    x = tensor(data)
    expected = model(x).numpy().copy()
    before = model.norm.running_mean.numpy().copy()
    traced = trace(model)
    for _ in range(3):
        np.testing.assert_allclose(traced(x).numpy(), expected, rtol=1e-4, atol=1e-5)
    assert not np.allclose(model.norm.running_mean.numpy(), before)
    model.eval()
    frozen = trace(model)
    stats = model.norm.running_mean.numpy().copy()
    for _ in range(3):
        np.testing.assert_allclose(frozen(x).numpy(), model(x).numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(model.norm.running_mean.numpy(), stats)


@pytest.mark.parametrize("mode", [{"without_host": True}, {"without_host": True, "symbolic": True}], ids=str)
def test_compiled_backward_accumulates_into_the_existing_grad(mode: dict) -> None:
    """Micro-batches: calls add up until the gradient is cleared, or replaced by another Tensor, outside."""

    def run(wrap) -> list[float]:
        weight = Parameter([2.0])
        manager = GradManager().attach(weight)
        values = []

        @wrap
        def backward(x):
            with manager:
                loss = (weight * x).sum()
                manager.backward(loss)
            return loss

        for call in range(9):
            backward(tensor([float(call)]))
            values.append(weight.grad.item())
            if call % 3 == 1:
                weight.grad = None
            if call == 6:
                weight.grad = tensor([100.0])
        return values

    assert run(trace(**mode)) == run(lambda function: function) == [0, 1, 2, 5, 9, 5, 11, 107, 8]


def test_grad_cleared_in_the_body_is_none_after_every_call() -> None:
    weight = Parameter([2.0])
    manager = GradManager().attach(weight)

    @trace(without_host=True)
    def step(x):
        weight.grad = None
        with manager:
            manager.backward(weight * x)
        result = weight.grad * 10
        weight.grad = None
        return result

    for call in range(4):
        weight.grad = tensor([7.0])
        assert step(tensor([float(call)])).item() == 10 * call
        assert weight.grad is None
    assert step.stats()["body_runs"] == 1


def test_without_host_detects_a_changed_module() -> None:
    mgb.random.seed(2)
    layer, drop = M.Linear(3, 2), M.Dropout(0.5)
    traced = trace(lambda x: drop(layer(x)), without_host=True)
    x = tensor(np.ones((400, 3), np.float32))
    for _ in range(3):
        assert (traced(x).numpy() == 0).mean() == pytest.approx(0.5, abs=0.1)
    drop.eval()
    for _ in range(3):
        np.testing.assert_allclose(traced(x).numpy(), layer(x).numpy(), rtol=1e-5)
    layer.weight = mgb.Parameter(np.ones((2, 3), np.float32))
    for _ in range(3):
        np.testing.assert_allclose(traced(x).numpy(), np.full((400, 2), 3.0), rtol=1e-5)
    records = traced.stats()["records"]
    drop.train()
    assert (traced(x).numpy() == 0).mean() == pytest.approx(0.5, abs=0.1)
    drop.eval()
    traced(x)
    assert traced.stats()["records"] == records + 1


@pytest.mark.parametrize("reads", [False, True])
def test_switching_train_and_eval_with_side_effects_matches_eager(reads: bool) -> None:
    def losses(wrap) -> list[float]:
        mgb.random.seed(3)
        model, kept = M.Sequential(M.Linear(6, 8), M.ReLU(), M.Dropout(0.5), M.Linear(8, 3)), []
        for number, weight in enumerate(model.parameters()):
            weight[...] = tensor(np.random.default_rng(number).normal(size=weight.shape).astype(np.float32))
        manager, opt = GradManager().attach(model.parameters()), optim.Adam(model.parameters(), lr=0.05)

        def step(data, label):
            kept.append(data.sum().item() if reads else 1.0)
            if not model.training:
                return F.loss.cross_entropy(model(data), label)
            with manager:
                loss = F.loss.cross_entropy(model(data), label)
                manager.backward(loss)
            opt.step().clear_grad()
            return loss

        call, found = wrap(step), []
        label = tensor(np.arange(6) % 3)
        for number, trains in enumerate((True, True, False, False, True, False, True, False)):
            model.train(trains)
            data = np.random.default_rng(number).normal(size=(6, 6)).astype(np.float32)
            found.append(call(tensor(data), label).item())
        assert len(kept) == 8
        return found

    np.testing.assert_allclose(losses(trace), losses(lambda step: step), rtol=1e-4)
