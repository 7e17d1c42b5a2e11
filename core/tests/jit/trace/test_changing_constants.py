"""Arrays that NumPy makes anew in a body become inputs: one variant serves every call."""

from __future__ import annotations

from collections.abc import Callable

import mgb.functional as F
import numpy as np
import pytest
from mgb import Tensor, tensor
from mgb.jit import trace

RNG = np.random.default_rng(0)
KEPT: list[tuple[np.ndarray, np.ndarray]] = []


def noise(x: Tensor) -> Tensor:
    return x + RNG.normal(size=(4, 8)).astype("float32")


def dropout_and_bias(x: Tensor) -> Tensor:
    mask = (RNG.random((4, 8)) > 0.5).astype("float32")
    y = F.relu(x * mask + RNG.normal(size=8).astype("float32"))
    return (y * RNG.normal()).sum(axis=1)


def shuffled(x: Tensor) -> Tensor:
    return x[RNG.permutation(4)] * 2.0


def kept_by_the_caller(x: Tensor) -> Tensor:
    array = RNG.normal(size=(4, 8)).astype("float32")
    y = x * array + array
    KEPT.append((array, array.copy()))
    return y


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("body", [noise, dropout_and_bias, shuffled, kept_by_the_caller])
def test_new_arrays_at_each_call_need_one_variant(body: Callable[[Tensor], Tensor], symbolic: bool) -> None:
    traced, x = trace(body, symbolic=symbolic), tensor(np.arange(32, dtype="float32").reshape(4, 8))
    for _ in range(40):
        state = RNG.bit_generator.state
        got = traced(x).numpy()
        after, RNG.bit_generator.state = RNG.bit_generator.state, state
        np.testing.assert_allclose(got, body(x).numpy(), rtol=1e-5)
        assert after == RNG.bit_generator.state
    assert all(np.array_equal(array, copy) for array, copy in KEPT)
    assert traced.stats()["variants"] == 1


def test_new_arrays_of_new_shapes_match_eager() -> None:
    sizes = iter([1, 8, 8, 1, 4, 8, 1, 1, 4] * 2)
    traced, x = (
        trace(lambda x: x * RNG.normal(size=(next(sizes), 1)).astype("float32")),
        tensor(np.ones(3, "f")),
    )
    for size in [1, 8, 8, 1, 4, 8, 1, 1, 4] * 2:
        state = RNG.bit_generator.state
        got = traced(x)
        RNG.bit_generator.state = state
        np.testing.assert_allclose(got.numpy(), x.numpy() * RNG.normal(size=(size, 1)), rtol=1e-6)


def test_body_that_does_something_new_at_each_call_is_not_matched_for_ever() -> None:
    x = tensor(np.arange(3000, dtype="float32"))
    traced = trace(lambda x, i: x[i : i + 2] * 2.0)
    for i in range(400):
        assert traced(x, i).tolist() == [2.0 * i, 2.0 * i + 2]
    assert traced.stats()["variants"] < 40
    for _ in range(900):  # the same again: it is matched again
        traced(x, 7)
    assert traced(x, 7).tolist() == [14.0, 16.0]


@pytest.mark.parametrize(
    "values", [(0.0, 1.0, [1.0, 2.0]), ([1.0, 2.0], [2.0, 3.0], 0.0, 1.0), (0.0, [1.0, 2.0], [[1.0]])]
)
def test_array_of_a_body_that_runs_may_have_other_axes(values: tuple[object, ...]) -> None:
    box = [tensor(0.0)]
    traced = trace(lambda x: x + box[0].numpy(), backend="EAGER")
    for value in values * 2:
        box[0] = tensor(value)
        np.testing.assert_array_equal(traced(tensor(1.0)).numpy(), np.float32(1) + np.float32(value))
