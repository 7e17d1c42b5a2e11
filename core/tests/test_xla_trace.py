"""`xla_trace`: whole steps as one executable, on every backend here that takes whole graphs."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb import Parameter, Tensor, plugins, random, tensor
from mgb.autodiff import GradManager
from mgb.errors import (
    BackendError,
    BackendNotInstalledError,
    CallerTapeError,
    DumpTrainingError,
    HeldConstantError,
    SymbolicReadError,
    TraceError,
    TraceInputError,
    TraceOutputError,
    UnknownInputError,
)
from mgb.jit import auto, exclude_from_trace, load, partial_trace, trace, xla_trace
from mgb.optimizer import SGD, Adam, AdamW, Optimizer


@pytest.fixture(params=["eager", "xla"])
def backend(request: pytest.FixtureRequest) -> str:
    """A backend that takes whole graphs."""
    try:
        plugins.choose_backend("cpu", request.param)
    except BackendError as error:
        pytest.skip(str(error))
    return str(request.param)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


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


# values


def test_the_softmax_of_the_guide(backend: str) -> None:
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


def test_a_step_trains_as_written_by_hand_and_is_one_executable(backend: str) -> None:
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
    opt, held, bodies = SGD(net.parameters(), lr=rate, momentum=momentum), net.weight, []

    @xla_trace(backend=backend, capture_as_const=True)
    def step(data, label, *, opt, net):
        bodies.append(1)
        return train(data, label, opt=opt, net=net)

    found = [step(tensor(x), tensor(LABELS), opt=opt, net=net).item() for _ in range(steps)]
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    np.testing.assert_allclose(net.weight.numpy(), weight, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(opt.state_dict()["state"][0]["momentum_buffer"], speed, rtol=1e-4, atol=1e-5)
    assert net.weight is held and net.weight.grad is None
    assert len(bodies) == step.stats()["records"] == 1
    (program,) = step.programs()
    assert len(program.steps) == 1 and step.backend == backend
    assert "1 fused groups, 0 ops run eagerly" in step.explain(tensor(x), tensor(LABELS), opt=opt, net=net)


MAKERS = {
    "SGD": lambda params: SGD(params, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "Adam": lambda params: Adam(params, lr=0.01),
    "AdamW": lambda params: AdamW(params, lr=0.01),
}  # fmt: skip


def no_change(net: Net, opt: Optimizer) -> None:
    """As it is."""


def another_rate(net: Net, opt: Optimizer) -> None:
    opt.param_groups[0]["lr"] *= 0.5


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


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changes_of_modules_and_optimizers_are_seen(backend: str, change: Callable[..., None]) -> None:
    step = xla_trace(train, backend=backend)
    check_same(run(step, MAKERS["SGD"], change), run(train, MAKERS["SGD"], change))
    live = change in (no_change, another_rate, other_parameters, other_state, another_seed)
    stays = change is fewer_parameters  # its gradient is not cleared any more, and the next call finds one
    assert step.stats()["records"] == (1 if live else 3 if stays else 2)
    assert all(len(program.steps) == 1 for program in step.programs())


@pytest.mark.parametrize("name", MAKERS)
def test_optimizers(backend: str, name: str) -> None:
    step = xla_trace(train, backend=backend)
    check_same(run(step, MAKERS[name], no_change), run(train, MAKERS[name], no_change))


def test_a_fixed_hyper_parameter_is_seen(backend: str) -> None:
    def nesterov(net: Net, opt: Optimizer) -> None:
        opt.param_groups[0]["nesterov"] = True

    step = xla_trace(train, backend=backend)
    check_same(run(step, MAKERS["SGD"], nesterov), run(train, MAKERS["SGD"], nesterov))
    (reason,) = step.stats()["reasons"]
    assert "Optimizer SGD was changed: nesterov is True" in reason


def test_numbers_of_an_optimizer_are_asked_for_at_each_call(backend: str) -> None:
    def other_numbers(net: Net, opt: Optimizer) -> None:
        opt.param_groups[0].update(betas=(0.5, 0.9), eps=1e-3, weight_decay=0.1)

    step = xla_trace(train, backend=backend)
    check_same(run(step, MAKERS["AdamW"], other_numbers), run(train, MAKERS["AdamW"], other_numbers))
    assert step.stats()["records"] == 1


def test_modes_that_alternate_are_recorded_once_each(backend: str) -> None:
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


def test_gradients_that_stay_add_up(backend: str) -> None:
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


def test_arguments_that_change_in_place(backend: str) -> None:
    @xla_trace(backend=backend)
    def double(x):
        x *= 2

    for value in (1.0, 5.0):
        x = tensor([value])
        double(x)
        assert x.numpy().tolist() == [2 * value]


# shapes


def test_new_shapes_are_compiled_again_with_one_line_in_the_log(backend: str, caplog: Any) -> None:
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


# what comes from outside


def test_tensors_from_outside_are_arguments_or_an_error(backend: str) -> None:
    outside = tensor([10.0])

    @xla_trace(backend=backend)
    def add(x):
        return x + outside

    with pytest.raises(UnknownInputError, match=r"(?s)unknown input tensors.*test_xla_trace.*argument"):
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
def test_constants_do_not_cut_the_executable(backend: str, count: int) -> None:
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


def test_a_module_that_is_no_argument(backend: str) -> None:
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
    with pytest.raises(HeldConstantError, match="Optimizer that it belongs to, as an argument"):
        hidden(tensor(x), net=net)
    np.testing.assert_array_equal(before["weight"], net.weight.numpy())
    assert net.weight.grad is None


def test_what_is_refused_changes_nothing(backend: str) -> None:
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

    def counts(data, label, *, opt, net):
        train(data, label, opt=opt, net=net)
        return 3

    wrong = {reads: SymbolicReadError, reads_an_argument: SymbolicReadError, leaves: TraceError,
             keeps: TraceOutputError, counts: TraceOutputError}  # fmt: skip
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


def test_an_error_of_the_body_arrives_and_the_next_call_works(backend: str) -> None:
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


def test_a_gradient_that_the_caller_wants_is_refused_not_lost(backend: str) -> None:
    net, other = M.Linear(3, 2), Parameter(floats(3))

    @xla_trace(backend=backend)
    def predict(x, net):
        return net(x).sum()

    with GradManager().attach(net.parameters()), pytest.raises(CallerTapeError, match="partial_trace"):
        predict(tensor(floats(4, 3)), net)
    x = tensor(floats(4, 3))
    with GradManager().attach(x), pytest.raises(CallerTapeError):
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
def test_options_that_it_cannot_take(options: dict[str, Any]) -> None:
    with pytest.raises(TraceInputError, match=next(iter(options))) as caught:
        xla_trace(train, **options)
    assert "xla_trace" in str(caught.value)
    xla_trace(train, symbolic_shape=False, without_host=True, imperative=False, opt_level=3)


def test_a_backend_that_is_not_installed_is_named_with_its_command() -> None:
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


# as an object of Python


def test_methods(backend: str) -> None:
    class Own(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = M.Linear(3, 3)

        @xla_trace(backend=backend)
        def forward(self, x):
            return self.linear(x)

    class Trainer:
        def __init__(self, net: M.Module) -> None:
            self.net, self.opt = net, SGD(net.parameters(), lr=0.1, momentum=0.9)

        @xla_trace(backend=backend)
        def step(self, data, label):
            return train(data, label, opt=self.opt, net=self.net)

    own = Own()
    x = floats(2, 3)
    for _ in range(2):
        wanted = x.astype(np.float64) @ own.linear.weight.numpy().T + own.linear.bias.numpy()
        np.testing.assert_allclose(own(tensor(x)).numpy(), wanted, rtol=1e-5, atol=1e-6)
        own.linear.weight._reset(own.linear.weight * 2)
    assert own.forward.stats()["records"] == 1

    trainer = Trainer(Net())
    data, label = tensor(floats(16, 6)), tensor(LABELS)
    trainer.step(data, label)
    trainer.net = Net()
    trainer.opt = SGD(trainer.net.parameters(), lr=0.0)
    before = trainer.net.first.weight.numpy().copy()
    trainer.step(data, label)
    np.testing.assert_array_equal(before, trainer.net.first.weight.numpy())
    assert "Trainer was changed: net is another object" in trainer.step.stats()["reasons"][0]
    gone = [weakref.ref(own), weakref.ref(trainer)]
    del own, trainer
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


def test_inside_other_traces(backend: str) -> None:
    @xla_trace(backend=backend)
    def inner(x, net):
        return net(x) * 2

    net = M.Linear(3, 3)
    wanted = net(tensor(floats(2, 3))).numpy() * 2
    outer = trace(lambda x, net: inner(x, net) + 1)
    whole = xla_trace(lambda x, net: inner(x, net) + 1, backend=backend)
    for function in (outer, whole, auto()(lambda x, net: inner(x, net) + 1)):
        for _ in range(3):
            x = tensor(floats(2, 3))
            np.testing.assert_allclose(function(x, net).numpy(), wanted + 1, rtol=1e-5, atol=1e-6)


def test_training_under_auto(backend: str) -> None:
    step = xla_trace(train, backend=backend)
    wanted = run(train, MAKERS["SGD"], no_change)
    check_same(auto()(run)(step, MAKERS["SGD"], no_change), wanted)
    assert step.stats()["records"] == 1


def test_two_threads(backend: str) -> None:
    @xla_trace(backend=backend)
    def predict(x, net):
        return net(x)

    net, found = M.Linear(3, 3), {}
    xs = [floats(4, 3, seed=n) for n in range(8)]

    def work(first: int) -> None:
        for n in range(first, 8, 2):
            found[n] = predict(tensor(xs[n]), net).numpy()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n, x in enumerate(xs):
        wanted = x.astype(np.float64) @ net.weight.numpy().T + net.bias.numpy()
        np.testing.assert_allclose(found[n], wanted, rtol=1e-5, atol=1e-6)
    assert predict.stats()["records"] == 1


def test_compile_ahead(backend: str) -> None:
    @xla_trace(backend=backend)
    def step(data, label, opt, net):
        return train(data, label, opt=opt, net=net)

    net = Net()
    opt = SGD(net.parameters(), lr=0.1)
    before = net.first.weight.numpy().copy()
    step.compile("f32[16,6]", "i32[16]", opt, net)
    np.testing.assert_array_equal(net.first.weight.numpy(), before)
    step(tensor(floats(16, 6)), tensor(LABELS), opt, net)
    assert step.stats()["records"] == len(step.programs()) == 1
    with pytest.raises(UnknownInputError):
        xla_trace(lambda x: net(x), backend=backend).compile("f32[16,6]")
    kept = []
    with pytest.raises(TraceOutputError, match="elsewhere than in what it returns"):
        xla_trace(lambda x: kept.append(x * 2), backend=backend).compile("f32[16,6]")


def test_files(backend: str, tmp_path: Any) -> None:
    @xla_trace(backend=backend, capture_as_const=True)
    def predict(x, *, net):
        return F.softmax(net(x), axis=1)

    net, x = M.Linear(3, 2), floats(4, 3)
    predict(tensor(x), net=net)
    net.weight._reset(net.weight * 2)
    wanted = F.softmax(net(tensor(x)), axis=1).numpy()
    predict.export(tmp_path / "latest.mgb")
    predict.export(tmp_path / "types.mgb", "f32[4,3]", net=net)
    predict.dump(tmp_path / "model.onnx")
    for name in ("latest.mgb", "types.mgb", "model.onnx"):
        result = load(tmp_path / name)(tensor(x))
        np.testing.assert_allclose(np.asarray(result.numpy()), wanted, rtol=1e-5, atol=1e-6)

    step = xla_trace(train, backend=backend, capture_as_const=True)
    step(tensor(floats(16, 6)), tensor(LABELS), opt=SGD(net2.parameters(), lr=0.1), net=net2)
    for write in (step.export, step.dump):
        with pytest.raises(DumpTrainingError):
            write(tmp_path / "step")
    assert not (tmp_path / "step").exists()


net2 = Net()


def test_profiling(backend: str) -> None:
    @xla_trace(backend=backend, profiling=True)
    def double(x):
        return x * 2

    for _ in range(3):
        double(tensor(floats(4)))
    assert "double" in str(double.profile_table())


# partial_trace


def test_partial_trace_is_one_executable_each_way(backend: str, caplog: Any) -> None:
    @partial_trace(backend=backend, capture_as_const=True)
    def backbone(model, inp):
        return model(inp)

    def partly(data, label, *, opt, net):
        gm = GradManager()
        gm.attach(net.parameters())
        with gm:
            loss = F.loss.cross_entropy(backbone(net, data), label)
            gm.backward(loss)
            opt.step().clear_grad()
        return loss

    check_same(run(partly, MAKERS["Adam"], another_rate), run(train, MAKERS["Adam"], another_rate))
    assert backbone.stats()["records"] == 1 and backbone.backend == backend
    assert [len(program.steps) for program in backbone.programs()] == [1, 1]


def test_partial_trace_of_equal_calls_is_equal() -> None:
    net = M.Sequential(M.Linear(3, 5), M.GELU(), M.Linear(5, 4), M.ReLU(), M.Linear(4, 2))
    texts = set()
    for _ in range(8):
        function = partial_trace(lambda x, net: net(x), backend="eager")
        with GradManager().attach(net.parameters()) as gm:
            gm.backward(function(tensor(floats(2, 3)), net).sum())
        texts.add("\n".join(str(program.recorded) for program in function.programs()))
    assert len(texts) == 1


def test_partial_trace_compiles_new_shapes_with_one_line_in_the_log(backend: str, caplog: Any) -> None:
    @partial_trace(backend=backend)
    def squares(x):
        return (x * x).sum()

    with caplog.at_level(logging.INFO, "mgb.jit"):
        for count in (2, 3, 2, 3):
            x = tensor(floats(count))
            with GradManager().attach(x) as gm:
                gm.backward(squares(x))
            np.testing.assert_allclose(x.grad.numpy(), 2 * floats(count), rtol=1e-6)
    (line,) = caplog.records
    assert "argument 0 of squares has shape (3,), recorded were (2,)" in line.getMessage()
    assert squares.stats()["records"] == 2
