"""`xla_trace`: whole steps as one executable, on every backend that takes whole graphs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb import Parameter, random, tensor
from mgb.autodiff import GradManager
from mgb.jit import xla_trace
from mgb.optimizer import SGD, Optimizer
from whole_steps import (
    LABELS,
    MAKERS,
    Net,
    another_rate,
    check_same,
    floats,
    no_change,
    run,
    train,
    whole_backend,  # noqa: F401 - a fixture
)

# values


def test_softmax_from_the_guide(backend: str) -> None:
    @xla_trace(backend=backend)
    def softmax(inp):
        offset = inp.max(axis=-1, keepdims=True).detach()
        cached = F.exp(inp - offset)
        down = F.sum(cached, axis=-1, keepdims=True)
        return cached / down

    x = floats(8, 10, 12)
    powers = np.exp(x.astype(np.float64))
    for _ in range(3):
        result = softmax(tensor(x)).numpy()
        np.testing.assert_allclose(result, powers / powers.sum(-1, keepdims=True), rtol=2e-6)
    assert softmax.stats()["records"] == 1


def test_training_step_matches_manual_sgd_as_one_executable(backend: str) -> None:
    x, steps, rate, momentum = floats(16, 6), 5, 0.5, 0.9
    weight, speed, losses = floats(4, 6, seed=2).astype(np.float64), np.zeros((4, 6)), []
    start = weight.copy()
    for _ in range(steps):  # the gradient of the mean cross entropy, in double precision
        logits = x @ weight.T
        powers = np.exp(logits - logits.max(1, keepdims=True))
        shares = powers / powers.sum(1, keepdims=True)
        losses.append(-np.log(shares[np.arange(16), LABELS]).mean())
        speed = momentum * speed + (shares - np.eye(4)[LABELS]).T @ x / 16
        weight -= rate * speed

    net = M.Linear(6, 4, bias=False)
    net.weight._reset(tensor(start))
    opt, held = SGD(net.parameters(), lr=rate, momentum=momentum), net.weight

    @xla_trace(backend=backend, capture_as_const=True)
    def step(data, label, *, opt, net):
        return train(data, label, opt=opt, net=net)

    found = [step(tensor(x), tensor(LABELS), opt=opt, net=net).item() for _ in range(steps)]
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    np.testing.assert_allclose(net.weight.numpy(), weight, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(opt.state_dict()["state"][0]["momentum_buffer"], speed, rtol=1e-4, atol=1e-5)
    assert net.weight is held and net.weight.grad is None
    assert step.stats()["body_runs"] == step.stats()["records"] == 1
    (program,) = step.programs()
    assert len(program.steps) == 1 and step.backend == backend
    assert "1 fused groups, 0 ops run eagerly" in step.explain(tensor(x), tensor(LABELS), opt=opt, net=net)


def in_use(net: Net, opt: Optimizer) -> None:
    net.eval()


def other_parameters(net: Net, opt: Optimizer) -> None:
    net.load_state_dict({name: value * 0.5 for name, value in net.state_dict().items()})


def other_state(net: Net, opt: Optimizer) -> None:
    state = opt.state_dict()
    for tensors in state["state"].values():
        for value in tensors.values():
            value += 0.25
    opt.load_state_dict(state)


def fewer_parameters(net: Net, opt: Optimizer) -> None:
    opt.param_groups[0]["params"].pop()


def another_group(net: Net, opt: Optimizer) -> None:
    bias = opt.param_groups[0]["params"].pop()
    opt.add_param_group({"params": [bias], "lr": 0.3})


def another_layer(net: Net, opt: Optimizer) -> None:
    net.layers.append(M.Softmax(axis=1))


def a_hook(net: Net, opt: Optimizer) -> None:
    net.register_forward_hook(lambda module, inputs, outputs: outputs * 0.5)


def another_parameter(net: Net, opt: Optimizer) -> None:
    net.layers[1].weight = Parameter(floats(4, 8, seed=5))
    opt.add_param_group({"params": [net.layers[1].weight]})


def another_seed(net: Net, opt: Optimizer) -> None:
    random.seed(77)


CHANGES = [no_change, another_rate, in_use, other_parameters, other_state, fewer_parameters, another_group,
           another_layer, a_hook, another_parameter, another_seed]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changes_of_modules_and_optimizers_are_detected(backend: str, change: Callable[..., None]) -> None:
    step = xla_trace(train, backend=backend)
    check_same(run(step, MAKERS["SGD"], change), run(train, MAKERS["SGD"], change))
    live = change in (no_change, another_rate, other_parameters, other_state, another_seed)
    stays = change is fewer_parameters  # its gradient is not cleared any more, and the next call finds one
    assert step.stats()["records"] == (1 if live else 3 if stays else 2)
    assert all(len(program.steps) == 1 for program in step.programs())


@pytest.mark.parametrize("name", MAKERS)
def test_optimizers_match_eager(backend: str, name: str) -> None:
    step = xla_trace(train, backend=backend)
    check_same(run(step, MAKERS[name], no_change), run(train, MAKERS[name], no_change))


def test_changed_nesterov_flag_triggers_a_retrace(backend: str) -> None:
    def nesterov(net: Net, opt: Optimizer) -> None:
        opt.param_groups[0]["nesterov"] = True

    step = xla_trace(train, backend=backend)
    check_same(run(step, MAKERS["SGD"], nesterov), run(train, MAKERS["SGD"], nesterov))
    (reason,) = step.stats()["reasons"]
    assert "`SGD.param_groups[0]['nesterov']` is True, it was False" in reason


def test_numeric_hyperparameters_are_read_at_each_call(backend: str) -> None:
    def other_numbers(net: Net, opt: Optimizer) -> None:
        opt.param_groups[0].update(betas=(0.5, 0.9), eps=1e-3, weight_decay=0.1)

    step = xla_trace(train, backend=backend)
    check_same(run(step, MAKERS["AdamW"], other_numbers), run(train, MAKERS["AdamW"], other_numbers))
    assert step.stats()["records"] == 1


def test_alternating_train_and_eval_is_recorded_once_each(backend: str) -> None:
    @xla_trace(backend=backend)
    def predict(x, net):
        return net(x)

    net, x = M.Sequential(M.Linear(3, 3), M.Dropout(0.5)), floats(4, 3)
    for _ in range(3):
        net.train()
        predict(tensor(x), net)
        net.eval()
        wanted = x.astype(np.float64) @ net[0].weight.numpy().T + net[0].bias.numpy()
        np.testing.assert_allclose(predict(tensor(x), net).numpy(), wanted, rtol=1e-5, atol=1e-6)
    assert predict.stats()["records"] == 2


def test_uncleared_gradients_accumulate(backend: str) -> None:
    weight, x = Parameter(floats(3)), floats(3, seed=1)

    class Holder(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, x):
            return (self.weight * x).sum()

    @xla_trace(backend=backend)
    def grow(x, net):
        with GradManager().attach(net.parameters()) as gm:
            gm.backward(net(x))

    net = Holder()
    for count in (1, 2, 3):
        assert grow(tensor(x), net) is None
        np.testing.assert_allclose(weight.grad.numpy(), count * x, rtol=1e-6)
    weight.grad = None
    grow(tensor(x), net)
    np.testing.assert_allclose(weight.grad.numpy(), x, rtol=1e-6)


def test_in_place_change_of_an_argument(backend: str) -> None:
    @xla_trace(backend=backend)
    def double(x):
        x *= 2

    for value in (1.0, 5.0):
        x = tensor([value])
        double(x)
        assert x.numpy().tolist() == [2 * value]


# shapes


def test_new_shape_recompiles_and_logs_one_warning(backend: str, caplog: Any) -> None:
    @xla_trace(backend=backend)
    def double(x):
        return x * 2 + 1

    with caplog.at_level(logging.INFO, "mgb.jit"):
        double(tensor(floats(2, 3)))
        assert not caplog.records
        double(tensor(floats(4, 3)))
        (line,) = caplog.records
        assert line.levelno == logging.WARNING
        assert line.getMessage() == (
            "argument 0 of double has shape (4, 3), recorded were (2, 3): it is compiled again"
        )
        for shape in ((2, 3), (4, 3)):
            np.testing.assert_array_equal(double(tensor(floats(*shape))).numpy(), floats(*shape) * 2 + 1)
        assert len(caplog.records) == 1
    assert double.stats()["records"] == len(double.programs()) == 2
