"""`xla_trace`: what it refuses, and what is left as it was then."""

from __future__ import annotations

from typing import Any

import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb import Parameter, plugins, random, tensor
from mgb.autodiff import GradManager
from mgb.errors import (
    BackendNotInstalledError,
    ImpureBodyError,
    SymbolicReadError,
    TraceError,
    TraceInputError,
    UnknownInputError,
    UnsupportedError,
)
from mgb.jit import exclude_from_trace, xla_trace
from mgb.optimizer import SGD
from whole_steps import (
    LABELS,
    MAKERS,
    Net,
    check_same,
    floats,
    no_change,
    run,
    train,
    whole_backend,  # noqa: F401 - a fixture
)

# what comes from outside


def test_free_variable_tensor_raises_unless_captured_as_constant(backend: str) -> None:
    outside = tensor([10.0])

    @xla_trace(backend=backend)
    def add(x):
        return x + outside

    with pytest.raises(UnknownInputError, match=r"(?s)unknown input tensors.*test_bad.*argument"):
        add(tensor([1.0]))

    @xla_trace(backend=backend, capture_as_const=True)
    def add_constant(x):
        return x + outside + tensor([0.5])

    assert add_constant(tensor([1.0])).item() == 11.5
    assert add_constant(tensor([2.0])).item() == 12.5
    assert add_constant.stats()["records"] == 1
    outside._reset(tensor([20.0]))
    assert add_constant(tensor([2.0])).item() == 22.5
    assert add_constant.stats()["records"] == 2


@pytest.mark.parametrize("count", [7, 5000])
def test_constants_do_not_split_the_executable(backend: str, count: int) -> None:
    early, late = floats(count, seed=1), floats(count, seed=2)

    @xla_trace(backend=backend, capture_as_const=True)
    def function(x):
        return F.exp(x * tensor(early)) / F.mean(x) + tensor(late)

    x = floats(count).astype(np.float64)
    for _ in range(2):
        wanted = np.exp(x * early) / x.mean() + late
        np.testing.assert_allclose(function(tensor(x)).numpy(), wanted, rtol=1e-3, atol=1e-3)
    (program,) = function.programs()
    assert sum(step.fused for step in program.steps) == 1
    assert all(step.fused or not step.reads for step in program.steps)


def test_module_that_is_not_an_argument_raises_or_is_captured(backend: str) -> None:
    net, x = M.Linear(3, 2), floats(4, 3)
    opt = SGD(net.parameters(), lr=0.1)
    with pytest.raises(UnknownInputError):
        xla_trace(lambda x: net(x), backend=backend)(tensor(x))
    captured = xla_trace(lambda x: net(x), backend=backend, capture_as_const=True)
    np.testing.assert_allclose(captured(tensor(x)).numpy(), net(tensor(x)).numpy(), rtol=1e-5, atol=1e-6)

    def step(data, *, opt):
        with GradManager().attach(net.parameters()) as gm:
            gm.backward(net(data).sum())
            opt.step().clear_grad()

    before = net.state_dict()
    for wrong in (xla_trace(step, backend=backend), xla_trace(step, backend=backend, capture_as_const=True)):
        wrong(tensor(x), opt=opt)  # its parameters are in the optimizer
    assert not np.array_equal(before["weight"], net.weight.numpy())

    momentum = SGD(net.parameters(), lr=0.1, momentum=0.9)

    @xla_trace(backend=backend, capture_as_const=True)
    def hidden(data, *, net):
        with GradManager().attach(net.parameters()) as gm:
            gm.backward(net(data).sum())
            momentum.step().clear_grad()

    before = net.state_dict()
    with pytest.raises(TraceError, match="Optimizer that it belongs to, as an argument"):
        hidden(tensor(x), net=net)
    np.testing.assert_array_equal(before["weight"], net.weight.numpy())
    assert net.weight.grad is None


def test_rejected_call_has_no_side_effects(backend: str) -> None:
    def reads(data, label, *, opt, net):
        loss = train(data, label, opt=opt, net=net)
        random.uniform(size=(2,))
        return loss if loss.item() > 0 else -loss

    def reads_an_argument(data, label, *, opt, net):
        return data if label.numpy().any() else -data

    def leaves(data, label, *, opt, net):
        train(data, label, opt=opt, net=net)
        with exclude_from_trace():
            return data

    kept = []

    def keeps(data, label, *, opt, net):
        kept.append(train(data, label, opt=opt, net=net))
        return kept[0] * 1

    wrong = {reads: SymbolicReadError, reads_an_argument: SymbolicReadError, leaves: ImpureBodyError,
             keeps: ImpureBodyError}  # fmt: skip
    net = Net()
    opt = SGD(net.parameters(), lr=0.1, momentum=0.9)
    before, state, draws = net.state_dict(), opt.state_dict()["state"], random.get_rng_state()
    for function, error in wrong.items():
        with pytest.raises(error):
            step = xla_trace(function, backend=backend)
            step(tensor(floats(16, 6)), tensor(LABELS), opt=opt, net=net)
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value, before[name])
    assert not any(value["momentum_buffer"].any() for value in state.values())
    assert random.get_rng_state() == draws and all(p.grad is None for p in net.parameters())
    check_same(run(xla_trace(train, backend=backend), MAKERS["SGD"], no_change),
               run(train, MAKERS["SGD"], no_change))  # fmt: skip


def test_exception_from_the_body_propagates_and_next_call_works(backend: str) -> None:
    broken = [True]

    @xla_trace(backend=backend)
    def step(x, net):
        y = net(x)
        if broken:
            raise KeyError("body")
        return y

    net = Net()
    with pytest.raises(KeyError, match="body"):
        step(tensor(floats(16, 6)), net)
    broken.clear()
    net.eval()
    np.testing.assert_allclose(
        step(tensor(floats(16, 6)), net).numpy(), net(tensor(floats(16, 6))).numpy(), rtol=1e-5, atol=1e-6
    )


def test_call_under_a_callers_gradient_tape_raises(backend: str) -> None:
    net, other = M.Linear(3, 2), Parameter(floats(3))

    @xla_trace(backend=backend)
    def predict(x, net):
        return net(x).sum()

    with GradManager().attach(net.parameters()), pytest.raises(UnsupportedError, match="partial_trace"):
        predict(tensor(floats(4, 3)), net)
    x = tensor(floats(4, 3))
    with GradManager().attach(x), pytest.raises(UnsupportedError):
        predict(x, net)
    with GradManager().attach(other) as gm:  # it does not see the call
        factor = predict(tensor(floats(4, 3)), net)
        gm.backward((other * factor).sum())
    np.testing.assert_allclose(other.grad.numpy(), np.full(3, factor.item()), rtol=1e-6)


@pytest.mark.parametrize(
    "options",
    [{"symbolic_shape": True}, {"without_host": False}, {"imperative": True}, {"record_only": True},
     {"opt_level": 2}, {"colour": "red"}],
    ids=str,
)  # fmt: skip
def test_unsupported_options_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(TraceInputError, match=next(iter(options))) as caught:
        xla_trace(train, **options)
    assert "xla_trace" in str(caught.value)
    xla_trace(train, symbolic_shape=False, without_host=True, imperative=False, opt_level=3)


def test_missing_backend_error_names_its_install_command() -> None:
    missing = [name for name in plugins.EXTRAS if name not in plugins.installed()]
    if not missing:
        pytest.skip("every backend that the project publishes is installed")
    net = M.Linear(2, 2)
    opt, before = SGD(net.parameters(), lr=1.0), net.state_dict()
    step = xla_trace(lambda x, opt, net: train(x, tensor([0, 1]), opt=opt, net=net), backend=missing[0],
                     capture_as_const=True)  # fmt: skip
    with pytest.raises(BackendNotInstalledError, match=rf'pip install "mgb\[{plugins.EXTRAS[missing[0]]}\]"'):
        step(tensor(floats(2, 2)), opt, net)
    np.testing.assert_array_equal(net.weight.numpy(), before["weight"])
