"""What decides which ops a body does and is no argument: a grad or none, what is attached or optimized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb.optimizer as O
import numpy as np
import pytest
from arrays import ones
from mgb import Parameter, Tensor
from mgb.autodiff import GradManager
from mgb.jit import partial_trace, trace

TRACED: list[Callable[..., Any]] = [
    trace,
    lambda f: trace(f, symbolic=True),
    lambda f: trace(f, run_body=True),
    lambda f: trace(f, imperative=True),
]


@pytest.mark.parametrize("traced", TRACED)
def test_gradients_accumulate_over_several_calls(traced: Any) -> None:
    weight = Parameter(np.ones(3))
    manager = GradManager().attach([weight])

    @traced
    def accumulate(x: Tensor) -> Tensor:
        with manager:
            loss = (weight * x).sum()
            manager.backward(loss)
        return loss

    for call in range(1, 9):
        accumulate(ones(3) * float(call))
        assert weight.grad is not None
        expected = sum(n for n in range(1, call + 1) if (n - 1) // 4 == (call - 1) // 4)
        np.testing.assert_allclose(weight.grad.numpy(), np.full(3, expected, np.float32))
        if call == 4:
            weight.grad = None
    records = accumulate.stats()["records"]
    weight.grad = None
    for call in range(8):
        accumulate(ones(3))
        if call % 4 == 3:
            weight.grad = None
    assert accumulate.stats()["records"] == records <= 3


@pytest.mark.parametrize("traced", TRACED)
def test_optimizer_step_at_every_second_call(traced: Any) -> None:
    weight = Parameter(np.ones(3))
    manager, optimizer = GradManager().attach([weight]), O.SGD([weight], lr=0.1)

    @traced
    def step(x: Tensor, last: bool) -> Tensor:
        with manager:
            loss = (weight * weight * x).sum()
            manager.backward(loss)
        if last:
            optimizer.step().clear_grad()
        return loss

    expected = 1.0
    for call in range(8):
        loss = step(ones(3), call % 2 == 1)
        np.testing.assert_allclose(loss.item(), 3 * expected**2, rtol=1e-5)
        expected -= 0.1 * 4 * expected if call % 2 == 1 else 0.0


def test_grad_of_an_argument_is_guarded_per_argument() -> None:
    @trace
    def doubled(x: Tensor) -> Tensor:
        return x * 2.0 if x.grad is None else x + x.grad

    for _ in range(3):
        one, two = ones(3), ones(3)
        two.grad = ones(3) * 4.0
        assert doubled(one).tolist() == [2.0] * 3
        assert doubled(two).tolist() == [5.0] * 3
    assert doubled.stats()["records"] == 2


def attach(manager: GradManager, _optimizer: Any, weight: Parameter) -> None:
    manager.attach([weight])


def add_group(_manager: Any, optimizer: O.Optimizer, weight: Parameter) -> None:
    optimizer.add_param_group({"params": [weight]})


def trained(traced: Any, change: Any) -> list[float]:
    weight, other = Parameter(np.ones(3)), Parameter(np.ones(3))
    manager = GradManager().attach([weight] if change is attach else [weight, other])
    optimizer = O.SGD([weight, other] if change is attach else [weight], lr=0.125)

    def step(x: Tensor) -> Tensor:
        with manager:
            loss = (weight * other * x).sum()
            manager.backward(loss)
        optimizer.step().clear_grad()
        other.grad = None
        return loss

    step, seen = traced(step), []
    for call in range(6):
        seen.append(step(ones(3)).item())
        if call == 2:
            change(manager, optimizer, other)
    return [*seen, other.tolist()[0]]


@pytest.mark.parametrize("change", [attach, add_group])
@pytest.mark.parametrize("traced", [*TRACED, partial_trace])
def test_parameters_attached_or_added_later_are_trained(traced: Any, change: Any) -> None:
    eager = trained(lambda f: f, change)
    assert eager[-1] < 1.0
    np.testing.assert_allclose(trained(traced, change), eager, rtol=1e-6)


def test_body_creating_or_attaching_a_manager_does_not_retrace() -> None:
    manager = GradManager()

    def gradient(x: Tensor) -> Tensor:
        with GradManager().attach(x) as mine:
            mine.backward((x * x).sum())
        return x.grad  # type: ignore[return-value]

    def attached(x: Tensor) -> Tensor:
        with manager.attach(x):
            manager.backward((x * x).sum())
        return x.grad  # type: ignore[return-value]

    for body, options in ((gradient, {}), (gradient, {"run_body": True}), (attached, {"run_body": True})):
        function = trace(body, **options)
        for value in (1.0, 2.0, 3.0):
            assert function(ones(3) * value).tolist() == [2.0 * value] * 3
        assert function.stats()["records"] == 1
    function = trace(attached)  # to attach changes the manager outside
    for value in (1.0, 2.0, 3.0):
        assert function(ones(3) * value).tolist() == [2.0 * value] * 3
    assert function.stats()["body_runs"] == 3


def test_alternating_parameters_with_changing_shapes() -> None:
    weights, turn = [Parameter(np.ones(3)), Parameter(np.ones(3))], [0]
    manager = GradManager().attach(weights)

    @trace
    def step(x: Tensor) -> Tensor:
        weight = weights[turn[0]]
        with manager:
            loss = (x * weight).sum()
            manager.backward(loss)
        return loss

    for call in range(6):
        turn[0] = call % 2
        shape = (3,) if call < 2 else (2, 3)
        assert step(ones(*shape)).item() == np.prod(shape)
    for weight in weights:
        assert weight.grad is not None
        assert weight.grad.tolist() == [5.0] * 3


@pytest.mark.parametrize("run_body", [None, True, False])
def test_reattaching_an_attached_tensor_does_not_retrace(run_body: bool | None) -> None:
    weight = Parameter(np.ones(3))
    manager = GradManager()

    @trace(run_body=run_body)
    def step(x: Tensor) -> Tensor:
        with manager:
            loss = (weight * x).sum()
            manager.backward(loss)
        weight.grad = None
        return loss

    for call in range(5):
        manager.attach([weight])
        assert step(ones(3) * float(call)).item() == 3.0 * call
    assert step.stats()["records"] == 1
    manager.attach([weight], callbacks=lambda _, grad: grad * 2.0)
    step(ones(3))
    assert step.stats()["records"] == 2


def test_keyword_order_does_not_change_the_arguments() -> None:
    @trace
    def choose(a: Tensor, b: Tensor) -> Tensor:
        return a * 2.0 + a.grad if a.grad is not None else a * 3.0 + b

    one, two = ones(3), ones(3) * 2.0
    one.grad = ones(3) * 5.0
    for _ in range(3):
        assert choose(a=one, b=two).tolist() == [7.0] * 3
        assert choose(b=one, a=two).tolist() == [7.0] * 3
        assert choose(b=two, a=one).tolist() == [7.0] * 3
        assert choose(two, b=one).tolist() == [7.0] * 3
        one.grad, two.grad = None, ones(3)
        assert choose(a=one, b=two).tolist() == [5.0] * 3
        assert choose(b=one, a=two).tolist() == [5.0] * 3
        one.grad, two.grad = ones(3) * 5.0, None
