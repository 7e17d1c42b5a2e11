"""A network, a training step, and the backends that take whole graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from arrays import floats
from mgb import Tensor, plugins, random, tensor
from mgb.autodiff import GradManager
from mgb.errors import (
    BackendError,
)
from mgb.optimizer import SGD, Adam, AdamW, Optimizer


@pytest.fixture(name="backend", params=["eager", "xla"])
def whole_backend(request: pytest.FixtureRequest) -> str:
    """A backend that takes whole graphs."""
    try:
        plugins.choose_backend("cpu", request.param)
    except BackendError as error:
        pytest.skip(str(error))
    return str(request.param)


LABELS = np.random.default_rng(1).integers(0, 4, 16)


class Net(M.Module):
    """With all that a step carries on: buffers, random numbers, a list of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = M.Linear(6, 8, bias=False), M.BatchNorm1d(8)  # which would undo a bias
        self.drop = M.Dropout(0.25)
        self.layers = [M.Linear(8, 8), M.Linear(8, 4)]

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(F.relu(self.norm(self.first(x))))
        for layer in self.layers:
            x = layer(x)
        return x


def train(data: Tensor, label: Tensor, *, opt: Optimizer, net: M.Module) -> Tensor:
    gm = GradManager()
    gm.attach(net.parameters())
    with gm:
        loss = F.loss.cross_entropy(net(data), label)
        gm.backward(loss)
        opt.step().clear_grad()
    return loss


MAKERS = {
    "SGD": lambda params: SGD(params, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "Adam": lambda params: Adam(params, lr=0.01),
    "AdamW": lambda params: AdamW(params, lr=0.01),
}  # fmt: skip


def no_change(net: Net, opt: Optimizer) -> None:
    """As it is."""


def another_rate(net: Net, opt: Optimizer) -> None:
    opt.param_groups[0]["lr"] *= 0.5


def run(step: Callable[..., Tensor], make: Callable[..., Optimizer], change: Callable[..., None]) -> Any:
    random.seed(3)
    net = Net()
    opt, losses = make(net.parameters()), []
    for number in range(5):
        if number == 3:
            change(net, opt)
        data = tensor(floats(16, 6, seed=number))
        losses.append(step(data, tensor(LABELS), opt=opt, net=net).item())
    return losses, net.state_dict(), opt.state_dict()["state"], random.get_rng_state()


def check_same(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)
    for name, value in wanted[1].items():
        np.testing.assert_allclose(found[1][name], value, rtol=1e-4, atol=1e-5, err_msg=name)
    for place, tensors in wanted[2].items():
        for name, value in tensors.items():
            np.testing.assert_allclose(found[2][place][name], value, rtol=1e-4, atol=1e-5)
    assert found[3] == wanted[3]
