"""Code of a user's that mgb calls is seen, though nothing announces it and no hook can be put into it."""

from __future__ import annotations

from typing import Any

import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb import Parameter, tensor
from mgb.autodiff import Function, GradManager
from mgb.jit import trace
from mgb.jit.environment.reach import calls_no_user
from mgb.ops.contract import MATMUL
from mgb.optimizer import SGD, Adam


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_JIT_BACKEND", "EAGER")


def without_hooks(text: str, **space: Any) -> Any:
    """The function `asked` of a text, which has no file, so that no hook can be put into it."""
    exec(text, space)
    return space["asked"]


def _callback(seen: list[Any]) -> Any:
    tensors = [Parameter([1.0])]
    callback = without_hooks("def asked(tensor, grad): seen.append(1.0); return grad", seen=seen)
    manager = GradManager().attach(tensors, callback)

    def step() -> None:
        with manager:
            manager.backward(tensors[0] * 2.0)

    return step


def _method_of_a_layer(seen: list[Any]) -> Any:
    layer = M.Linear(2, 2)
    text = "def asked(x): seen.append(1.0); return x"
    layer._calc_linear = layer.forward = without_hooks(text, seen=seen)
    return lambda: layer(tensor([[1.0, 2.0]]))


def _method_of_a_class(seen: list[Any]) -> Any:
    class Own(M.Identity):
        pass

    Own.forward = without_hooks("def asked(self, x): seen.append(1.0); return x", seen=seen)
    layers = M.Sequential(M.Identity(), Own())
    return lambda: layers(tensor([1.0]))


def _note_of_a_tensor(seen: list[Any]) -> Any:
    given = Parameter([4.0])
    given.to = without_hooks("def asked(*_): seen.append(1.0); return given", seen=seen, given=given)
    return lambda: F.concat([given, given], device="xpux:0")


def _gradient_of_an_operation(seen: list[Any]) -> Any:
    class Own(Function):
        def forward(self, x: Any) -> Any:
            return x * 2.0

    Own.backward = without_hooks("def asked(self, dy): seen.append(1.0); return dy", seen=seen)
    Own.__abstractmethods__ = frozenset()
    x, own = Parameter([1.0]), Own()
    manager = GradManager().attach(x)

    def step() -> None:
        with manager:
            manager.backward(own(x))

    return step


REACHED = [_callback, _method_of_a_layer, _method_of_a_class, _note_of_a_tensor, _gradient_of_an_operation]


@pytest.mark.parametrize("made", REACHED, ids=lambda made: made.__name__.strip("_"))
def test_uninstrumented_user_callbacks_run_at_every_call(made: Any) -> None:
    seen: list[Any] = []
    step = made(seen)
    plainly = (step(), len(seen))[1]
    assert plainly
    traced = trace(lambda x: (step(), x * 2.0)[1])
    for _ in range(3):
        seen.clear()
        traced(tensor([1.0]))
        assert len(seen) == plainly


OF_MGB: dict[str, Any] = {
    "layer": lambda layer, x: (layer, x),
    "function": lambda layer, x: (F.softmax, x, 1),
    "step": lambda layer, x: (Adam(layer.parameters(), lr=0.1).step,),
    "method": lambda layer, x: (x.reshape, 3, 1),
}


def _is_told_apart(called: Any, *given: Any) -> None:
    assert calls_no_user(called, given, {}, {})
    for other in (lambda: None, type("Own", (), {})(), np.array([object()]), iter([1])):
        assert not calls_no_user(called, (*given, other), {}, {})
        assert not calls_no_user(called, (*given, [{"in": (other,)}]), {}, {})


@pytest.mark.parametrize("name", OF_MGB)
def test_library_calls_without_user_code_are_recognized(name: str) -> None:
    layer = M.Sequential(M.Linear(3, 2), M.LayerNorm(2))
    _is_told_apart(*OF_MGB[name](layer, tensor(np.ones((1, 3), np.float32))))


def test_backward_without_user_code_is_recognized() -> None:
    layer, x = M.Sequential(M.Linear(3, 2), M.LayerNorm(2)), tensor(np.ones((1, 3), np.float32))
    with (manager := GradManager().attach(layer.parameters())):
        _is_told_apart(manager.backward, (F.softmax(layer(x)) * x[:, :2]).sum())


def test_library_callbacks_are_not_user_code(monkeypatch: pytest.MonkeyPatch) -> None:
    class Array:
        """Of a device."""

    rule = MATMUL.eager
    monkeypatch.setitem(rule.found, (Array,), lambda *_: None)
    layer = M.Linear(3, 2)
    assert calls_no_user(layer, (tensor(np.ones((1, 3), np.float32)),), {}, {})
    with (manager := GradManager().attach(layer.parameters())):
        assert calls_no_user(manager.backward, (layer(tensor(np.ones((1, 3), np.float32))).sum(),), {}, {})


def test_foreign_functions_are_treated_as_user_code() -> None:
    x = tensor([1.0])
    for called in (lambda x: x, len, print, SGD(Parameter([1.0]), lr=1.0).param_groups.append):
        assert not calls_no_user(called, (x,), {}, {})


def test_optimizer_setting_of_a_user_class_counts_as_user_code() -> None:
    optimizer = Adam(Parameter([1.0]), lr=1.0)
    optimizer.param_groups[0]["lr"] = type("Rate", (float,), {})(0.5)
    assert not calls_no_user(optimizer.step, (), {}, {})
