"""An interrupt, such as Ctrl-C, at any line of a GradManager leaves nothing open."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest
from interrupting import at_line
from mgb.autodiff import Function, GradManager
from mgb.autodiff.tape import any_open, open_tapes
from mgb.errors import TapeError
from mgb.tensor import Tensor

AUTODIFF = str(Path("mgb") / "autodiff")


def _interrupted_at(place: int, function) -> bool:
    """Call `function` with an interrupt at the line number `place` of the package; was there such a line?"""
    try:
        at_line(place, KeyboardInterrupt, function, lambda frame: AUTODIFF in frame.f_code.co_filename)
    except KeyboardInterrupt:
        return True
    return False


def _step_of(managers, x):
    def step():
        with managers:
            y = x * x
            (managers if isinstance(managers, GradManager) else managers._managers[0]).backward(y)

    return step


def _nested_step_of(outer, inner, x):
    def step():
        with outer:
            with inner:
                inner.backward(x * x * x)
            outer.backward(x.grad)

    return step


@pytest.mark.parametrize("kind", ["one", "group", "nested", "function", "by hand"])
def test_interrupt_at_any_line_leaves_no_tape_open(kind):
    x = Tensor([3.0])
    one, two = GradManager().attach(x), GradManager().attach(x)
    steps = {
        "one": _step_of(one, x),
        "group": _step_of(one | two, x),
        "nested": _nested_step_of(one, two, x),
        "function": _function_step_of(one, x),
        "by hand": _step_by_hand(one, x),
    }
    place, seen = 0, []
    while True:
        place += 1
        if not _interrupted_at(place, steps[kind]):
            break
        recording = [gm for gm in (one, two) if gm._records()]
        seen += recording
        for gm in recording:  # as a program does that was interrupted before the first line of `__exit__`
            gm.release()
        assert not any_open() and not open_tapes()
        assert x._tape is None
        x.grad = None
        steps["one"]()
        assert x.grad.item() == 6
        x.grad = None
    assert place > 60
    # before its first line `__exit__` can do nothing yet; `backward` by hand has four lines that do nothing
    assert len(seen) <= {"one": 1, "group": 2, "nested": 3, "function": 1, "by hand": 4}[kind]


def _function_step_of(manager, x):
    class Square(Function):
        def forward(self, x):
            self.x = x
            return x * x

        def backward(self, dy):
            return 2 * self.x * dy

    def step():
        with manager:
            manager.backward(Square()(x))

    return step


def _step_by_hand(manager, x):
    def step():
        manager.record()
        manager.backward(x)

    return step


def test_tape_released_during_inner_backward_stays_closed():
    x = Tensor([3.0])
    outer = GradManager().attach(x)
    tapes = []

    def release(_tensor, grad):
        tapes.append(outer._tape)
        outer.release()
        return grad

    inner = GradManager().attach(x, release)
    with inner, outer:
        inner.backward(x * x)
    assert [tape.recording for tape in tapes] == [False]
    assert x.grad.item() == 6


class Interrupting:
    """Raises at each of the next `times` starts of a method that ends a recording."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self, frame, event, arg):
        closes = frame.f_code.co_name in ("__exit__", "release", "_release", "close")
        if event == "call" and closes and AUTODIFF in frame.f_code.co_filename and self.left:
            self.left -= 1
            raise KeyboardInterrupt
        return None


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="a `with` is not told from a call there")
@pytest.mark.parametrize("times", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", ["one", "group", "nested"])
def test_manager_records_again_after_interrupts_while_it_ends(kind, times):
    x = Tensor([3.0])
    one, two = GradManager().attach(x), GradManager().attach(x)
    managers = {"one": one, "group": one | two, "nested": one}[kind]
    step = _nested_step_of(one, two, x) if kind == "nested" else _step_of(managers, x)
    before = sys.gettrace()
    sys.settrace(Interrupting(times))
    try:
        with pytest.raises(KeyboardInterrupt):
            step()
    finally:
        sys.settrace(before)
    x.grad = None
    step()
    assert x.grad.item() == (27 + 18 if kind == "nested" else 6)  # x ** 3, and the gradient of 3 x ** 2
    for manager in (one, two):
        manager.release()
    assert not any_open() and not open_tapes()


def test_manager_that_records_is_not_opened_twice():
    x = Tensor([3.0])
    manager = GradManager().attach(x)
    with manager:
        for opened in (manager, manager | GradManager()):
            with pytest.raises(TapeError, match="already recording"), opened:
                pass
        manager.backward(x * x)
    assert x.grad.item() == 6
    stack = contextlib.ExitStack()
    (lambda: stack.enter_context(manager))()  # whose caller has ended
    with pytest.raises(TapeError, match="already recording"):
        manager.record()
    stack.close()
    manager.record()
    manager.release()
