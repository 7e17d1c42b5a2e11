"""Caches that a body fills at its first call, and data that it prepares."""

import functools
from typing import Any

import numpy as np
import pytest
from mgb import Tensor, jit, tensor


def ramp(n: int) -> Tensor:
    return tensor(np.arange(n, dtype=np.float32))


def test_lru_cache_by_lengths_costs_one_record_for_each() -> None:
    @functools.lru_cache
    def table(n: int) -> Any:
        return np.arange(n, dtype=np.float32)

    traced = jit.trace(lambda x: x * table(x.shape[0]))
    for _ in range(3):
        for n in range(1, 9):
            np.testing.assert_array_equal(traced(ramp(n)).numpy(), np.arange(n, dtype=np.float32) ** 2)
    assert traced.stats()["body_runs"] == 8, traced.stats()["reasons"]


@pytest.mark.parametrize("kind", ["lru_cache", "a dict"])
def test_cache_of_tensors_is_filled_at_the_first_call(kind: str) -> None:
    kept: dict[int, Tensor] = {}

    def by_dict(n: int) -> Tensor:
        if n not in kept:
            kept[n] = ramp(n)
        return kept[n]

    table = functools.lru_cache(ramp) if kind == "lru_cache" else by_dict
    traced = jit.trace(lambda x: x * table(x.shape[0]))
    for _ in range(10):
        np.testing.assert_array_equal(traced(ramp(4)).numpy(), np.arange(4, dtype=np.float32) ** 2)
    assert traced.stats()["body_runs"] == 2, traced.stats()["reasons"]


def test_arrays_prepared_by_numpy_are_recorded_a_few_times() -> None:
    rng = np.random.default_rng(0)

    def prepare(image: Any) -> Tensor:
        return tensor(image.astype(np.float32) / 255 - image.mean()) * 2.0

    traced = jit.trace(prepare)
    for _ in range(12):
        image = rng.integers(0, 255, (4, 3)).astype(np.uint8)
        np.testing.assert_array_equal(traced(image).numpy(), prepare(image).numpy())
    assert traced.stats()["records"] <= 3, traced.stats()["reasons"]
