"""An interrupt, such as Ctrl-C, at any line of a GradManager leaves nothing open."""

from __future__ import annotations

from pathlib import Path

import pytest
from interrupting import at_line
from mgb.autodiff import Function, GradManager
from mgb.autodiff.tape import any_open, open_tapes
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
