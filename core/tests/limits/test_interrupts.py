"""An exception at any moment of a call leaves each state as before it or as after it, and nothing open.

``pytest -m slow core/tests/test_interrupts.py`` raises at every line, and sends 2,000 signals to each step.
"""

from __future__ import annotations

import signal
import time
import weakref
from contextlib import suppress

import numpy as np
import pytest
from interrupting import MODES, OPTIMIZERS, Judge, at_line, by_signal, training, without_memory
from mgb import Parameter, Tensor, jit
from mgb.errors import AutoInterruptedError

STEPS = [(mode, optimizer) for mode in MODES for optimizer in OPTIMIZERS]

#: Whole steps run on the default backend too: the one they are named after may be missing.
_JUDGED = {"whole": "cpu_llvm"}

IDS = [f"{mode}-{optimizer}" for mode, optimizer in STEPS]


def _raise_at_lines(mode, optimizer, error, stride):
    step = training(mode, optimizer, backend="eager")
    judge = Judge(step)
    before, after = judge.expected()
    place = 1
    while True:
        try:
            if not at_line(place, error, step.step):
                return place
        except error as raised:
            assert type(raised) is error
        judge.check(before, after, f"line {place}")
        step.set(before)
        place += stride


@pytest.mark.parametrize(("mode", "optimizer"), STEPS, ids=IDS)
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_exception_at_sampled_lines_leaves_state_consistent(mode, optimizer, error):
    assert _raise_at_lines(mode, optimizer, error, 199) > 100


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "optimizer"), STEPS, ids=IDS)
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_exception_at_every_line_leaves_state_consistent(mode, optimizer, error):
    assert _raise_at_lines(mode, optimizer, error, 1) > 100


def _raise_in_few_ops(mode, stride):
    weight, x = Parameter(np.zeros(4, np.float32)), Tensor(np.ones(4, np.float32))

    def add(x):
        weight[...] = weight + x
        return weight * 2

    f = MODES[mode](add, backend="eager")
    for _ in range(3):
        f(x)
    place = 1
    while True:
        before = weight.numpy().copy()
        try:
            if not at_line(place, KeyboardInterrupt, lambda: f(x)):
                return place
        except KeyboardInterrupt:
            pass
        assert np.unique(weight.numpy() - before) in (0, 1), place
        assert (f(x).numpy() == 2 * weight.numpy()).all(), place
        place += stride


_CLOSURES = [mode for mode in MODES if mode != "whole"]  # there the weight would be an argument


@pytest.mark.parametrize("mode", _CLOSURES)
def test_exception_at_sampled_lines_of_a_short_call(mode):
    assert _raise_in_few_ops(mode, 7) > 20


@pytest.mark.slow
@pytest.mark.parametrize("mode", _CLOSURES)
def test_exception_at_every_line_of_a_short_call(mode):
    assert _raise_in_few_ops(mode, 1) > 20


def _signals(mode, optimizer, count):
    step = training(mode, optimizer, _JUDGED.get(mode), width=64)
    judge = Judge(step)
    start = time.perf_counter()
    before, after = judge.expected()
    longest = 3 * (time.perf_counter() - start)  # some come when the call is over
    new = 0
    for number in range(count):
        with pytest.raises(KeyboardInterrupt):
            by_signal(longest, step.step)
        new += judge.check(before, after, f"signal {number}") > 0
        step.set(before)
    return new


@pytest.mark.parametrize(("mode", "optimizer"), STEPS, ids=IDS)
def test_signals_at_random_times_leave_state_consistent(mode, optimizer):
    _signals(mode, optimizer, 10)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "optimizer"), STEPS, ids=IDS)
def test_two_thousand_signals_leave_state_consistent(mode, optimizer):
    assert 0 < _signals(mode, optimizer, 2000) < 2000


@pytest.mark.parametrize(("mode", "optimizer"), STEPS, ids=IDS)
def test_allocation_failure_at_each_request_leaves_state_consistent(mode, optimizer):
    step = training(mode, optimizer, _JUDGED.get(mode), width=256)
    judge = Judge(step)
    before, after = judge.expected()
    place = 0
    while True:
        place += 1
        try:
            if not without_memory(place, step.step):
                break
        except MemoryError as raised:
            assert type(raised) is MemoryError
        judge.check(before, after, f"request {place}")
        step.set(before)
    assert place > 1


def _signals_while(add, weight, count):
    """Signals at random moments of `add`, which adds 1 to each element of `weight`."""
    start = time.perf_counter()
    add()
    longest = time.perf_counter() - start
    for _ in range(count):
        before = weight.numpy()[:1].copy()
        with pytest.raises(KeyboardInterrupt):
            by_signal(2 * longest, add)
        assert np.unique(weight.numpy() - before) in (0, 1)


@pytest.mark.parametrize("options", [{}, {"symbolic": True}, {"run_body": True}])
def test_signals_during_an_in_place_update_kernel(options):
    size = 1 << 20
    weight, x = Parameter(np.zeros(size, np.float32)), Tensor(np.ones(size, np.float32))

    @jit.trace(**options)
    def add(x):
        weight[...] = weight + x
        return weight.sum()

    for _ in range(3):
        add(x)
    _signals_while(lambda: add(x), weight, 30)


def test_updates_before_an_error_in_the_body_persist():
    weight, x = Parameter(np.zeros(4, np.float32)), Tensor(np.ones(4, np.float32))

    @jit.trace
    def add(x, fails):
        weight[...] = weight + x
        if fails:
            raise ValueError("of the body")
        return weight.sum()

    for _ in range(2):
        add(x, False)
    with pytest.raises(ValueError, match="of the body"):
        add(x, True)
    assert (weight.numpy() == 3).all()  # as in eager code


def test_interrupted_call_restores_the_previous_gradient():
    weight, x = Parameter(np.zeros(4, np.float32)), Tensor(np.ones(4, np.float32))

    @jit.trace(run_body=True)
    def give(x, stops):
        weight.grad = x * 2
        if stops:
            raise KeyboardInterrupt
        return x + 1

    for _ in range(2):
        give(x, False)
    grad = weight.grad = Tensor(np.full(4, 7, np.float32))
    with pytest.raises(KeyboardInterrupt):
        give(x, True)
    assert weight.grad is grad


@pytest.mark.parametrize("run_body", [None, True])
def test_value_of_an_interrupted_call_is_computed_on_first_use(run_body):
    x, kept = Tensor(np.ones(4, np.float32)), []

    @jit.trace(run_body=run_body)
    def f(x, stops):
        y = x * 2
        kept[:] = [y]
        if stops:
            raise KeyboardInterrupt
        return y + 1

    for _ in range(2):
        f(x, False)
    with pytest.raises(KeyboardInterrupt):
        f(x, True)
    np.testing.assert_array_equal(kept[0].numpy(), 2 * x.numpy())


def test_signals_during_deferred_computation_leave_state_consistent():
    weight, x = Parameter(np.zeros(1 << 18, np.float32)), Tensor(np.ones(1 << 18, np.float32))

    def add():
        weight[...] = weight + x
        return weight.sum().item()

    with jit.auto(after=1):
        for _ in range(4):
            add()
        _signals_while(add, weight, 20)


def test_signal_in_a_finalizer_counts_as_an_interrupt():
    def end_an_object():
        signal.setitimer(signal.ITIMER_REAL, 0)
        value = Tensor([1.0])
        weakref.finalize(value, signal.raise_signal, signal.SIGALRM)
        del value

    with pytest.raises(KeyboardInterrupt):
        by_signal(1.0, end_an_object)


def test_failed_deferred_program_applies_its_update_at_most_once():
    weight, x = Parameter(np.zeros(1 << 18, np.float32)), Tensor(np.ones(1 << 18, np.float32))

    def add():
        weight[...] = weight + x
        return weight.sum().item()

    with jit.auto(after=1):
        for _ in range(4):
            add()
        for place in range(1, 6):
            before = weight.numpy()[:1].copy()
            with suppress(MemoryError, AutoInterruptedError):
                without_memory(place, add)
            assert np.unique(weight.numpy() - before) in (0, 1), place


def _raise_in_first_calls(mode, stride):
    """Raise at lines of the calls that record and compile; what is traced must serve afterwards."""
    place = 1
    while True:
        weight, x = Parameter(np.zeros(4, np.float32)), Tensor(np.ones(4, np.float32))

        def add(x, weight=weight):
            weight[...] = weight + x * 3
            return weight * 2

        f = MODES[mode](add, backend="eager")
        calls = 0

        def first_calls(f=f, x=x):
            nonlocal calls
            for _ in range(3):
                f(x)
                calls += 1

        reached = True
        with suppress(KeyboardInterrupt):
            reached = at_line(place, KeyboardInterrupt, first_calls)
        done = weight.numpy()[0] / 3
        assert (weight.numpy() == 3 * done).all() and done in (calls, calls + 1), place
        for _ in range(3):
            done += 1
            assert (f(x).numpy() == 6 * done).all(), place
        if not reached:
            return place
        place += stride


@pytest.mark.parametrize("mode", _CLOSURES)
def test_exception_at_sampled_lines_of_recording_calls(mode):
    assert _raise_in_first_calls(mode, 499) > 1000


@pytest.mark.slow
@pytest.mark.parametrize("mode", _CLOSURES)
def test_exception_at_many_lines_of_recording_calls(mode):
    assert _raise_in_first_calls(mode, 7) > 1000
