"""A traced training step against the same step run eagerly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from mgb import functional as F
from mgb import module as M
from mgb import optimizer, tensor
from mgb.autodiff import GradManager
from mgb.executor import Options, compile_program
from mgb.ir import Graph, Spec
from mgb.jit import trace
from mgb.tensor.tracing import graph_of
from mgb.tools import demo

from .cases import of, samples
from .drive import Driver
from .judge import judge, problem

STEPS = 12


class Network(M.Module):
    """Two layers with a norm between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = M.Linear(10, 16)
        self.norm = M.LayerNorm(16)
        self.second = M.Linear(16, 3)
        for seed, parameter in enumerate(self.parameters()):
            values = np.random.default_rng(seed).normal(size=parameter.shape) * 0.3
            parameter._reset(tensor(values, dtype="float32"))

    def forward(self, x: Any) -> Any:
        return self.second(F.gelu(self.norm(self.first(x))))


def losses(backend: str | None, make_optimizer: Any) -> list[float]:
    """Return the loss at each step of a short training, compiled when a backend is named."""
    network = Network()
    manager = GradManager().attach(list(network.parameters()))
    optim = make_optimizer(network.parameters())

    def step(x: Any, label: Any) -> Any:
        optim.clear_grad()
        with manager:
            loss = F.cross_entropy(network(x), label)
            manager.backward(loss)
        optim.step()
        return loss

    run = trace(step, backend=backend) if backend else step
    random = np.random.default_rng(0)
    found = []
    for _ in range(STEPS):
        x = random.normal(size=(32, 10)).astype(np.float32)
        label = (x[:, 0] > 0) + (x[:, 1] > 0.5)
        found.append(float(run(tensor(x), tensor(label.astype(np.int32)))))
    return found


def on(driver: Driver, function: Any, *arrays: np.ndarray) -> Graph:
    """Return the graph of `function` where the backend works."""
    return graph_of(function, *(Spec(a.shape, a.dtype, driver.place.device) for a in arrays))


OPTIMIZERS = {
    "sgd": lambda ps: optimizer.SGD(ps, lr=0.1, momentum=0.9, weight_decay=1e-4),
    "adam": lambda ps: optimizer.Adam(ps, lr=0.01),
}


class TestTraining:
    @pytest.fixture(autouse=True)
    def where_the_backend_works(self, driver: Driver) -> Iterator[None]:
        """Tensors are made on a device of the backend, for eager evaluation as well."""
        with driver.place.as_default():
            yield

    @pytest.mark.parametrize("name", OPTIMIZERS)
    def test_losses_match_eager(self, driver: Driver, name: str) -> None:
        got = losses(driver.backend.name, OPTIMIZERS[name])
        want = losses(None, OPTIMIZERS[name])
        assert want[-1] < want[0], "the training itself must work"
        np.testing.assert_allclose(got, want, rtol=2e-4)

    @pytest.mark.parametrize("run_body", [False, True])
    def test_digits_demo_matches_eager(self, driver: Driver, run_body: bool) -> None:
        """Check a convolutional network with batch normalisation and pooling, for an epoch of real images."""

        def wrap(step: Any) -> Any:
            return trace(step, backend=driver.backend.name, run_body=run_body)

        got, want = demo.train([("compiled", wrap), ("eager", lambda step: step)], epochs=1)
        assert want.losses[-1] < 0.5 * want.losses[0], "the training itself must work"
        np.testing.assert_allclose(got.losses, want.losses, rtol=0, atol=demo.TOLERANCE)

    def test_program_of_groups_and_eager_steps(self, driver: Driver) -> None:
        x, w = samples("float32", (12, 20), 1), samples("float32", (20, 7), 2)

        def program(x: Any, w: Any) -> list[Any]:
            y = F.matmul(F.tanh(x) * 0.5, w * 2 + 1)
            return [F.transpose(y, (1, 0)) + 1, F.sum(y * y, axis=1), y]

        compiled = compile_program(on(driver, program, x, w), Options(backend=driver.backend.name))
        given = map(driver.place.put, (x, w))
        for got, want in zip(compiled.run(*given), judge(of(program, x, w), [x, w]), strict=True):
            assert problem(driver.place.get(got), want) is None

    def test_requested_backend_is_the_one_that_runs(self, driver: Driver) -> None:
        x = samples("float32", (500,))
        graph = on(driver, lambda x: [F.tanh(x) * x + 1 - x], x)
        program = compile_program(graph, Options(backend=driver.backend.name))
        assert set(program.backends) <= {driver.backend.name}
