"""What is another one at every call: Tensors outside and numbers become inputs, or else the body runs."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import mgb.functional as F
import numpy as np
import pytest
from following import SKIPPING
from mgb import Parameter, tensor
from mgb.autodiff import GradManager
from mgb.jit import trace
from mgb.optimizer import SGD

WRAPS = {name: SKIPPING[name] for name in ("default", "skips", "symbolic")}
wraps = pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)

state: Any = None


def equal(one: Any, other: Any) -> None:
    np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=2e-6, atol=1e-6)


def rolled(step: Callable[[Any], Any], count: int) -> Iterator[Any]:
    """The states that `step` leads through, each bound to the global that it reads."""
    global state
    state = tensor([0.5, -0.5])
    for number in range(count):
        state = step(tensor([0.1 * number, 1.0]))
        yield state


# Tensors


@wraps
def test_rebound_global_tensor_becomes_an_input(wrap: Any) -> None:
    traced = wrap(lambda x: F.tanh(state * 0.9 + x))
    expected = [s.numpy() for s in rolled(traced.__wrapped__, 12)]
    np.testing.assert_allclose([s.numpy() for s in rolled(traced, 12)], expected, rtol=1e-5)
    assert traced.stats()["records"] == 2 and traced.stats()["reasons"][0].startswith("global `state`")


@wraps
def test_rebound_state_next_to_trained_parameters(wrap: Any) -> None:
    def make() -> tuple[Any, Any]:
        weight = Parameter([1.0, -2.0])
        opt, gm = SGD([weight], lr=0.1), GradManager().attach([weight])

        def step(x):
            with gm:
                hidden = F.tanh(state + x * weight)
                gm.backward((hidden * hidden).sum())
            opt.step().clear_grad()
            return hidden

        return step, weight

    (step, weight), (other, found) = make(), make()
    expected = [s.numpy() for s in rolled(step, 10)]
    traced = wrap(other)
    np.testing.assert_allclose([s.numpy() for s in rolled(traced, 10)], expected, rtol=1e-5)
    equal(found, weight)
    assert traced.stats()["records"] == 2


@wraps
def test_rebound_tensors_in_attributes_items_and_variables(wrap: Any) -> None:
    holder, box, cell = (
        SimpleNamespace(h=tensor([1.0])),
        {"h": tensor([1.0]), 3: [tensor([0.0])]},
        tensor([2.0]),
    )
    traced = wrap(lambda x: (x + holder.h) * box["h"] - box[3][0] + getattr(holder, "h") * cell)  # noqa: B009
    for number in range(8):
        holder.h, box["h"] = tensor([0.5 * number]), tensor([float(number)])
        box[3][0], cell = tensor([number / 3]), tensor([1.0 - number])
        equal(traced(tensor([1.0, 2.0])), traced.__wrapped__(tensor([1.0, 2.0])))
    assert traced.stats()["records"] <= 3


@wraps
def test_rebound_tensor_of_new_shape_or_dtype_is_detected(wrap: Any) -> None:
    box = {}
    traced = wrap(lambda x: (x * box["h"], box["h"].shape))
    values = [[1.0], [2.0], [3.0, 4.0], [5.0, 6.0], [7.0], [8], [9]]
    for value in values:
        box["h"] = tensor(value)
        (one, shape), (other, then) = traced(tensor([1.0, 2.0])), traced.__wrapped__(tensor([1.0, 2.0]))
        equal(one, other)
        assert tuple(shape) == tuple(then) and one.dtype == other.dtype


@wraps
def test_tensor_reached_by_two_paths_keeps_its_identity(wrap: Any) -> None:
    one, two = SimpleNamespace(), SimpleNamespace()
    traced = wrap(lambda x: (x + one.h * 2 + two.h, one.h is two.h))
    for number in range(10):
        one.h = tensor([float(number)])
        two.h = one.h if number % 3 else tensor([2.0 * number])
        result, same = traced(tensor([1.0]))
        equal(result, traced.__wrapped__(tensor([1.0]))[0])
        assert same is (number % 3 != 0)


def test_state_aliasing_an_updated_tensor_matches_eager() -> None:
    """In each call another alias: the state is the weight, its grad, the argument, or none of these."""

    def make() -> tuple[Any, Any, Any]:
        weight, box = Parameter([1.0, -2.0]), {}
        gm = GradManager().attach([weight])

        def step(x):
            with gm:
                gm.backward((weight * weight * x).sum())
            weight[...] = weight - 0.1 * weight.grad
            result = box["h"] * 2.0 + weight
            x[...] = x + 1.0
            return result + box["h"]

        return step, weight, box

    plain, traced = make(), make()
    step = trace(traced[0])
    for number in range(14):
        results = []
        for function, (_, weight, box) in ((plain[0], plain), (step, traced)):
            x = tensor([1.0 + number, 2.0])
            free = tensor([float(number), 1.0])
            box["h"] = {5: weight, 6: weight.grad, 7: x, 10: x, 11: weight}.get(number, free)
            results.append((function(x).numpy(), x.numpy(), weight.numpy(), weight.grad.numpy()))
        for mine, other in zip(*results, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-5)


@wraps
def test_returned_or_updated_state_keeps_its_identity(wrap: Any) -> None:
    box: dict[str, Any] = {}
    returns, changes = wrap(lambda x: (box["h"], x + box["h"])), wrap(lambda x: box["h"].__iadd__(x).sum())
    for number in range(6):
        box["h"] = held = tensor([float(number), 1.0])
        assert returns(tensor([1.0, 1.0]))[0] is held
        assert changes(tensor([1.0, 2.0])).item() == number + 4
        assert box["h"] is held and held.tolist() == [number + 1.0, 3.0]


# bodies that run


@pytest.mark.parametrize("count", [1, 2])
def test_number_in_a_body_with_side_effects_becomes_an_input(count: int) -> None:
    log: deque[Any] = deque()

    @trace
    def step(x, rate, decay=0.5):
        log.append(rate)
        return x * rate - decay * x + rate * 2 * count

    x = tensor([1.0, 2.0])
    for number in range(20):
        decay = 0.5 if number < 10 else number / 20
        equal(step(x, 0.1 * number, decay=decay), step.__wrapped__(x, 0.1 * number, decay=decay))
    stats = step.stats()
    assert stats["records"] == 4 and stats["body_runs"] == 20 and set(map(type, log)) == {float}
    assert stats["programs"] <= 3 and "it is an input now" in stats["reasons"][1]


def test_python_random_numbers_become_inputs() -> None:
    drawn: list[float] = []

    @trace
    def noisy(x):
        drawn.append(random.random())
        return x * drawn[-1] + (drawn[-1] - 1) * 2.0

    for _ in range(12):
        y = noisy(tensor([1.0, 2.0]))
        np.testing.assert_allclose(y.numpy(), np.array([1, 2]) * drawn[-1] + (drawn[-1] - 1) * 2, 1e-5, 1e-6)
    assert noisy.stats()["records"] == 1


def test_body_with_side_effects_branching_on_a_number() -> None:
    seen: list[int] = []

    @trace
    def step(x, n):
        seen.append(n)
        return x * n if n % 3 else x - n * 2

    for n in range(30):
        equal(step(tensor([1.0, 2.0]), n), step.__wrapped__(tensor([1.0, 2.0]), n))


# what else is new at each call


def test_ever_new_string_makes_the_body_run() -> None:
    config = SimpleNamespace(name="")

    @trace
    def named(x):
        return x * len(config.name)

    for number in range(40):
        config.name = "a" * number
        assert named(tensor([1.0, 2.0])).tolist() == [number, 2.0 * number]
    stats = named.stats()
    assert stats["records"] <= 10 and stats["body_runs"] == 40
    assert sum("runs at each call" in reason for reason in stats["reasons"]) == 1
    assert "finds what is new at each call: `config.name`" in " ".join(stats["reasons"])


def test_ever_new_objects_do_not_retrace_at_each_call() -> None:
    config = SimpleNamespace()

    @trace
    def scaled(x):
        return config.scale(x)

    for number in range(30):
        config.scale = lambda x, number=number: x * number
        assert scaled(tensor([1.0, 2.0])).tolist() == [number, 2.0 * number]
    assert scaled.stats()["records"] <= 10


def test_empty_ranges_are_distinguished_by_start() -> None:
    config = SimpleNamespace()
    traced = trace(lambda x: x * config.range.start)
    for start in (2, 3, 2):
        config.range = range(start, start)
        assert traced(tensor([1.0])).item() == start


def test_few_alternating_values_keep_the_body_skipped() -> None:
    config = SimpleNamespace()
    functions = [lambda x, n=n: x + n for n in range(6)]

    @trace
    def chosen(x):
        return config.function(x)

    for number in range(60):
        config.function = functions[number % 6]
        assert chosen(tensor([1.0])).item() == 1.0 + number % 6
    assert chosen.stats()["body_runs"] == 6


def test_ever_new_ops_are_recorded_less_and_less_often() -> None:
    @trace
    def unrolled(x, n):
        for _ in range(n):
            x = x + 1.0
        return x

    for n in range(100):
        assert unrolled(tensor([1.0]), n).item() == 1.0 + n
    assert unrolled.stats()["records"] < 30
    for n in (3, 4) * 4:  # what was recorded serves on
        assert unrolled(tensor([1.0]), n).item() == 1.0 + n
    assert unrolled.stats()["records"] < 30


def test_loop_with_few_counts_is_recorded_once_per_count() -> None:
    @trace
    def unrolled(x, n):
        for _ in range(n):
            x = x + 1.0
        return x

    for number in range(48):
        assert unrolled(tensor([1.0]), number % 12).item() == 1.0 + number % 12
    assert unrolled.stats()["body_runs"] == 12


# numbers in containers among the arguments


@dataclass
class Config:
    rate: Any
    decay: Any = 0.5
    inner: Any = None


class Pair(NamedTuple):
    one: Any
    two: Any


HOLDERS: dict[str, Callable[[float], Any]] = {
    "dict": lambda n: {"rate": n, "decay": 0.5, "more": [1, (n, 2)]},
    "list": lambda n: [n, 0.5, {"n": n}],
    "tuple": lambda n: (n, (0.5, [n])),
    "dataclass": lambda n: Config(n, inner=[Config(2.0, n)]),
    "named": lambda n: Pair(n, [Pair(0.5, n)]),
}


def product(x: Any, value: Any) -> Any:
    """`x` times all numbers in a nest."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, Config):
        value = [value.rate, value.decay, value.inner]
    if isinstance(value, list | tuple):
        for part in value:
            x = product(x, part)
        return x
    return x if value is None else x * value


@pytest.mark.parametrize("name", HOLDERS)
@wraps
def test_numbers_in_container_arguments_become_inputs(wrap: Any, name: str) -> None:
    traced = wrap(product)
    for number in (1.0, 1.5, 2.5, 3.5, 0.5):
        holder, then = HOLDERS[name](number), HOLDERS[name](number)
        equal(traced(tensor([1.0, 2.0]), holder), product(tensor([1.0, 2.0]), then))
        assert holder == then and "Scalar" not in repr(vars(holder) if name == "dataclass" else holder)
    assert traced.stats()["records"] == 2, traced.stats()["reasons"]


@pytest.mark.parametrize("wrap", [trace, WRAPS["skips"]])
def test_lengths_and_numbers_can_change_together(wrap: Any) -> None:
    traced = wrap(lambda x, rate: (x - rate * F.tanh(x)).sum(axis=0) + rate)
    for number in range(1, 20):
        x = tensor(np.full((number % 7 + 2, 3), 0.5, np.float32))
        equal(traced(x, 0.1 * number), traced.__wrapped__(x, 0.1 * number))
    assert traced.stats()["records"] == 2


def test_same_container_passed_twice_matches_eager() -> None:
    traced = trace(lambda x, one, other: x * one["n"] + other["n"])
    for number in range(8):
        one = {"n": float(number)}
        other = one if number % 4 < 2 else {"n": number + 5.0}
        equal(traced(tensor([2.0]), one, other), tensor([2.0]) * one["n"] + other["n"])


def test_body_updates_numbers_in_a_container_argument() -> None:
    @trace
    def step(x, config):
        config["steps"] += 1
        config["seen"].append(config["rate"])
        return x * config["rate"] + config["steps"]

    for _ in range(2):
        config: Any = {"steps": 0, "seen": [], "rate": 0.5}
        for number in range(8):
            config["rate"] = number / 2
            assert step(tensor([2.0]), config).item() == 2 * number + 1
        assert config == {"steps": 8, "seen": [n / 2 for n in range(8)], "rate": 3.5}
        assert {type(part) for part in (*config["seen"], config["rate"])} == {float}


def test_raising_call_leaves_its_arguments_unchanged() -> None:
    @trace
    def fails(x, config):
        return x * config["rate"] * (1 // (1 if config["rate"] < 3 else 0))

    for number in (1.0, 2.0, 3.0, 4.0):
        config = {"rate": number, "list": [number]}
        if number < 3:
            fails(tensor([1.0]), config)
        else:
            with pytest.raises(ZeroDivisionError):
                fails(tensor([1.0]), config)
        assert config == {"rate": number, "list": [number]} and type(config["rate"]) is float
