"""Calls that leave their record: values, records and bounds, judged against eager calls of the same body."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from mgb import Tensor, tensor
from mgb.backends.plugins import installed
from mgb.errors import TraceMismatchError
from mgb.jit import exclude_from_trace, trace

pytestmark = pytest.mark.usefixtures("eager_backend")

#: Large enough that a kernel overwrites a parameter in place.
WIDTH = 20_000


def counting(*shape: int, dtype: Any = np.float32) -> Tensor:
    return tensor(np.arange(1, 1 + np.prod(shape, dtype=int)).reshape(shape).astype(dtype))


def read_late(x: Tensor) -> Tensor:
    doubled = x * 2.0
    total = float(x.sum())
    return tensor(float(doubled.numpy().sum())) if x.shape[0] > 4 else x + total


def use_late(x: Tensor) -> Tensor:
    doubled = x * 2.0
    y = x + float(x.sum())
    return y * doubled if x.shape[0] > 4 else y


def read_excluded(x: Tensor) -> Tensor:
    doubled, y = x * 2.0, x + float(x.sum())
    with exclude_from_trace():
        return tensor(float(doubled.sum())) if x.shape[0] > 4 else y


@pytest.mark.parametrize("body", [read_late, use_late, read_excluded])
def test_diverging_call_can_use_a_value_not_saved_by_the_trace(body: Callable[..., Tensor]) -> None:
    traced = trace(body)
    for length in (3, 6, 6, 3, 7, 6):
        np.testing.assert_array_equal(traced(counting(length)).numpy(), body(counting(length)).numpy())
    assert traced.stats()["records"] <= 3


@pytest.mark.parametrize("backend", ["eager", "cpu_llvm"])
def test_raising_body_leaves_no_wrong_value(backend: str) -> None:
    if backend not in installed():
        pytest.skip(f"the backend {backend} is not installed")
    total, kept = tensor(np.ones(WIDTH, np.float32)), []

    @trace(run_body=True, backend=backend)
    def function(x: Tensor, fails: bool) -> Tensor:
        nonlocal total
        doubled, other = total * 2.0, x * 3.0
        total += x
        scale = float(x.sum())
        if fails:
            kept.extend([doubled, other])
            raise ValueError
        return x + scale

    one = tensor(np.ones(WIDTH, np.float32))
    for _ in range(3):
        function(one, False)
    before = total.numpy().copy()
    with pytest.raises(ValueError):
        function(one, True)
    np.testing.assert_array_equal(total.numpy(), before + 1)
    np.testing.assert_array_equal(kept[1].numpy(), 3 * one.numpy())
    try:
        found = kept[0].numpy()
    except TraceMismatchError as error:
        assert "was not kept" in str(error)
    else:
        np.testing.assert_array_equal(found, 2 * before)


def test_new_shape_may_use_a_captured_tensor_of_another_dtype() -> None:
    short, long = counting(3), counting(3, dtype=np.int32)
    traced = trace(lambda x: ((short if x.shape[0] <= 4 else long).sum(), x * 2.0), run_body=True)
    for length in (3, 6, 6, 3, 7):
        total, doubled = traced(counting(length))
        assert total.dtype == (np.float32 if length <= 4 else np.int64) and total.item() == 6
        np.testing.assert_array_equal(doubled.numpy(), 2 * counting(length).numpy())


def test_shape_families_do_not_mix_dtypes() -> None:
    traced = trace(lambda x: x + x, run_body=True)
    traced(counting(3))
    for shape in ((2, 3), (2, 3), (4, 3), (5, 3)):
        x = counting(*shape, dtype=np.int32)
        found = traced(x)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found.numpy(), 2 * x.numpy())


def test_captured_tensor_may_change_its_rank() -> None:
    weights = [counting(2, 3)]
    traced = trace(lambda x: (weights[0] * 2.0).sum() * x, run_body=True)
    for weight in (counting(2, 3), *[tensor(3.0)] * 4, *[counting(2, 3)] * 4):
        weights[0] = weight
        assert traced(tensor([2.0])).item() == 4 * weight.numpy().sum()
    (reason,) = traced.stats()["reasons"]
    assert reason.startswith("the tensor used at ") and reason.endswith("has shape (), recorded were (2, 3)")
    assert len(traced.programs()) == 2, "both are compiled"


def test_ever_new_lengths_have_a_record_each() -> None:
    traced = trace(lambda x: x * 2.0 if x.shape[0] < 100 else x + 1.0, run_body=True)
    for length in range(1, 30):
        for x in (counting(length), counting(length + 100)):
            expected = x.numpy() * 2 if x.shape[0] < 100 else x.numpy() + 1
            np.testing.assert_array_equal(traced(x).numpy(), expected)
    assert (traced.stats()["records"], len(traced.variants())) == (58, 58)


def test_variants_are_bounded_and_evicted_lengths_are_recorded_again() -> None:
    @trace(run_body=True)
    def traced(x: Tensor) -> Tensor:
        return x * 2.0 if x.ndim == 1 else x + 1.0 if x.ndim == 2 else x - 1.0

    for axes in (1, 2, 3):
        for length in range(1, 140):
            traced(tensor(np.zeros((length, *(1,) * (axes - 1)), np.float32)))
    assert len(traced.variants()) == 256
    np.testing.assert_array_equal(traced(counting(7)).numpy(), counting(7).numpy() * 2)
    assert traced.stats()["records"] == 3 * 139 + 1


def test_body_that_must_run_does_not_keep_its_arguments_alive() -> None:
    traced = trace(lambda x: x * float(x.sum()))
    x = counting(5)
    traced(x)
    reference = weakref.ref(x)
    del x
    assert reference() is None


# random bodies

WORDS = ["add", "scale", "update", "update", "read", "exclude", "sum", "alias", "old", "keep", "fail"]
Line = tuple[str, int, int, str]


def random_body(rng: random.Random) -> list[Line]:
    count = rng.randint(3, 9)
    when = ["always", "always", "long", "short"]
    return [(rng.choice(WORDS), rng.randint(0, 9), rng.randint(0, 9), rng.choice(when)) for _ in range(count)]


class State:
    """What a random body changes."""

    def __init__(self, lines: list[Line]) -> None:
        self._lines = lines
        self.weight = tensor(np.ones(WIDTH, np.float32))
        self.log: list[float] = []
        self.kept: list[Tensor] = []

    def body(self, x: Tensor, fails: bool) -> Tensor:
        values = [x * 1.0]
        for word, a, b, when in self._lines:
            if when == "always" or (when == "long") == (x.shape[0] > 4):
                self._do(word, values, values[a % len(values)], values[b % len(values)], fails)
        return values[-1]

    def _do(self, word: str, values: list[Tensor], p: Tensor, q: Tensor, fails: bool) -> None:
        if word == "add":
            values.append(p + q)
        elif word == "scale":
            values.append(p * 2.0 - q)
        elif word == "update":
            self.weight += F.sum(p, axis=0)
        elif word == "read":
            self.log.append(float(p.numpy().sum()))
        elif word == "exclude":
            with exclude_from_trace():
                self.log.append(float(p.numpy()[0, 0]))
        elif word == "sum":
            values.append(p + F.sum(q, axis=0, keepdims=True))
        elif word == "old":
            values.append(p + self.weight)
        elif word in ("alias", "keep"):
            self.kept.append(self.weight.detach() if word == "alias" else q)
        elif fails:
            raise ValueError

    def call(self, function: Callable[..., Tensor], x: Tensor, fails: bool) -> np.ndarray | None:
        try:
            return function(x, fails).numpy().copy()
        except ValueError:
            return None


def check_kept(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        try:
            value = one.numpy()
        except TraceMismatchError:  # it was overwritten before the call failed, or only some calls keep it
            continue
        np.testing.assert_array_equal(value, other.numpy())


@pytest.mark.parametrize("seed", range(6))
def test_random_bodies_match_eager_at_any_length(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(25):
        lines = random_body(rng)
        eager, replayed = State(lines), State(lines)
        traced = trace(replayed.body, run_body=rng.choice([None, True]))
        for place in range(5):
            rows, fails = rng.choice([1, 3, 5, 6]), place > 0 and rng.random() < 0.2
            x = np.random.default_rng(place).integers(-3, 4, (rows, WIDTH)).astype(np.float32)
            expected = eager.call(eager.body, tensor(x), fails)
            found = replayed.call(traced, tensor(x), fails)
            assert (found is None) == (expected is None)
            if found is not None and expected is not None:
                np.testing.assert_array_equal(found, expected)
            np.testing.assert_array_equal(replayed.weight.numpy(), eager.weight.numpy())
            assert replayed.log == eager.log
            check_kept(replayed.kept, eager.kept)
