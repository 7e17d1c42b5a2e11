"""What `partial_trace` refuses, and that nothing is changed then."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from mgb import Parameter, Tensor, errors, random, tensor
from mgb.autodiff import GradManager
from mgb.jit import exclude_from_trace, partial_trace
from threads import together

weight = Parameter([1.0, 2.0])


@partial_trace
def product(x):
    return x * weight


def test_invalid_options_raise() -> None:
    with pytest.raises(errors.TraceInputError, match="partial_trace always skips the body"):
        partial_trace(abs, without_host=False)
    with pytest.raises(errors.TraceInputError, match="partial_trace has no option 'record_only'"):
        partial_trace(abs, record_only=True)
    with pytest.raises(errors.TraceInputError, match="has no option 'colour'"):
        partial_trace(abs, colour=1)
    with pytest.raises(errors.ArgumentError, match="sublinear_memory_config is a int"):
        partial_trace(abs, sublinear_memory_config=3)


def test_missing_backend_error_names_the_install_command() -> None:
    @partial_trace(backend="xla")
    def function(x):
        return x + 1.0

    try:
        assert function(tensor([1.0])).item() == 2
    except errors.BackendError as error:
        assert "xla" in str(error) and "pip install" in str(error)
    with pytest.raises(errors.UnknownBackendError, match="no backend is called 'nonesuch'"):
        partial_trace(lambda x: x + 1.0, backend="nonesuch")(tensor([1.0]))


def test_higher_order_derivatives_raise() -> None:
    x = tensor([3.0, 4.0])
    outer, inner = GradManager().attach(x), GradManager().attach(x)
    for _ in range(2):
        with outer, inner, pytest.raises(errors.UnsupportedError, match="derivatives of higher order not"):
            product(x)
    assert x.grad is None and weight.grad is None


def test_higher_order_derivatives_through_incoming_gradient_raise() -> None:
    x, scale = tensor([3.0, 4.0]), tensor([1.0, 1.0])
    with GradManager().attach(scale), GradManager().attach(x) as inner:
        y = product(x)
        with pytest.raises(errors.UnsupportedError, match="derivatives of higher order not"):
            inner.backward(y, scale * 2.0)
    x.grad = None
    with (
        GradManager().attach(scale),
        GradManager().attach(x) as inner,
    ):  # an outer one that sees nothing of it
        inner.backward(product(x))
    assert x.grad.tolist() == [1, 2]


def test_grouped_managers_raise() -> None:
    x = tensor([3.0, 4.0])
    group = GradManager().attach(x) | GradManager().attach(x)
    with group, pytest.raises(errors.UnsupportedError, match="grouped GradManagers are not supported"):
        product(x)


def test_body_changing_an_outer_manager_raises() -> None:
    x = tensor([3.0, 4.0])
    manager = GradManager().attach(x)

    @partial_trace
    def ends(x):
        y = x * 2.0
        manager.backward(y)
        return y

    @partial_trace
    def attaches(x):
        other = x * 2.0
        manager.attach(other)
        return other * 2.0

    with manager, pytest.raises(errors.UnsupportedError, match="was released in it"):
        ends(x)
    assert x.grad is None
    with manager:
        with pytest.raises(errors.ImpureBodyError, match="what attach changes"):
            attaches(x)
        manager.backward(product(x))
    assert x.grad.tolist() == [1, 2]


READS: dict[str, Callable[[Tensor], object]] = {
    "a value of the body": lambda x: x * (x + 1.0).sum().item(),
    "an argument's value": lambda x: x * float(x.numpy()[0]),
    "a condition": lambda x: x if bool((x * 1.0).sum() > 0) else -x,
    "a value outside": lambda x: x * float(weight.numpy()[0]),
}


@pytest.mark.parametrize("body", READS.values(), ids=READS)
def test_body_reading_values_raises(body: Callable[[Tensor], Tensor]) -> None:
    function = partial_trace(body)
    x = tensor([3.0, 4.0])
    for _ in range(2):
        with (
            GradManager().attach(x),
            pytest.raises(errors.SymbolicReadError, match=r"test_bad.py:\d+, but Python does not run"),
        ):
            function(x)
    assert x.tolist() == [3, 4]
    assert function.stats()["records"] == 0


def test_body_leaving_the_trace_raises() -> None:
    @partial_trace
    def function(x):
        with exclude_from_trace():
            return x + 1.0

    with pytest.raises(errors.ImpureBodyError, match="leaves the trace by exclude_from_trace"):
        function(tensor([1.0]))


def test_tensor_created_in_the_body_is_constant() -> None:
    def function(x):
        return x + tensor(np.ones(2, np.float32))

    for traced in (partial_trace(function), partial_trace(function, capture_as_const=True)):
        assert [traced(tensor([1.0, float(n)])).tolist() for n in range(3)] == [[2, n + 1] for n in range(3)]
        assert traced.stats()["records"] == 1


def test_side_effect_raises_and_number_results_are_returned() -> None:
    kept = []

    @partial_trace
    def keeps(x):
        kept.append(x * 2.0)
        return x + 1.0

    with pytest.raises(errors.ImpureBodyError, match=r"list.append of an object from outside at .*_bad.py"):
        keeps(tensor([1.0]))
    assert kept == []
    with_a_number = partial_trace(lambda x: (x * 2, 3))
    for value in (1.0, 2.0):
        doubled, number = with_a_number(tensor([value]))
        assert doubled.tolist() == [2 * value] and number == 3
    assert with_a_number.stats()["records"] == 1


def test_exception_in_the_body_leaves_state_unchanged() -> None:
    state = tensor([1.0])

    @partial_trace
    def function(x, fails):
        state[...] = state + x
        if fails:
            raise KeyError("fails")
        return random.normal(size=2) * state

    x = tensor([2.0])
    manager = GradManager().attach(x)
    with manager:
        with pytest.raises(KeyError, match="fails"):
            function(x, True)
        assert state.tolist() == [1]
        y = function(x, False)
        assert state.tolist() == [3]
        manager.backward(y)
    assert x.grad.item() == pytest.approx(y.numpy().sum() / 3, rel=1e-5)


def test_incoming_gradient_of_wrong_shape_raises() -> None:
    x = tensor([3.0, 4.0])
    with GradManager().attach(x) as manager:
        y = product(x)
        with pytest.raises(errors.ShapeError, match=r"a gradient of \(3,\) arrived for a result of \(2,\)"):
            manager.backward(y, tensor([1.0, 1.0, 1.0]))


def test_partial_trace_is_pickled_by_name_and_not_copied() -> None:
    assert pickle.loads(pickle.dumps(product)) is product
    assert copy.deepcopy(product) is product
    assert product.__name__ == "product"
    assert product.__wrapped__ is not product


def test_threads_share_one_trace() -> None:
    results: dict[int, list[float]] = {}

    @partial_trace
    def square(x):
        return (x * x).sum()

    def work(number: int) -> None:
        x = tensor(np.full(50, float(number), np.float32))
        with GradManager().attach(x) as manager:
            manager.backward(square(x))
        results[number] = sorted(set(x.grad.tolist()))

    together([partial(work, n) for n in range(8)])
    assert results == {n: [2.0 * n] for n in range(8)}
    assert square.stats()["records"] == 1
