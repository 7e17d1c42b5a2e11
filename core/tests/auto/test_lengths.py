"""Sequences that differ in lengths share a program, and give what eager code gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from auto_sessions import auto
from mgb import Parameter, Tensor, jit, optimizer, tensor
from mgb.autodiff import GradManager

draw = np.random.default_rng(7)


def floats(*shape: int) -> Tensor:
    return tensor(draw.uniform(0.5, 2.0, shape).astype(np.float32))


#: What bodies do with lengths: each takes a Tensor of shape (n, t, 6).
BODIES: dict[str, Callable[[Tensor], Any]] = {
    "elements": lambda x: (x * 2 + 1).sum(),
    "product of lengths": lambda x: F.exp(x.reshape(x.shape[0] * x.shape[1], 6)).mean(axis=0),
    "a length and a constant": lambda x: F.tanh(x).reshape(x.shape[0], x.shape[1] * 6)[:, : x.shape[1] + 1],
    "half": lambda x: (x * x)[: x.shape[0] // 2] - 1,
    "last": lambda x: (x + 1)[x.shape[0] - 1] * 2,
    "mean by hand": lambda x: (x * x).sum() / (x.shape[0] * x.shape[1]),
    "position": lambda x: F.linspace(0.0, 1.0, x.shape[0]) * x[:, 0, 0],
    "broadcast": lambda x: F.broadcast_to(x.sum(axis=0) * 2, x.shape) - x,
    "concat": lambda x: F.concat([x * 2, F.zeros((1, *x.shape[1:]))]).sum(axis=0),
    "matmul": lambda x: F.matmul(x, x.transpose(0, 2, 1)).max(axis=-1),
    "softmax": lambda x: F.softmax(x * 3, axis=1),
    "whole number of rows": lambda x: (x + x.shape[0]).max(),
}

SHAPES = [(4, 3), (4, 3), (6, 3), (9, 3), (5, 3), (5, 5), (7, 4), (1, 1), (2, 1), (1, 3), (30, 8), (6, 3)]


def check(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("name", BODIES)
def test_auto_gives_what_eager_code_gives_at_each_length(name: str) -> None:
    hot = auto(after=1)
    for shape in SHAPES * 2:
        x = floats(*shape, 6)
        want = BODIES[name](x)
        with hot:
            got = BODIES[name](x)
        check(got, want)


@pytest.mark.parametrize("name", BODIES)
def test_body_that_runs_is_not_compiled_for_each_length(name: str) -> None:
    log: list[Any] = []

    def body(x: Tensor) -> Tensor:
        log.append(x.shape[0] % 7 and object())
        return BODIES[name](x)

    traced = jit.trace(body)
    for n in (4, 4, 4, 5, 6):
        traced(floats(n, 3, 6))
    before = kernels_asked_for(traced)
    for n in range(7, 30):
        x = floats(n, 3, 6)
        check(traced(x), BODIES[name](x))
    assert traced.stats()["body_runs"] == 28
    assert kernels_asked_for(traced) - before <= 2  # where something else is best for these


def kernels_asked_for(traced: Any) -> int:
    """How many kernels the programs have that were compiled, for one length or for several."""
    return sum(count for name, count in traced.stats().items() if name.startswith("kernel_"))


def test_training_step_with_batches_of_any_length() -> None:
    def parts() -> tuple[list[Parameter], Callable[..., Tensor]]:
        fixed = np.random.default_rng(3)
        shapes = ((6, 8), (8,), (8, 4))
        weights = [Parameter(fixed.normal(size=s).astype(np.float32)) for s in shapes]
        manager, step = GradManager().attach(weights), optimizer.Adam(weights, lr=0.02)

        def train(x: Tensor, y: Tensor) -> Tensor:
            with manager:
                hidden = F.relu(x.reshape(x.shape[0], -1) @ weights[0] + weights[1])
                loss = F.nn.cross_entropy(hidden @ weights[2], y)
                manager.backward(loss)
            step.step().clear_grad()
            loss.item()
            return loss

        return weights, train

    (mine, train), (others, plain) = parts(), parts()
    traced = jit.trace(train)
    for n in (8, 8, 8, 12, 3, 40, 1, 1, 2, 5, 64, 17, 8, 12):
        x, y = floats(n, 2, 3), tensor(draw.integers(0, 4, n).astype(np.int32))
        np.testing.assert_allclose(traced(x, y).item(), plain(x, y).item(), rtol=1e-4)
    for one, other in zip(mine, others, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-3, atol=1e-4)
    assert traced.stats()["records"] == 1


def test_parameter_that_follows_from_no_length_is_right() -> None:
    hot = auto(after=1)
    for n, k in ((6, 2), (6, 2), (8, 5), (9, 1), (7, 3), (8, 5), (12, 2), (6, 5)) * 2:
        x = floats(n)
        want = (x * 2)[:k].sum()
        with hot:
            got = (x * 2)[:k].sum()
        check(got, want)


def test_numbers_that_change_with_lengths_are_inputs() -> None:
    hot = auto(after=1)
    with hot:
        for n in range(2, 30):
            x = floats(n)
            np.testing.assert_allclose(((x - n) / (2.5 * n)).numpy(), (x.numpy() - n) / (2.5 * n), rtol=1e-6)
    assert hot.stats()["programs"] <= 4
