"""What a signal handler does while a call is recorded or replayed is no part of the body."""

import gc
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest
from interrupting import MODES, training
from mgb import Tensor, jit, tensor

Do = Callable[[], Any]


@contextmanager
def handler(do: Do) -> Iterator[list[Any]]:
    """What `do` has given at each SIGUSR1, or the error that it raised."""
    found: list[Any] = []

    def handle(_number: int, _frame: FrameType | None) -> None:
        try:
            found.append(do())
        except Exception as error:
            found.append(error)

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        yield found
        assert signal.getsignal(signal.SIGUSR1) is handle
    finally:
        signal.signal(signal.SIGUSR1, before)


def signalled(x: Tensor) -> Tensor:
    """Three ops, with a signal between them."""
    y = x * 2.0
    signal.raise_signal(signal.SIGUSR1)
    return (y + 1.0).sum()


MODES_OF_TRACE = {
    "plain": jit.trace,
    "symbolic": partial(jit.trace, symbolic=True),
    "run_body": partial(jit.trace, run_body=True),
    "symbolic, run_body": partial(jit.trace, symbolic=True, run_body=True),
    "auto": jit.auto(),
}
OTHER = np.arange(4, dtype=np.float32)


def _saves(path: Any, x: Tensor) -> Any:
    mgb.save({"x": x}, path)
    return mgb.load(path)["x"].numpy()


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """CPython 3.11 crashes where a signal comes while `ContextVar.set` collects and Python code runs."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("mode", MODES_OF_TRACE)
@pytest.mark.parametrize("what", ["nothing", "reads", "computes", "saves", "the same op", "differentiates"])
def test_a_handler_is_no_part_of_the_body(mode: str, what: str, tmp_path: Any) -> None:
    x, other = tensor(OTHER), tensor(OTHER + 1)
    do: dict[str, tuple[Do, Any]] = {
        "nothing": (lambda: None, None),
        "reads": (lambda: x.numpy().copy(), OTHER),
        "computes": (lambda: (F.exp(other) * x).numpy(), np.exp(OTHER + 1) * OTHER),
        "saves": (lambda: _saves(tmp_path / "x", x), OTHER),
        "the same op": (lambda: (x * 2.0).numpy(), OTHER * 2),
        "differentiates": (lambda: mgb.grad(lambda t: (t * t).sum())(other).numpy(), (OTHER + 1) * 2),
    }
    traced = MODES_OF_TRACE[mode](signalled)
    with handler(do[what][0]) as found:
        for _ in range(5):
            assert traced(x).item() == 2 * OTHER.sum() + 4
    assert found
    for value in found:
        if isinstance(value, Exception):
            raise value
        if value is not None:
            np.testing.assert_allclose(value, do[what][1], rtol=1e-6)


@pytest.mark.parametrize("mode", ["run_body=False", "partial", "whole"])
def test_a_handler_does_not_make_a_body_impure(mode: str) -> None:
    """The signals come while ops are recorded: a body that raises one would have to run at each call."""
    decorate = partial({"run_body=False": partial(jit.trace, run_body=False), **MODES}[mode], backend="EAGER")
    other = tensor(OTHER)
    with handler(lambda: (other * 2.0 + 1.0).numpy()) as found:
        before = signal.signal(signal.SIGALRM, signal.getsignal(signal.SIGUSR1))
        try:
            for n in range(12):
                traced = decorate(lambda x: sum((x * float(i) for i in range(240)), x))
                signal.setitimer(signal.ITIMER_REAL, 5e-4 * (n + 1), 5e-4)
                assert traced(tensor(1.0)).item() == 28681
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    assert len(found) > 20
    for value in found:
        np.testing.assert_array_equal(value, OTHER * 2 + 1)


class _State:
    kept: Tensor | None = None


@pytest.mark.parametrize("mode", ["plain", "symbolic", "run_body", "symbolic, run_body"])
def test_a_handler_reads_tensors_of_the_body_as_eager_code_does(mode: str) -> None:
    state, p = _State(), tensor(OTHER)

    def body(x: Tensor) -> Tensor:
        state.kept = x * 2.0
        p[...] = x + 1.0
        signal.raise_signal(signal.SIGUSR1)
        y = state.kept + p
        state.kept = None
        return y

    traced = MODES_OF_TRACE[mode](body)
    with handler(lambda: (state.kept.numpy().copy(), p.numpy().copy())) as found:  # type: ignore[union-attr]
        for n in range(5):
            x = OTHER + n
            np.testing.assert_array_equal(traced(tensor(x)).numpy(), 3 * x + 1)
            kept, held = found[-1]
            np.testing.assert_array_equal(kept, 2 * x)
            np.testing.assert_array_equal(held, x + 1)
            np.testing.assert_array_equal(p.numpy(), x + 1)


def test_a_handler_may_call_the_function_that_it_interrupts() -> None:
    x, depth = tensor(OTHER), 0

    @jit.trace(run_body=True)
    def f(x: Tensor) -> Tensor:
        y = x * 2.0
        if depth == 0:
            signal.raise_signal(signal.SIGUSR1)
        return y + 1.0

    def again() -> Any:
        nonlocal depth
        depth += 1
        value = f(x).numpy()
        depth -= 1
        return value

    with handler(again) as found:
        for _ in range(4):
            np.testing.assert_array_equal(f(x).numpy(), OTHER * 2 + 1)
    for value in found:
        np.testing.assert_array_equal(value, OTHER * 2 + 1)


def test_an_error_of_a_handler_ends_the_call() -> None:
    class Stop(Exception):
        pass

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Stop

    traced = jit.trace(run_body=True)(signalled)
    before = signal.signal(signal.SIGUSR1, stop)
    try:
        for _ in range(3):
            with pytest.raises(Stop):
                traced(tensor(OTHER))
            assert signal.getsignal(signal.SIGUSR1) is stop
    finally:
        signal.signal(signal.SIGUSR1, before)
    with handler(lambda: None):
        assert traced(tensor(OTHER)).item() == 2 * OTHER.sum() + 4


def test_a_handler_that_the_body_installs_stays() -> None:
    def mine(_number: int, _frame: FrameType | None) -> None: ...

    before = signal.getsignal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, lambda *_: None)

    @jit.trace
    def f(x: Tensor) -> Tensor:
        signal.signal(signal.SIGUSR1, mine)
        return x + 1.0

    try:
        for _ in range(3):
            f(tensor(OTHER))
            assert signal.getsignal(signal.SIGUSR1) is mine
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("mode", MODES)
def test_checkpoints_in_handlers_while_a_step_runs(mode: str) -> None:
    """Whatever moment the signal has: values of before or after, and the step ends as without it."""
    trained, expected = training(mode, "adam", "EAGER"), training(mode, "adam", "EAGER")
    read = lambda: [t.numpy().copy() for t in trained.states()]  # noqa: E731
    with handler(read) as found:
        for n in range(60):
            before = signal.signal(signal.SIGALRM, signal.getsignal(signal.SIGUSR1))
            signal.setitimer(signal.ITIMER_REAL, 1e-5 * (n + 1))
            old = expected.values()
            trained.step()
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            expected.step()
            for now, then in zip(trained.values(), expected.values(), strict=True):
                np.testing.assert_array_equal(now, then)
            for states in found:
                assert not isinstance(states, Exception), states
                for value, one, other in zip(states, old, expected.values(), strict=True):
                    is_new = np.allclose(value, other, rtol=1e-5, atol=1e-7)
                    assert is_new or np.allclose(value, one, rtol=1e-5, atol=1e-7)
            found.clear()


@pytest.mark.parametrize("options", [{}, {"run_body": True}])
@pytest.mark.parametrize("what", ["computes", "reads"])
def test_a_handler_runs_between_any_two_lines_of_a_deferred_op(what: str, options: dict[str, Any]) -> None:
    kept: deque[Tensor] = deque(maxlen=1)
    one = tensor(OTHER)

    def body(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        first = a + 1
        kept.append(first)
        second = b * 2
        return first, second, first * 3, second - 1

    def work() -> Any:
        return (one * 2).sum().item() if what == "computes" else kept[0].numpy().copy() if kept else None

    traced = jit.trace(body, **options)
    a, b = tensor(np.ones(4, np.float32)), tensor(np.full((2, 3), 5, np.float32))
    for _ in range(9):  # after which a body that writes is not recorded again
        traced(a, b)
    place, reached = 1, True
    with handler(work):
        while reached:
            results, reached = _signalled_at(place, lambda: traced(a, b))
            for result, expected in zip(results, body(a, b), strict=True):
                np.testing.assert_array_equal(result.numpy(), expected.numpy(), str(place))
            place += 3
    assert place > 100


def _signalled_at(place: int, call: Callable[[], Any]) -> tuple[Any, bool]:
    """What `call` gives when a signal comes at a line of what defers ops, and whether there are so many."""
    count = 0

    def local(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        if event == "line" and "deferred" in frame.f_code.co_filename:
            count += 1
            if count == place:
                signal.raise_signal(signal.SIGUSR1)
        return local

    before = sys.gettrace()
    sys.settrace(local)
    try:
        return call(), count >= place
    finally:
        sys.settrace(before)


class Comparing:
    """A handler that is equal only to what has a number, too."""

    number = 0

    def __eq__(self, other: Any) -> bool:
        return bool(self.number == other.number)

    __hash__ = object.__hash__

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        self.number += float(tensor(1.0) + 1.0)  # type: ignore[assignment]


@pytest.mark.parametrize("mode", list(MODES_OF_TRACE))
def test_a_handler_that_compares_itself(mode: str) -> None:
    function, x, handle = MODES_OF_TRACE[mode](signalled), tensor(OTHER), Comparing()
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        expected = function(x).numpy()
        signal.signal(signal.SIGUSR1, handle)
        for _ in range(3):
            np.testing.assert_array_equal(function(x).numpy(), expected)
        assert handle.number == 6
        assert signal.getsignal(signal.SIGUSR1) is handle
    finally:
        signal.signal(signal.SIGUSR1, before)
