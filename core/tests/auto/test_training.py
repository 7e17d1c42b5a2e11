"""`auto` under gradients, optimizers and state; its errors; what it holds."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from auto_sessions import BACKEND, auto, noted, off
from mgb import Parameter, Tensor, jit, optimizer, random, tensor
from mgb.autodiff import Function, GradManager
from mgb.errors import ArgumentError, AutoWarning, ShapeError, UnknownBackendError
from mgb.ir import Kind, Op, Spec
from mgb.module import BatchNorm1d, Dropout, Linear, Module, ReLU, Sequential
from mgb.tensor.apply import apply

# gradients, networks, state


def steps(
    make: Callable[[], Module], hot: Any, count: int = 8, rate: Callable[[int], float] = lambda n: 0.05
) -> list[Any]:
    """The losses, and the parameters in the end, of a training loop."""
    random.seed(3)
    model = make()
    model.train()
    adam = optimizer.Adam(model.parameters(), lr=0.05, weight_decay=1e-3)
    manager = GradManager().attach(model.parameters())
    draw = np.random.default_rng(1)
    losses: list[Any] = []
    with hot:
        for n in range(count):
            x, y = (tensor(draw.standard_normal((4, k)).astype(np.float32)) for k in (6, 2))
            adam.param_groups[0]["lr"] = rate(n)
            with manager:
                loss = ((model(x) - y) ** 2).mean()
                manager.backward(loss)
                adam.step().clear_grad()
            losses.append(loss.item())
    return losses + [p.numpy() for p in model.parameters()]


def network() -> Module:
    """With state, and with random numbers; a bias before the norm would have rounding as its gradient."""
    return Sequential(Linear(6, 8, bias=False), BatchNorm1d(8), ReLU(), Dropout(0.25), Linear(8, 2))


def test_training_cold_is_bit_equal_to_eager() -> None:
    for got, want in zip(steps(network, auto()), steps(network, off), strict=True):
        np.testing.assert_array_equal(got, want)


def test_training_hot_with_a_schedule_matches_eager() -> None:
    def rate(n: int) -> float:
        return 0.1 / (1 + n)

    hot = auto(after=1)
    got = steps(network, hot, 12, rate)
    for a, b in zip(got, steps(network, off, 12, rate), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)  # Adam makes much of roundings
    assert hot.stats()["programs"] <= 2 and hot.stats()["compiled"] >= 8


def test_higher_order_gradients_and_custom_functions() -> None:
    class Cube(Function):
        def forward(self, x: Tensor) -> Tensor:
            self.x = x
            return x * x * x

        def backward(self, g: Tensor) -> Tensor:
            return g * self.x * self.x * 3

    for after in (0, 1000):
        with auto(after=after):
            for _ in range(3):
                x = tensor([1.0, 2.0])
                outer, inner = GradManager().attach(x), GradManager().attach(x)
                with outer:
                    with inner:
                        inner.backward(Cube()(x))
                    first, x.grad = x.grad, None
                    outer.backward(first)
                np.testing.assert_allclose(x.grad.numpy(), [6.0, 12.0])
                np.testing.assert_allclose(first.numpy(), [3.0, 12.0])


@pytest.mark.parametrize("without_host", [False, True])
def test_traced_function_accepts_deferred_values(without_host: bool) -> None:
    scale = tensor([2.0])

    @jit.trace(backend=BACKEND, without_host=without_host)
    def traced(x: Tensor) -> Tensor:
        return x * scale + 1

    with auto():
        for n in range(4):
            y = tensor([float(n)]) + 1
            scale += 0.0
            z = traced(y) - 1
            assert z.item() == 2.0 * (n + 1)
    assert len(traced.variants()) == 1


def test_auto_has_no_effect_in_a_trace() -> None:
    @jit.trace(backend=BACKEND)
    def traced(x: Tensor) -> Tensor:
        with auto():
            return x * 2 + 1

    assert [traced(tensor([float(n)])).item() for n in range(3)] == [1.0, 3.0, 5.0]


# errors


def test_wrong_shapes_raise_at_their_line() -> None:
    x = tensor(np.ones((2, 3), np.float32))
    with auto():
        y = x + 1
        with pytest.raises(ShapeError):
            F.matmul(y, y)
        assert (y * 2).numpy().tolist() == [[4.0] * 3] * 2


@pytest.mark.parametrize("after", [0, 1000])
def test_failure_reports_the_line_and_preserves_other_values(after: int) -> None:
    calls: list[str] = []
    op = noted(calls, ValueError("no such value"))
    with auto(after=after):
        good = tensor([1.0]) + 1
        bad = apply(op, good)  # this line
        worse = bad * 2
        better = good * 3
        with pytest.raises(ValueError, match="no such value") as raised:
            better.numpy()
        assert "test_training.py" in raised.value.__notes__[0] and "noted" in raised.value.__notes__[0]
        assert better.numpy().tolist() == [6.0] and good.numpy().tolist() == [2.0]
        for broken in (bad, worse):
            with pytest.raises(ValueError, match="no such value"):
                broken.numpy()
        with pytest.raises(ValueError, match="no such value"):
            _ = worse + 1
        assert (better + 1).item() == 7.0


@pytest.mark.parametrize("after", [0, 1, 1000])
@pytest.mark.parametrize("error", [ValueError("bad batch"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_failure_undoes_later_updates(after: int, error: BaseException) -> None:
    """Eager code stops at the op that fails: parameters, and the optimizer's state are as before."""
    failing: list[BaseException] = []

    def eager(x: Any) -> Any:
        if failing:
            raise failing[0]
        return x

    check = Op("check", Kind.OPAQUE, lambda x: Spec(x.shape, x.dtype), eager, lambda g, _y, _x: (g,))

    def train(hot: Any) -> list[Any]:
        weight = Parameter([1.0, 2.0])
        adam = optimizer.Adam([weight], lr=0.1)
        manager = GradManager().attach([weight])
        seen = []
        with hot:
            for n in range(6):
                failing[:] = [error] if n == 4 else []
                try:
                    with manager:
                        loss = (apply(check, weight * weight) * 0.5).sum()
                        manager.backward(loss)
                    adam.step().clear_grad()
                    seen.append(loss.item())
                except (ValueError, KeyboardInterrupt) as caught:
                    assert caught is error
                    failing.clear()
                    adam.clear_grad()
                    seen.append(weight.numpy().copy())
            return [*seen, weight.numpy()]

    for got, want in zip(train(auto(after)), train(off), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_error_of_the_block_is_not_replaced() -> None:
    bad = None
    with pytest.raises(KeyError), auto():
        bad = apply(noted([], ValueError("later")), tensor([1.0]))
        raise KeyError("first")
    with pytest.raises(ValueError, match="later"):
        bad.numpy()


def test_auto_rejects_an_unknown_backend() -> None:
    with pytest.raises(UnknownBackendError, match="no_such_backend"):
        jit.auto(backend="no_such_backend")


def test_compile_failure_falls_back_to_op_by_op(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_JIT_BACKEND", "no_such_backend")
    with pytest.warns(AutoWarning, match="no_such_backend"), jit.auto(after=1):
        for _ in range(4):
            assert (tensor([1.0]) * 2 + 1).item() == 3.0


@pytest.mark.parametrize("after", [-1, 1.5, True, "2"])
def test_invalid_after_is_rejected(after: Any) -> None:
    with pytest.raises(ArgumentError, match="after"):
        jit.auto(after=after)


# memory


def test_ten_thousand_iterations_do_not_leak_objects(no_cyclic_gc: None) -> None:
    hot = auto(after=1)
    x = tensor(np.ones(16, np.float32))

    def once(n: int) -> float:
        y = (x * 2 + n % 7).sum()
        x.__imul__(1.0)
        return y.item()

    with hot:
        for n in range(300):
            once(n)
        before = len(gc.get_objects())
        for n in range(10_000):
            once(n)
        assert len(gc.get_objects()) - before < 50


def test_varying_dead_values_use_a_bounded_number_of_programs() -> None:
    hot = auto(after=1)
    draw = np.random.default_rng(5)
    x = tensor([1.0, 2.0])
    with hot:
        for _ in range(60):
            parts = [x + k for k in range(8)]
            kept = [p for p in parts if draw.random() < 0.5]
            values = [p.numpy()[0] for p in kept]
            del parts
            total = sum(values)
            assert total == sum(p.numpy()[0] for p in kept)
    assert hot.stats()["programs"] <= 20
