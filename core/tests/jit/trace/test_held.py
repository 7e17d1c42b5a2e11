"""What Python keeps of a call, beside the result or as part of it, only the body can renew."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import mgb.module as M
import numpy as np
import pytest
from mgb import Parameter, Tensor, errors, tensor
from mgb.autodiff import GradManager
from mgb.jit import partial_trace, trace, xla_trace

#: h -> h / 2 + 1, from 0.
STATES = [1.0, 1.5, 1.75, 1.875, 1.9375]

BODY = {
    "skipped": trace,
    "run": lambda f: trace(f, run_body=True),
    "symbolic": lambda f: trace(f, symbolic=True),
    "imperative": lambda f: trace(f, imperative=True),
}
REFUSING = {
    "run_body=False": lambda f: trace(f, run_body=False),
    "partial_trace": partial_trace,
    "xla_trace": lambda f: xla_trace(f, backend="eager", capture_as_const=True),
}


def filled(value: float) -> Tensor:
    return tensor(np.full(3, value, np.float32))


class Thing:
    """Something with attributes."""


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.h = filled(0.0)

    def forward(self, x: Tensor) -> Tensor:
        self.h = self.h * 0.5 + x
        return self.h


def in_dict(first: Tensor) -> Callable[[Tensor], Any]:
    state = {"h": first}

    def step(x: Tensor) -> Any:
        state["h"] = state["h"] * 0.5 + x
        return state["h"]

    return step


def in_list(first: Tensor) -> Callable[[Tensor], Any]:
    state = [first]

    def step(x: Tensor) -> Any:
        state[0] = state[0] * 0.5 + x
        return {"out": (state[0], [state[0]])}

    return step


def in_the_very_result(first: Tensor) -> Callable[[Tensor], Any]:
    state = [first]

    def step(x: Tensor) -> Any:
        state[0] = state[0] * 0.5 + x
        return state

    return step


def in_object(first: Tensor) -> Callable[[Tensor], Any]:
    state: Any = Thing()
    state.inner = Thing()
    state.inner.h = first

    def step(x: Tensor) -> Any:
        state.inner.h = state.inner.h * 0.5 + x
        return state.inner.h

    return step


def in_cell(first: Tensor) -> Callable[[Tensor], Any]:
    state = first

    def step(x: Tensor) -> Any:
        nonlocal state
        state = state * 0.5 + x
        return state

    return step


def in_deque(first: Tensor) -> Callable[[Tensor], Any]:
    state = deque([first], maxlen=1)

    def step(x: Tensor) -> Any:
        state.append(state[-1] * 0.5 + x)
        return state[-1]

    return step


def in_module(first: Tensor) -> Callable[[Tensor], Any]:
    net = Net()
    net.h = first
    return lambda x: net(x)


def in_place_too(first: Tensor) -> Callable[[Tensor], Any]:
    state, also = first, {"h": first}

    def step(x: Tensor) -> Any:
        new = also["h"] * 0.5 + x
        state[...] = new
        also["h"] = new
        return new + 0.0

    return step


HOLDERS = [in_dict, in_list, in_the_very_result, in_object, in_cell, in_deque, in_module, in_place_too]


def number(result: Any) -> float:
    while not isinstance(result, Tensor):
        result = result["out"] if isinstance(result, dict) else result[0]
    value: float = result.tolist()[0]
    return value


@pytest.mark.parametrize("traced", BODY.values(), ids=BODY)
@pytest.mark.parametrize("holder", HOLDERS)
def test_stored_and_returned_state_carries_over_between_calls(holder: Any, traced: Any) -> None:
    step = traced(holder(filled(0.0)))
    assert [number(step(filled(1.0))) for _ in STATES] == STATES


#: Where `trace` writes what a body that it skips has made.
WRITTEN = (in_dict, in_list, in_object, in_place_too, in_cell)


@pytest.mark.parametrize("traced", REFUSING.values(), ids=REFUSING)
@pytest.mark.parametrize("holder", HOLDERS)
def test_storing_state_raises_where_the_body_never_reruns(holder: Any, traced: Any) -> None:
    if traced is REFUSING["run_body=False"] and holder in WRITTEN:
        return
    step = traced(holder(filled(0.0)))
    for _ in range(2):
        with pytest.raises(errors.ImpureBodyError, match=r"test_held\.py"):
            step(filled(1.0))


@pytest.mark.parametrize("holder", WRITTEN)
def test_state_is_written_where_the_body_never_reruns(holder: Any) -> None:
    step = trace(run_body=False)(holder(filled(0.0)))
    assert [number(step(filled(1.0))) for _ in STATES] == STATES


def test_returned_external_list_keeps_its_identity() -> None:
    history: list[Tensor] = []

    @trace
    def step(x: Tensor) -> list[Tensor]:
        history.append(x * 2.0)
        return history

    assert all(step(filled(value)) is history for value in (1.0, 2.0, 3.0))
    assert [number(h) for h in history] == [2.0, 4.0, 6.0]


def test_results_stored_nowhere_else_do_not_rerun_the_body() -> None:
    @trace(run_body=False)
    def step(x: Tensor) -> Any:
        y = x * 2.0
        loop: list[Any] = [y]
        loop.append(loop)  # refers to itself, and is nowhere
        return {"a": (y, [y]), "b": y}

    for value in (1.0, 2.0, 3.0):
        result = step(filled(value))
        assert number(result["b"]) == 2 * value and result["b"] is result["a"][0] is result["a"][1][0]
    assert step.stats()["body_runs"] == 1


def test_stored_gradient_is_new_at_every_call() -> None:
    weight = Parameter(np.ones(3))
    manager, log = GradManager().attach([weight]), []

    @trace
    def step(x: Tensor) -> Tensor | None:
        weight.grad = None
        with manager:
            manager.backward((weight * x).sum())
        log.append(weight.grad)
        return weight.grad

    for value in (1.0, 2.0, 3.0):
        assert number(step(filled(value))) == value
    assert [number(g) for g in log] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("traced", REFUSING.values(), ids=REFUSING)
def test_tensor_stored_by_a_rejected_call_has_its_value(traced: Any) -> None:
    state: Any = deque()

    def keeps(x: Tensor) -> Tensor:
        state.append(x * 3.0)
        return x * 2.0

    with pytest.raises(errors.ImpureBodyError):
        traced(keeps)(filled(2.0))
    if state:
        assert number(state[0]) == 6.0


def test_compiling_a_body_that_stores_state_leaves_valid_values() -> None:
    state = {"h": filled(0.0)}

    @trace
    def step(x: Tensor) -> Tensor:
        state["h"] = state["h"] * 0.5 + x
        return state["h"]

    step.compile("f32[3]")
    state["h"] = filled(0.0)
    assert [number(step(filled(1.0))) for _ in STATES] == STATES


def test_stored_aliases_and_new_tensors_are_those_of_each_call() -> None:
    weight, state, log = Parameter(np.zeros(3)), Thing(), []

    @trace
    def step(x: Tensor) -> Tensor:
        state.alias, state.argument = weight.detach(), x.detach()  # type: ignore[attr-defined]
        log.append(tensor(np.ones(3, np.float32)))
        return x * 2.0

    for call in range(5):
        assert number(step(filled(call))) == 2.0 * call
        assert number(state.alias) == number(state.argument) == call  # type: ignore[attr-defined]
        weight[...] = filled(call + 1.0)
    assert len({id(t) for t in log}) == 5


@pytest.mark.parametrize("capture_as_const", [False, True])
def test_unstored_aliases_and_constants_do_not_rerun_the_body(capture_as_const: bool) -> None:
    weight = Parameter(np.ones(3))

    @trace(run_body=False, capture_as_const=capture_as_const)
    def step(x: Tensor) -> Any:
        return x * weight.detach() + x.detach() + tensor([0.0, 0.0, 0.0]), x.detach()

    for value in (1.0, 2.0, 3.0):
        result, alias = step(filled(value))
        assert number(result) == 2 * value and number(alias) == value
    assert step.stats()["body_runs"] == 1
