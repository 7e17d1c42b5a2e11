"""A body with side effects costs no more at its three hundredth call than at its fiftieth."""

from __future__ import annotations

import collections
import itertools
import random
from collections.abc import Callable
from typing import Any

import mgb.functional as F
import mgb.optimizer as optim
import numpy as np
import pytest
from mgb import Parameter, Tensor, tensor
from mgb.autodiff import GradManager
from mgb.jit import trace
from work import calls_of

Body = Callable[[Tensor], Any]


def noise() -> Body:
    draw = np.random.default_rng(0)
    return lambda x: x + draw.normal(size=x.shape).astype(np.float32)


def global_noise() -> Body:
    return lambda x: x + np.random.rand(*x.shape).astype(np.float32)


def dropout_mask() -> Body:
    draw = np.random.default_rng(0)

    def body(x: Tensor) -> Tensor:
        mask = draw.random(x.shape) < 0.5
        return x * mask.astype(np.float32) * 2

    return body


def crop() -> Body:
    draw = random.Random(0)

    def body(x: Tensor) -> Tensor:
        place = draw.randrange(4)
        return (x[:, place : place + 4] * 2).sum(axis=0)

    return body


def flip() -> Body:
    draw = random.Random(0)
    return lambda x: F.exp(x[:, ::-1] if draw.random() < 0.5 else x) - 1


def brightness() -> Body:
    draw = random.Random(0)
    return lambda x: F.clip(x * draw.uniform(0.8, 1.2) + draw.gauss(0, 0.1), 0, 1)


def counter() -> Body:
    count = itertools.count()
    return lambda x: x * (next(count) % 7 + 1) + 1


def annealed() -> Body:
    count = itertools.count()
    return lambda x: x * 0.99 ** next(count)


def history() -> Body:
    seen: collections.deque[float] = collections.deque(maxlen=10)

    def body(x: Tensor) -> Tensor:
        y = (x * 2).mean()
        seen.append(y.item())
        return y * (sum(seen) / len(seen))

    return body


def ever_longer_history() -> Body:
    seen: list[Any] = []

    def body(x: Tensor) -> Tensor:
        y = (x * x).sum()
        seen.append({"loss": y.item(), "step": len(seen)})
        return y + 1

    return body


def kept_tensors() -> Body:
    seen: collections.deque[Tensor] = collections.deque(maxlen=4)

    def body(x: Tensor) -> Tensor:
        seen.append(x * 2)
        return sum(seen[1:] if isinstance(seen, list) else list(seen)[1:], seen[0] + 1)

    return body


def branch() -> Body:
    return lambda x: x * 2 if float(x.sum()) > 1e9 else x + float(x.max())


def loop_until() -> Body:
    draw = random.Random(0)

    def body(x: Tensor) -> Tensor:
        for _ in range(draw.randrange(1, 5)):
            x = F.tanh(x) * 0.5
        return x

    return body


def reads_in_a_loop() -> Body:
    def body(x: Tensor) -> Tensor:
        while float(x.max()) > 0.1:
            x = x * 0.5
        return x + 1

    return body


def numpy_statistics() -> Body:
    def body(x: Tensor) -> Tensor:
        array = x.numpy()
        return (x - float(array.mean())) / float(array.std() + 1)

    return body


def permutation() -> Body:
    draw = np.random.default_rng(0)
    return lambda x: x[tensor(draw.permutation(len(x)).astype(np.int32))] * 2


def mixup() -> Body:
    draw = np.random.default_rng(0)

    def body(x: Tensor) -> Tensor:
        lam = draw.beta(0.4, 0.4)
        return x * lam + x[::-1] * (1 - lam)

    return body


def training() -> Body:
    draw = np.random.default_rng(0)
    weight = Parameter(np.full((8, 8), 0.1, np.float32))
    manager, step = GradManager().attach([weight]), optim.Adam([weight], lr=0.01)
    losses: collections.deque[float] = collections.deque(maxlen=5)

    def body(x: Tensor) -> Tensor:
        with manager:
            loss = F.tanh((x + draw.normal(size=x.shape).astype(np.float32)) @ weight).mean()
            manager.backward(loss)
        step.step().clear_grad()
        losses.append(loss.item())
        return loss

    return body


def clipping() -> Body:
    weight = Parameter(np.full((8, 8), 0.1, np.float32))
    manager, step = GradManager().attach([weight]), optim.SGD([weight], lr=0.01, momentum=0.9)

    def body(x: Tensor) -> Tensor:
        with manager:
            loss = (x @ weight).mean()
            manager.backward(loss)
        norm = float((weight.grad * weight.grad).sum())
        if norm > 1e-3:
            weight.grad = weight.grad * (1e-3 / norm)
        step.step().clear_grad()
        return loss

    return body


def schedule() -> Body:
    weight = Parameter(np.full((8, 8), 0.1, np.float32))
    manager, step = GradManager().attach([weight]), optim.SGD([weight], lr=0.5)
    count = itertools.count(1)

    def body(x: Tensor) -> Tensor:
        step.param_groups[0]["lr"] = 0.5 / next(count)
        with manager:
            loss = (x @ weight).mean()
            manager.backward(loss)
        step.step().clear_grad()
        return loss

    return body


BODIES = [
    noise, global_noise, dropout_mask, crop, flip, brightness, counter, annealed, history,
    ever_longer_history, kept_tensors, branch, loop_until, reads_in_a_loop, numpy_statistics, permutation,
    mixup, training, clipping, schedule,
]  # fmt: skip


@pytest.mark.parametrize("make", BODIES, ids=lambda make: make.__name__)
def test_no_call_is_slower_than_earlier_ones(make: Callable[[], Body]) -> None:
    traced, x = trace(make(), backend="EAGER"), tensor(np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8))
    costs = []
    for number in range(300):
        if number in range(30, 60) or number >= 270:
            costs.append(calls_of(lambda: traced(x)))
        else:
            traced(x)
    early, late = costs[:30], costs[30:]
    assert sum(late) <= 1.15 * sum(early), (early, late)


def test_lengths_that_were_seen_before_cost_as_much_however_many_there_are() -> None:
    seen: collections.deque[int] = collections.deque(maxlen=1)
    traced = trace(lambda x, n: (seen.append(n), x[n:] * 2), backend="EAGER")
    x, costs = tensor(np.ones((64, 4), np.float32)), {}
    for several in (4, 64):
        for number in range(6 * several + 2):
            traced(x, number % several)
        costs[several] = calls_of(lambda: traced(x, 2))
    assert costs[64] <= 1.1 * costs[4], costs  # an op whose lengths keep changing runs at once


def test_body_is_skipped_again_after_what_was_new_at_each_call_stays() -> None:
    names, traced = ["x"], trace(lambda x: x * len(names[0]), backend="EAGER")
    for number in range(700):
        names[0] = "x" * (number % 50 + 1) if number < 60 else "stays"
        assert traced(tensor(2.0)).item() == 2 * len(names[0])
    assert traced.stats()["body_runs"] < 300
    for number in range(700):
        names[0] = str(number)
        assert traced(tensor(2.0)).item() == 2 * len(names[0])
    assert traced.stats()["records"] < 20
