"""What a watched call has found has guards, and code of a user's that mgb calls is watched, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb
import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb import Parameter, tensor
from mgb.autodiff import Function, GradManager
from mgb.jit import trace
from mgb.jit.generated import Lines
from mgb.jit.watch import Observer
from mgb.optimizer import SGD
from watch_cases import everything_is_undone, module_of

__all__ = ["everything_is_undone"]


class Thing:
    x = 1


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [M.Linear(4, 4), M.ReLU(), M.Linear(4, 2)]
        self.scale = 2.0

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.scaled(x)

    def scaled(self, x: Any) -> Any:
        return x * self.scale


CHANGES: dict[str, Callable[[Any, pytest.MonkeyPatch], object]] = {
    "method": lambda net, patch: patch.setattr(Net, "scaled", lambda self, x: x),
    "method of a layer": lambda net, patch: patch.setattr(M.ReLU, "forward", lambda self, x: x),
    "call": lambda net, patch: patch.setattr(M.Module, "__call__", lambda self, *inputs: inputs[0]),
    "number": lambda net, patch: setattr(net, "scale", 3.0),
    "layer more": lambda net, patch: net.layers.append(M.ReLU()),
    "another layer": lambda net, patch: net.layers.__setitem__(1, M.Sigmoid()),
    "own method": lambda net, patch: setattr(net, "scaled", lambda x: x),
    "another class": lambda net, patch: setattr(net.layers[1], "__class__", M.Sigmoid),
    "device": lambda net, patch: mgb.set_default_device("cpu0"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_modules_of_a_training_step_are_detected(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Net()
    manager, optimizer = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(x: Any, y: Any) -> Any:
        with manager:
            loss = F.nn.cross_entropy(net(x), y)
            manager.backward(loss)
        optimizer.step().clear_grad()
        return loss

    arguments = [mgb.tensor(np.ones((2, 4), np.float32)), mgb.tensor(np.array([0, 1], np.int32))]
    observer = Observer(arguments)
    observer.run(step, *arguments)
    assert not observer.impurities, [str(i) for i in observer.impurities]
    check, device = observer.guards.compile(), mgb.get_default_device()
    assert check(arguments)
    try:
        CHANGES[change](net, monkeypatch)
        assert not check(arguments)
    finally:
        mgb.set_default_device(device)


def test_module_hooks_are_observed() -> None:
    module = module_of(
        """
        log, k = [], 2
        def hook(module, inputs, outputs): log.append(1)
        def scale(module, inputs, outputs): return outputs * k
        """,
        "watched_hooks",
    )
    x, net = mgb.tensor([1.0]), M.ReLU()
    handle = net.register_forward_hook(module.hook)
    observer = Observer([x])
    observer.run(lambda t: net(t), x)
    assert [i.reason for i in observer.impurities if "of a list" in i.reason or "list.append" in i.reason]
    handle.remove()
    net.register_forward_hook(module.scale)
    observer = Observer([x])
    observer.run(lambda t: net(t), x)
    assert not observer.impurities
    check = observer.guards.compile()
    module.k = 3
    assert not check([x])


def test_arguments_are_guarded_by_value_not_identity() -> None:
    module = module_of("def f(xs, d, o): return xs[0] + d['a'] + len(xs) + o.x", "watched_arguments")
    thing = Thing()
    leaves = [1, 2, 3, thing]
    observer = Observer(leaves)
    assert observer.run(module.f, [1, 2], {"a": 3}, thing) == 7
    check = observer.guards.compile()
    assert check(leaves)
    thing.x = 2
    assert not check(leaves)
    assert check([1, 2, 3, Thing()])  # read where it stands, whichever object it is


def test_guard_lines_can_be_inlined_into_another_function() -> None:
    module = module_of("k = 3\ndef f(x): return x * k", "watched_lines")
    x = mgb.tensor([1.0])
    observer = Observer([x])
    observer.run(module.f, x)
    writer = observer.guards.write(Lines())
    space = {**writer.names, "MISS": "miss"}
    exec("def run(t0):\n" + "".join(f"  {line}\n" for line in [*writer.lines, "return 'hit'"]), space)
    assert space["run"](x) == "hit"
    module.k = 4
    assert space["run"](x) == "miss"


def test_guard_failure_is_reported_as_a_source_expression() -> None:
    module = module_of("cfg = {'layers': [1, [2]]}\ndef f(o): return cfg['layers'][1][0] + o.x[0]")
    thing: Any = Thing()
    thing.x = [5]
    observer = Observer([thing])
    observer.run(module.f, thing)
    assert str(observer.known(thing)) == "argument 0"
    module.cfg["layers"][1][0] = 3
    assert observer.guards.why([thing]) == "`cfg['layers'][1][0]` is 3, it was 2"


# code of a user's that mgb calls, which has no file


def _made(text: str, **space: Any) -> Any:
    exec(text, space)
    return space["asked"]


def _callback(seen: list[Any]) -> Any:
    tensors = [Parameter([1.0])]
    callback = _made("def asked(tensor, grad): seen.append(1.0); return grad", seen=seen)
    manager = GradManager().attach(tensors, callback)

    def step() -> None:
        with manager:
            manager.backward(tensors[0] * 2.0)

    return step


def _method_of_a_layer(seen: list[Any]) -> Any:
    layer = M.Linear(2, 2)
    layer._calc_linear = layer.forward = _made("def asked(x): seen.append(1.0); return x", seen=seen)
    return lambda: layer(tensor([[1.0, 2.0]]))


def _method_of_a_class(seen: list[Any]) -> Any:
    class Own(M.Identity):
        pass

    Own.forward = _made("def asked(self, x): seen.append(1.0); return x", seen=seen)
    layers = M.Sequential(M.Identity(), Own())
    return lambda: layers(tensor([1.0]))


def _note_of_a_tensor(seen: list[Any]) -> Any:
    given = Parameter([4.0])
    given.to = _made("def asked(*_): seen.append(1.0); return given", seen=seen, given=given)
    return lambda: F.concat([given, given], device="xpux:0")


def _gradient_of_an_operation(seen: list[Any]) -> Any:
    class Own(Function):
        def forward(self, x: Any) -> Any:
            return x * 2.0

    Own.backward = _made("def asked(self, dy): seen.append(1.0); return dy", seen=seen)
    Own.__abstractmethods__ = frozenset()
    x, own = Parameter([1.0]), Own()
    manager = GradManager().attach(x)

    def step() -> None:
        with manager:
            manager.backward(own(x))

    return step


REACHED = [_callback, _method_of_a_layer, _method_of_a_class, _note_of_a_tensor, _gradient_of_an_operation]


@pytest.mark.parametrize("made", REACHED, ids=lambda made: made.__name__.strip("_"))
def test_user_callbacks_that_mgb_calls_are_seen_at_every_call(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MGB_JIT_BACKEND", "EAGER")
    seen: list[Any] = []
    step = made(seen)
    plainly = (step(), len(seen))[1]
    assert plainly
    traced = trace(lambda x: (step(), x * 2.0)[1])
    for _ in range(3):
        seen.clear()
        traced(tensor([1.0]))
        assert len(seen) == plainly
