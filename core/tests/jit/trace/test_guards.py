"""What a compiled call must notice before it serves arguments: found by comparing with eager code."""

from __future__ import annotations

from typing import Any

import mgb.functional as F
import mgb.random as random
import numpy as np
import pytest
from mgb.autodiff import GradManager
from mgb.errors import TraceMismatchError
from mgb.jit import partial_trace, trace
from mgb.tensor import Parameter, Tensor, tensor


def hostless(function: Any) -> Any:
    return trace(function, without_host=True)


compiled = pytest.mark.parametrize("wrap", [hostless, partial_trace], ids=["without_host", "partial_trace"])


@compiled
def test_reseeding_the_generator_takes_effect(wrap: Any) -> None:
    def body(x: Tensor) -> Tensor:
        return x + random.uniform(size=(2,))

    traced, x = wrap(body), tensor([0.0, 0.0])
    random.seed(7)
    want = [body(x).tolist() for _ in range(3)]
    for _ in range(2):
        random.seed(7)
        assert [traced(x).tolist() for _ in range(3)] == want
        assert random.get_rng_state() == (7, 3)
    random.set_rng_state((7, 1))
    assert traced(x).tolist() == want[1]


def test_partial_trace_can_update_an_argument_it_differentiates() -> None:
    p = tensor([3.0])

    @partial_trace
    def square(c: Tensor) -> Tensor:
        c[...] = c * p
        return c * p

    for _ in range(3):
        p.grad = None
        with GradManager().attach(p) as manager:
            manager.backward(square(p * 2.0))  # 2 p**3
        assert p.grad is not None
        np.testing.assert_allclose(p.grad.numpy(), [6 * 9.0])


@compiled
def test_argument_aliasing_an_updated_free_variable(wrap: Any) -> None:
    p, t = tensor([3.0]), tensor([1.0])

    def body(x: Tensor) -> Tensor:
        p[...] = p + 1.0
        return x * 2.0

    traced = wrap(body)
    assert [traced(t).item() for _ in range(3)] == [2.0] * 3
    assert traced(p).item() == 14.0  # p was 6
    assert p.item() == 7.0


@compiled
def test_nesting_of_arguments_is_guarded(wrap: Any) -> None:
    traced = wrap(lambda x, ys: x + ys[0] if isinstance(ys, list) else x * ys)
    a, b = tensor([2.0]), tensor([5.0])
    assert [traced(a, [b]).item() for _ in range(3)] == [7.0] * 3
    assert [traced(a, b).item() for _ in range(3)] == [10.0] * 3
    assert traced(a, [b]).item() == 7.0


@compiled
def test_parameter_and_tensor_arguments_are_distinguished(wrap: Any) -> None:
    traced = wrap(lambda x: x * 2 if isinstance(x, Parameter) else x * 3)
    plain, parameter = tensor([1.0]), Parameter([1.0])
    assert [traced(plain).item() for _ in range(3)] == [3.0] * 3
    assert [traced(parameter).item() for _ in range(3)] == [2.0] * 3
    assert traced(plain).item() == 3.0


def test_run_body_distinguishes_negative_zero() -> None:
    traced = trace(lambda x, k: F.sum(1.0 / (x * k)), run_body=True)
    x, zeros = tensor([1.0, 1.0]), np.zeros(2, np.float32)
    assert [traced(x, k=0.0).item() for _ in range(3)] == [np.inf] * 3
    with pytest.raises(TraceMismatchError, match="tensors not equals"):
        traced(x, k=-0.0).item()
    assert traced(x, k=0.0).item() == np.inf
    array = trace(lambda x, k: F.sum(1.0 / (x * k)), run_body=True)
    assert [array(x, k=k).item() for k in (zeros, -zeros, zeros)] == [np.inf, -np.inf, np.inf]


@compiled
@pytest.mark.parametrize(
    "keys",
    [
        (1, True, 1.0, np.int64(1), np.float32(1)),
        (0.0, -0.0, np.float32(0), np.float32(-0.0), False),
        ((1, "a"), (True, "a"), (1.0, "a")),
        (frozenset({1}), frozenset({True})),
        (1 + 0j, complex(1, -0.0), 1),
        ("1", 1),
    ],
    ids=str,
)
@pytest.mark.parametrize("place", ["key", "inner key", "value"])
def test_equal_values_of_different_types_are_distinguished(
    wrap: Any, keys: tuple[Any, ...], place: str
) -> None:
    texts = list(map(repr, keys))

    def body(x: Tensor, given: Any) -> Tensor:
        (key,) = given[0] if isinstance(given, list) else [given] if place == "value" else given
        return x * float(texts.index(repr(key)) + 1)

    traced, x = wrap(body), tensor([1.0])
    for _ in range(2):
        for number, key in enumerate(keys):
            if place == "value" and isinstance(key, tuple):
                continue  # its parts are the leaves
            given = {"key": {key: x}, "inner key": [{key: x}], "value": key}[place]
            assert traced(x, given).item() == number + 1


@compiled
def test_slices_and_ranges_are_guarded_by_value(wrap: Any) -> None:
    traced = wrap(lambda x, part, numbers: x[part] * float(numbers.start))
    x = tensor([1.0, 2.0, 3.0])
    for _ in range(2):
        assert traced(x, slice(0, 2), range(2, 2)).tolist() == [2.0, 4.0]
        assert traced(x, slice(1, 3), range(2, 2)).tolist() == [4.0, 6.0]
        assert traced(x, slice(1, 3), range(3, 3)).tolist() == [6.0, 9.0]
    assert traced.stats()["records"] == 3


@compiled
@pytest.mark.parametrize("count", [2, 20])
def test_same_tensor_for_two_arguments_is_distinguished(wrap: Any, count: int) -> None:
    def body(*xs: Tensor) -> Tensor:
        first, last = xs[0], xs[-1]
        first += 1.0
        return last * 2.0

    traced = wrap(body)
    for _ in range(3):
        xs = [tensor([float(n)]) for n in range(count)]
        assert (traced(*xs).item(), xs[0].item()) == (2.0 * (count - 1), 1.0)
    xs[-1] = xs[0] = tensor([5.0])
    assert (traced(*xs).item(), xs[0].item()) == (12.0, 6.0)


@compiled
@pytest.mark.parametrize("count", [1, 20])
def test_dtype_change_of_a_captured_tensor_is_detected(wrap: Any, count: int) -> None:
    outside = [tensor([1, 2]) for _ in range(count)]
    traced, x = wrap(lambda x: sum((x * w for w in outside), x)), tensor([1, 1])
    for _ in range(3):
        np.testing.assert_array_equal(traced(x).numpy(), [1 + count, 1 + 2 * count])
    last = outside[-1]
    last /= 2
    np.testing.assert_array_equal(traced(x).numpy(), [count + 0.5, 2 * count])


@compiled
def test_gradients_accumulate_into_existing_grads(wrap: Any) -> None:
    p, x = tensor([3.0]), tensor([2.0])

    def body(x: Tensor) -> None:
        with GradManager().attach(p) as manager:
            manager.backward(F.sum(p * x))

    traced = wrap(body)
    for _ in range(2):
        p.grad = None
        for want in (2.0, 4.0, 6.0):
            traced(x)
            assert p.grad is not None and p.grad.item() == want


@compiled
def test_attaching_to_a_manager_later_is_detected(wrap: Any) -> None:
    p, x, manager = tensor([3.0]), tensor([2.0]), GradManager()

    def body(x: Tensor) -> Tensor:
        with manager:
            y = F.sum(p * x)
            manager.backward(y)
        return y

    traced = wrap(body)
    for _ in range(3):
        assert traced(x).item() == 6.0 and p.grad is None
    manager.attach(p)
    traced(x)
    assert p.grad is not None and p.grad.item() == 2.0
