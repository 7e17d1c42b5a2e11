"""Indices that change: ``x[i]`` and ``x[i : i + 8]`` of a Tensor are one program for every ``i``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from mgb import Parameter, Tensor, grad, tensor
from mgb.autodiff import GradManager
from mgb.jit import trace
from mgb.optimizer import SGD

#: Each takes an array of shape (12, 4) and a number from 0 to 5; how often its body runs.
READS: dict[str, tuple[Callable[[Any, int], Any], int]] = {
    "element": (lambda x, i: x[i] * 2, 2),
    "from the end": (lambda x, i: x[-i - 1] * 2, 2),
    "two": (lambda x, i: x[i, i % 4] * 2, 2),
    "beside a slice": (lambda x, i: x[2:7:2, i % 4] * 2, 2),
    "behind a new axis": (lambda x, i: x[None, i, ..., 1] * 2, 2),
    "beside an array": (lambda x, i: x[i, [0, 2]] * 2, 2),
    "window": (lambda x, i: x[i : i + 3] * 2, 2),
    "batches": (lambda x, i: x[2 * i : 2 * (i + 1)] * 2, 2),
    "window from the end": (lambda x, i: x[-9 + i : -6 + i] * 2, 2),
    "steps": (lambda x, i: x[i : i + 5 : 2] * 2, 2),
    "backwards": (lambda x, i: x[i + 3 : i : -1] * 2, 2),
    "as far as the end": (lambda x, i: x[11:i:-1][:2] * 2, 6),  # lengths differ
    "crop": (lambda x, i: x[i : i + 4, i % 3 : i % 3 + 2] * 2, 2),
    "of a list": (lambda x, i: x[[1, 2, 3, 4, 5, 6]][i] * 2, 2),
    "to the end": (lambda x, i: x[i:] * 2, 6),
    "from the start": (lambda x, i: x[: i + 1] * 2, 6),
}


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_JIT_BACKEND", "EAGER")


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("options", [{}, {"symbolic": True}, {"run_body": False}, {"without_host": True}])
def test_parts_are_those_of_numpy(name: str, options: dict[str, Any]) -> None:
    body, runs = READS[name]
    traced = trace(body, **options)
    for i in (0, 1, 2, 3, 4, 5, 3, 0):
        x = np.arange(48, dtype=np.float32).reshape(12, 4) + i
        got = traced(tensor(x), i).numpy()
        assert got.shape == body(x, i).shape
        np.testing.assert_array_equal(got, body(x, i))
    assert traced.stats()["body_runs"] == runs


def test_an_index_that_is_out_of_range_is_an_error_at_each_call() -> None:
    traced, x = trace(lambda x, i: x[i] * 2), tensor(np.arange(5, dtype=np.float32))
    for _ in range(2):
        for i in (0, 1, 4, -5, 3):
            assert traced(x, i).item() == x.numpy()[i] * 2
        for i in (5, -6):
            with pytest.raises(IndexError, match=f"index {i} is out of bounds for axis 0 with size 5"):
                traced(x, i)


def test_a_window_is_clipped_as_by_numpy_whichever_was_first() -> None:
    x = np.arange(10, dtype=np.float32)
    traced = trace(lambda x, i: x[i : i + 4] * 2)
    for i in (0, 3, 8, 6, 7, 20, 9, -2, -12, -11, -4, -3, 2):
        np.testing.assert_array_equal(traced(tensor(x), i).numpy(), x[i : i + 4] * 2)


@pytest.mark.parametrize("value", [lambda x: x[0] + 1, lambda x: 7.0], ids=["Tensor", "number"])
def test_what_is_written_at_an_index_is_where_numpy_writes_it(value: Callable[[Any], Any]) -> None:
    def body(x: Any, i: int) -> Any:
        y = x * 2
        y[i] = value(x)
        y[i + 1 : i + 3, i % 2] = i
        return y

    traced = trace(body)
    for i in range(5):
        x = np.arange(32, dtype=np.float32).reshape(8, 4)
        np.testing.assert_array_equal(traced(tensor(x), i).numpy(), body(x, i))
    assert traced.stats()["body_runs"] == 2


def test_a_buffer_is_written_at_an_index_that_an_attribute_says() -> None:
    class Queue:
        def __init__(self) -> None:
            self.place = 0
            self.values = tensor(np.zeros((4, 2), np.float32))

    def make() -> tuple[Queue, Callable[[Tensor], Tensor]]:
        queue = Queue()

        def body(x: Tensor) -> Tensor:
            queue.values[queue.place] = x
            queue.place = (queue.place + 1) % 4
            return queue.values.sum(axis=0)

        return queue, body

    (queue, body), (other, another) = make(), make()
    traced = trace(another)
    for number in range(11):
        x = tensor(np.array([number, 1], np.float32))
        assert traced(x).tolist() == body(x).tolist()
        assert other.values.tolist() == queue.values.tolist() and other.place == queue.place
    assert traced.stats()["body_runs"] == 2


def test_training_on_one_batch_after_another_is_one_program() -> None:
    data = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)

    def make() -> tuple[Parameter, Callable[[int], Tensor]]:
        weight, rows = Parameter(np.full((4, 3), 0.1, np.float32)), tensor(data)
        manager, optimizer = GradManager().attach([weight]), SGD([weight], lr=0.1)

        def step(i: int) -> Tensor:
            with manager:
                hidden = F.tanh(rows[i * 8 : (i + 1) * 8] @ weight)
                loss = (hidden[:, i % 3, None] * hidden).mean()
                manager.backward(loss)
            optimizer.step().clear_grad()
            return loss

        return weight, step

    (weight, step), (other, another) = make(), make()
    traced = trace(another)
    for i in (0, 1, 2, 3) * 3:
        np.testing.assert_allclose(traced(i).numpy(), step(i).numpy(), rtol=1e-5)
        np.testing.assert_allclose(other.numpy(), weight.numpy(), rtol=1e-5)
    assert traced.stats()["body_runs"] == 2


def test_first_and_second_derivatives_go_through_an_index() -> None:
    def curvature(x: Tensor, i: int) -> Tensor:
        return grad(lambda z: (grad(lambda y: F.exp(y[i] * y[i + 1 : i + 3]).sum())(z) ** 2).sum())(x)

    traced = trace(curvature)
    for i in range(5):
        x = tensor(np.linspace(-1, 1, 8))
        np.testing.assert_allclose(traced(x, i).numpy(), curvature(x, i).numpy())
    assert traced.stats()["body_runs"] == 2
