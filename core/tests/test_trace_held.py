"""What Python keeps of a call, beside the result or as part of it, only the body can renew."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import mgb.module as M
import numpy as np
import pytest
from mgb import Parameter, Tensor, errors, plugins, tensor
from mgb.autodiff import GradManager
from mgb.jit import partial_trace, trace, xla_trace

#: h -> h / 2 + 1, from 0.
STATES = [1.0, 1.5, 1.75, 1.875, 1.9375]

HOSTLESS = [
    lambda f: trace(f, without_host=True),
    lambda f: trace(f, without_host=True, symbolic=True),
    lambda f: trace(f, without_host=True, capture_as_const=True),
]


def filled(value: float) -> Tensor:
    return tensor(np.full(3, value, np.float32))


def whole(function: Callable[..., Any], **options: Any) -> Any:
    """`xla_trace`, where there is XLA."""
    try:
        plugins.choose_backend("cpu", "xla")
    except errors.BackendError as error:
        pytest.skip(str(error))
    return xla_trace(function, **options)


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


@pytest.mark.parametrize("keep_first", [False, True])
@pytest.mark.parametrize("traced", HOSTLESS)
@pytest.mark.parametrize("holder", HOLDERS)
def test_state_that_is_kept_and_returned_goes_on(holder: Any, traced: Any, keep_first: bool) -> None:
    first = filled(0.0)
    step = traced(holder(first))
    if not keep_first:
        del first
    assert [number(step(filled(1.0))) for _ in STATES] == STATES


def test_a_list_that_is_returned_itself_is_the_same_list_at_every_call() -> None:
    history: list[Tensor] = []

    @trace(without_host=True)
    def step(x: Tensor) -> list[Tensor]:
        history.append(x * 2.0)
        return history

    assert all(step(filled(value)) is history for value in (1.0, 2.0, 3.0))
    assert [number(h) for h in history] == [2.0, 4.0, 6.0]


def test_a_result_that_nobody_keeps_lets_the_body_rest() -> None:
    calls: list[int] = []

    @trace(without_host=True)
    def step(x: Tensor) -> Any:
        calls.append(1)
        y = x * 2.0
        loop: list[Any] = [y]
        loop.append(loop)  # refers to itself, and is nowhere
        return {"a": (y, [y]), "b": y}

    for value in (1.0, 2.0, 3.0):
        result = step(filled(value))
        assert number(result["b"]) == 2 * value and result["b"] is result["a"][0] is result["a"][1][0]
    assert len(calls) == 1


def test_a_gradient_that_is_kept_as_well_as_left_is_new_at_every_call() -> None:
    weight = Parameter(np.ones(3))
    manager, log = GradManager().attach([weight]), []

    @trace(without_host=True)
    def step(x: Tensor) -> Tensor:
        weight.grad = None
        with manager:
            manager.backward((weight * x).sum())
        log.append(weight.grad)
        assert weight.grad is not None
        return weight.grad

    for value in (1.0, 2.0, 3.0):
        assert number(step(filled(value))) == value
    assert [number(g) for g in log] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("keep_first", [False, True])
def test_an_argument_that_is_kept_makes_the_body_run(keep_first: bool, busy: bool) -> None:
    state = {"last": filled(0.0)}
    first = state["last"] if keep_first else None
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    if busy:
        thread.start()

    def difference(x: Tensor) -> Tensor:
        result = x - state["last"]
        state["last"] = x
        return result

    try:
        step = trace(difference, without_host=True)
        assert [number(step(filled(v))) for v in (1.0, 3.0, 6.0, 10.0)] == [1.0, 2.0, 3.0, 4.0]
        with pytest.raises(errors.TraceOutputError):
            partial_trace(difference)(filled(11.0))
    finally:
        done.set()
        if busy:
            thread.join()
    assert first is None or number(first) == 0.0


def test_an_argument_that_another_thread_holds_meanwhile_is_not_kept() -> None:
    inside, holding, done = threading.Event(), threading.Event(), threading.Event()
    x, calls = filled(1.0), []

    def hold(argument: Tensor) -> None:
        inside.wait()
        mine = (argument, [argument])
        holding.set()
        done.wait()
        assert len(mine) == 2

    @partial_trace
    def double(argument: Tensor) -> Tensor:
        calls.append(1)
        inside.set()
        holding.wait()
        return argument * 2.0

    thread = threading.Thread(target=hold, args=(x,))
    thread.start()
    try:
        assert [number(double(x)) for _ in range(3)] == [2.0] * 3
    finally:
        done.set()
        thread.join()
    assert len(calls) == 1


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("traced", [partial_trace, lambda f: whole(f, capture_as_const=True)])
def test_state_that_is_kept_is_refused_where_the_body_never_runs_again(holder: Any, traced: Any) -> None:
    step = traced(holder(filled(0.0)))
    for _ in range(2):
        with pytest.raises((errors.TraceOutputError, errors.HeldConstantError), match=r"elsewhere|constant"):
            step(filled(1.0))


@pytest.mark.parametrize("traced", [partial_trace, whole])
def test_what_a_refused_call_leaves_in_python_has_its_value(traced: Any) -> None:
    state = {"h": filled(0.0)}
    weight = Parameter(np.zeros(3))

    def step(x: Tensor) -> Tensor:
        weight[...] = weight + x
        state["h"] = state["h"] * 0.5 + x
        return state["h"]

    for expected in STATES[:3]:
        with pytest.raises(errors.TraceError):
            traced(step)(filled(1.0))
        assert number(state["h"]) == expected
        assert number(weight) == 0.0

    def looks(x: Tensor) -> Tensor:
        state["h"] = x * 3.0
        return x if x.sum() > 0 else -x

    with pytest.raises(errors.TraceError):
        traced(looks)(filled(2.0))
    assert number(state["h"]) == 6.0


def test_compiling_a_body_that_keeps_something_leaves_values() -> None:
    state = {"h": filled(0.0)}

    @trace(without_host=True)
    def step(x: Tensor) -> Tensor:
        state["h"] = state["h"] * 0.5 + x
        return state["h"]

    step.compile("f32[3]")
    assert state["h"].shape == (3,) and state["h"].numpy().shape == (3,)
    state["h"] = filled(0.0)
    assert [number(step(filled(1.0))) for _ in STATES] == STATES


@pytest.mark.parametrize("traced", [partial_trace, whole])
def test_a_method_that_renews_an_attribute_is_refused_by_name(traced: Any) -> None:
    class Runner:
        def __init__(self) -> None:
            self.h = filled(0.0)
            self.a, self.b = filled(1.0), filled(2.0)

        @traced
        def renews(self, x: Tensor) -> Tensor:
            self.h = self.h * 0.5 + x
            return self.h

        @traced
        def swaps(self, x: Tensor) -> Tensor:
            self.a, self.b = self.b, self.a
            return x * self.a

    runner = Runner()
    for _ in range(2):
        with pytest.raises(errors.TraceOutputError):
            runner.renews(filled(1.0))
    assert [number(runner.swaps(filled(1.0))) for _ in range(4)] == [2.0, 1.0, 2.0, 1.0]


@pytest.mark.parametrize("options", [{}, {"symbolic": True}, {"capture_as_const": True}])
def test_what_is_kept_may_say_what_the_next_call_does(options: dict[str, bool]) -> None:
    window: list[Tensor] = []
    average: list[Any] = [None]
    zero = filled(0.0)

    @trace(without_host=True, **options)
    def last_two(x: Tensor) -> Tensor:
        window.append(x * 2.0)
        if len(window) > 2:
            window.pop(0)
        return sum(window)  # type: ignore[return-value]

    @trace(without_host=True, **options)
    def moving(x: Tensor) -> Tensor:
        if average[0] is None:
            average[0] = zero + 0.0
        average[0] = average[0] * 0.5 + x
        kept: Tensor = average[0]
        return kept

    assert [number(last_two(filled(float(n)))) for n in range(1, 8)] == [2, 6, 10, 14, 18, 22, 26]
    assert [number(moving(filled(1.0))) for _ in STATES] == STATES


def keeps_detached_argument(state: Any) -> Callable[[Tensor], Tensor]:
    def step(x: Tensor) -> Tensor:
        state.kept = x.detach()
        return x * 2.0

    return step


def logs_detached_argument(state: Any) -> Callable[[Tensor], Tensor]:
    state.log = []

    def step(x: Tensor) -> Tensor:
        state.log.append(x.detach())
        state.__dict__["kept"] = state.log[-1]
        return x * 2.0

    return step


@pytest.mark.parametrize("keeps", [keeps_detached_argument, logs_detached_argument])
def test_an_alias_of_an_argument_that_is_kept_is_that_of_each_call(keeps: Any) -> None:
    state: Any = Thing()
    step = trace(keeps(state), without_host=True)
    for value in (1.0, 2.0, 3.0):
        assert number(step(filled(value))) == 2 * value
        assert number(state.kept) == value
    for traced in (partial_trace, lambda f: xla_trace(f, backend="eager")):
        with pytest.raises(errors.TraceOutputError, match="alias"):
            traced(keeps(Thing()))(filled(1.0))


def test_an_alias_of_a_parameter_and_a_tensor_of_data_that_are_kept_are_new_at_every_call() -> None:
    weight, state, log = Parameter(np.zeros(3)), Thing(), []

    @trace(without_host=True)
    def step(x: Tensor) -> Tensor:
        state.alias = weight.detach()  # type: ignore[attr-defined]
        log.append(tensor(np.ones(3, np.float32)))
        return x * 2.0

    for call in range(3):
        step(filled(1.0))
        weight[...] = filled(call + 1.0)
    assert number(state.alias) == 2.0  # type: ignore[attr-defined]
    assert len({id(t) for t in log}) == 3


@pytest.mark.parametrize("capture_as_const", [False, True])
def test_an_alias_and_data_that_nobody_keeps_let_the_body_rest(capture_as_const: bool) -> None:
    weight, calls = Parameter(np.ones(3)), []

    @trace(without_host=True, capture_as_const=capture_as_const)
    def step(x: Tensor) -> Any:
        calls.append(1)
        return x * weight.detach() + x.detach(), x.detach()

    for value in (1.0, 2.0, 3.0):
        result, alias = step(filled(value))
        assert number(result) == 2 * value and number(alias) == value
    assert len(calls) == 1

    @xla_trace(backend="eager", capture_as_const=True)
    def constant(x: Tensor) -> Tensor:
        return x * weight.detach() + tensor(np.ones(3, np.float32))

    assert [number(constant(filled(v))) for v in (1.0, 2.0)] == [2.0, 3.0]
