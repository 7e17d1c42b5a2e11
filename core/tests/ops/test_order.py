"""Ordered ops: made once each, read or not, in the order of Python, whatever a call does."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import mgb
import numpy as np
import pytest
from mgb.autodiff import GradManager
from mgb.ir import Kind, Op
from mgb.jit import SublinearMemoryConfig, auto, partial_trace, trace
from mgb.tensor import Tensor
from mgb.tensor.apply import apply

LOG: list[float] = []


def _sent(x: Any, *_before: Any) -> Any:
    LOG.append(float(x.reshape(-1)[0]))
    return x.copy()


SEND = Op(
    "send_for_tests",
    Kind.OPAQUE,
    lambda x, *_before: x,
    _sent,
    grad=lambda g, _y, _x: (send(g * 10),),
    keeps_bits=True,
    ordered=True,
)


def send(x: Any) -> Tensor:
    return apply(SEND, x)


@pytest.fixture(autouse=True)
def log() -> Iterator[list[float]]:
    LOG.clear()
    yield LOG
    LOG.clear()


def unread(x: Tensor) -> Tensor:
    """Equal applications, results that nobody reads, and outputs that wait in the opposite order."""
    one = send(x)
    send(x)
    send(x + 1)
    two = send(x + 2)
    send(np.float32(3))
    send(np.float32(3))
    return two * 2 + mgb.functional.exp(one)


def training(x: Tensor) -> Tensor:
    with GradManager().attach(x) as gm:
        y = send(send(x * 2) * 3)
        gm.backward(y.sum())
    send(x.grad * 0 + 7)
    return x.grad


OPTIONS = [
    {},
    {"run_body": True},
    {"symbolic": True},
    {"opt_level": 0},
    {"symbolic_shape": True},
    {"sublinear_memory_config": SublinearMemoryConfig()},
]


@pytest.mark.parametrize("body", [unread, training])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_traced_calls_run_ordered_ops_as_eager_code_does(
    body: Callable[..., Any], options: dict[str, Any]
) -> None:
    def called(function: Callable[..., Any], value: float) -> tuple[list[float], Any]:
        LOG.clear()
        result = function(mgb.tensor(np.full((3, 2), value, "float32")))
        return list(LOG), result.numpy()

    traced = trace(**options)(body)
    for value in (1.0, 2.0, 3.0):
        order, expected = called(body, value)
        assert len(order) >= 5
        found, result = called(traced, value)
        assert found == order
        np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_ordered_ops_of_a_body_without_result_are_run() -> None:
    @trace
    def f(x: Tensor) -> None:
        send(x)
        send(x * 2)

    for value in (1.0, 2.0, 3.0):
        f(mgb.tensor([value]))
    assert LOG == [1, 2, 2, 4, 3, 6]
    assert f.stats()["body_runs"] == 1


def test_ordered_ops_on_constants_are_not_folded() -> None:
    @trace
    def f() -> Tensor:
        return send(np.ones(2, "float32")) + 1

    for _ in range(3):
        f()
    assert LOG == [1, 1, 1]


def test_call_diverging_on_a_read_value_runs_ordered_ops_once() -> None:
    flags = [True, True, False, False, True]

    @trace
    def f(x: Tensor, flag: Tensor) -> Tensor:
        send(x)  # nobody keeps it
        first = send(x + 1)
        if flag.item():
            send(x + 2)
            y = send(x + 3)
        else:
            y = send(x + 4)
            send(x + 5)
        return first + y + send(x + 6)

    for flag in flags:
        LOG.clear()
        f(mgb.tensor([10.0]), mgb.tensor(flag))
        assert ([10, 11, 12, 13, 16] if flag else [10, 11, 14, 15, 16]) == LOG


def test_call_diverging_on_a_free_variable_runs_ordered_ops_once() -> None:
    state = {"more": False}

    @trace
    def f(x: Tensor) -> Tensor:
        send(x)
        y = send(x + 1)
        if state["more"]:
            y = y * 2
            send(y)
        return send(y + 2)

    for more in (False, False, True, True, False):
        state["more"] = more
        LOG.clear()
        f(mgb.tensor([10.0]))
        assert ([10, 11, 22, 24] if more else [10, 11, 13]) == LOG


@pytest.mark.parametrize("options", [{}, {"run_body": True}, {"symbolic": True}], ids=str)
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_ordered_ops_before_an_exception_are_run(place: int, options: dict[str, Any]) -> None:
    state = {"fails": False}

    def stop(here: int) -> None:
        if state["fails"] and here == place:
            raise KeyError(here)

    @trace(**options)
    def f(x: Tensor) -> Tensor:
        stop(0)
        send(x)
        stop(1)
        y = send(x + 1)
        stop(2)
        z = y + send(x + 2)
        stop(3)
        return z

    x = mgb.tensor([10.0])
    for fails in (False, True, False, True, False):
        state["fails"] = fails
        LOG.clear()
        if fails:
            with pytest.raises(KeyError):
                f(x)
        else:
            assert f(x).item() == 23
        assert [10, 11, 12][: place if fails else 3] == LOG


def test_ordered_op_read_after_an_exception_is_not_rerun() -> None:
    state: dict[str, Any] = {"fails": False}

    @trace
    def f(x: Tensor) -> Tensor:
        y = send(x) * 2
        state["kept"] = send(y)
        state["read"] = y.sum().item()
        z = send(state["kept"] + 1)
        if state["fails"]:
            raise KeyError
        return z

    x = mgb.tensor([10.0])
    for fails in (False, False, True, False):
        state["fails"] = fails
        LOG.clear()
        if fails:
            with pytest.raises(KeyError):
                f(x)
            assert state["kept"].item() == 20
        else:
            f(x)
        assert LOG == [10, 20, 21]


def test_deferred_operands_are_computed_before_ordered_ops() -> None:
    expected = []
    for _ in range(3):
        with auto():
            x = mgb.tensor([1.0])
            y = x + 1
            send(y)
            send(x)
            z = send(y * 2) + send(y * 3)
            del y
            assert z.item() == 10
        expected += [2, 1, 4, 6]
    assert expected == LOG


def test_partial_trace_runs_forward_and_backward_ops_in_order() -> None:
    @partial_trace
    def part(x: Tensor) -> Tensor:
        send(x * 0 + 5)
        return send(send(x * 2) * 3)

    for _ in range(3):
        LOG.clear()
        x = mgb.tensor([1.0])
        with GradManager().attach(x) as gm:
            y = part(x)
            gm.backward(y.sum())
        assert LOG == [5, 2, 6, 10, 300]
        assert x.grad.item() == 600


@pytest.mark.parametrize("wide", [False, True])
def test_ordered_ops_keep_recorded_order_for_any_dependencies(wide: bool) -> None:
    """Every way in which three of them read each other's results, or none."""
    for wiring in itertools.product((False, True), repeat=3):

        def body(x: Tensor, wiring: tuple[bool, ...] = wiring) -> list[Tensor]:
            a = send(x * 2)
            b = send((a if wiring[0] else x) * 3)
            c = send((a if wiring[1] else b if wiring[2] else x) * 5)
            return [c, mgb.functional.exp(b), a] if wide else [c]

        LOG.clear()
        body(mgb.tensor([1.0]))
        expected = list(LOG)
        traced = trace(body)
        for _ in range(2):
            LOG.clear()
            traced(mgb.tensor([1.0]))
            assert expected == LOG
