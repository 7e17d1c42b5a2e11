"""What debuggers, profilers, tracebacks and the garbage collector see of traced functions."""

from __future__ import annotations

import cProfile
import gc
import io
import pdb
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from mgb import tensor
from mgb.jit import trace
from outside import reasons, runs

pytestmark = pytest.mark.usefixtures("eager_backend")

HERE = str(Path(__file__))


def watched(x: Any) -> Any:
    y = x * 2.0
    return y + 1.0


def lines_seen(function: Callable[[], object]) -> list[int]:
    seen: list[int] = []

    def tracer(frame: Any, event: str, argument: object) -> Any:
        if frame.f_code.co_filename == HERE and frame.f_code.co_name == "watched":
            if event == "line":
                seen.append(frame.f_lineno - watched.__code__.co_firstlineno)
            return tracer
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        function()
    finally:
        sys.settrace(before)
    return seen


def test_debugger_sees_body_lines_only_while_recording() -> None:
    traced = trace(watched)
    assert lines_seen(lambda: traced(tensor(1.0))) == [1, 2]
    assert lines_seen(lambda: traced(tensor(1.0))) == [] and runs(traced) == 1
    always = trace(watched, run_body=True)
    assert [lines_seen(lambda: always(tensor(1.0))) for _ in range(2)] == [[1, 2]] * 2


def test_profiler_sees_what_runs() -> None:
    """Where CPython has one place for a profiler, the body runs as long as that is taken."""
    traced, profiler = trace(watched), cProfile.Profile()
    profiler.enable()
    try:
        for _ in range(2):
            assert traced(tensor(1.0)).item() == 3.0
    finally:
        profiler.disable()
    assert runs(traced) == (1 if hasattr(sys, "monitoring") else 2)


@pytest.mark.skipif(hasattr(sys, "monitoring"), reason="sys.monitoring has places for both and for mgb")
def test_body_runs_under_both_debugger_and_profiler() -> None:
    traced, before = trace(watched), (sys.gettrace(), sys.getprofile())
    sys.settrace(lambda *_: None)
    sys.setprofile(lambda *_: None)
    try:
        results = [traced(tensor(1.0)).item() for _ in range(3)]
    finally:
        sys.setprofile(before[1])
        sys.settrace(before[0])
    assert results == [3.0] * 3 and runs(traced) == 3 and "a profiler is active" in reasons(traced)


def test_breakpoint_stops_at_the_next_line_of_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    typed, shown = io.StringIO("p y.item()\nnext\np z.item()\ncontinue\n" * 3), io.StringIO()

    def stop() -> None:
        pdb.Pdb(stdin=typed, stdout=shown, nosigint=True, readrc=False).set_trace(sys._getframe(1))

    monkeypatch.setattr(sys, "breakpointhook", stop)

    @trace
    def stopped(x: Any) -> Any:
        y = x * 2.0
        breakpoint()
        z = y + 1.0
        return z

    before = sys.gettrace()
    try:
        assert [stopped(tensor(1.0)).item() for _ in range(3)] == [3.0] * 3
    finally:
        sys.settrace(before)
    lines = shown.getvalue().splitlines()
    stops = [line for line in lines if line.startswith("-> ")]
    values = [line.removeprefix("(Pdb) ") for line in lines if line.endswith(".0") and "->" not in line]
    if sys.version_info < (3, 13):
        assert stops == ["-> z = y + 1.0", "-> return z"] * 3 and values == ["2.0", "3.0"] * 3
    else:  # where it stops at its own line, or the next one while mgb is told of calls
        assert stops[:2] in (["-> breakpoint()", "-> z = y + 1.0"], ["-> z = y + 1.0", "-> return z"])
        assert stops[2:] == ["-> breakpoint()", "-> z = y + 1.0"] * 2 and values.count("2.0") == 3


class Setting:
    """It has a method that is called as a debugger is."""

    trace = 2.0

    def set_trace(self, *values: float) -> float:
        self.trace = self.trace or values[0]
        return self.trace


def test_function_called_as_a_debugger_is_watched() -> None:
    setting, breakpoint = Setting(), lambda y: y * setting.trace

    @trace
    def f(x: Any) -> Any:
        return breakpoint(x + setting.set_trace(5.0))

    assert [f(tensor(1.0)).item() for _ in range(3)] == [6.0] * 3
    assert runs(f) == 2, reasons(f)  # the first one makes an attribute
    setting.trace = 3.0
    assert f(tensor(1.0)).item() == 12.0
    setting.trace = 0.0
    assert [f(tensor(1.0)).item() for _ in range(2)] == [30.0] * 2


def test_what_is_called_as_a_debugger_is_evaluated_once() -> None:
    asked: list[int] = []

    class Thing:
        @property
        def set_trace(self) -> Callable[[int], int]:
            asked.append(1)
            return lambda number: number + len(asked)

    thing = Thing()

    @trace(run_body=True)
    def f(x: Any) -> Any:
        return x * thing.set_trace(*[thing.set_trace(1)])

    assert f(tensor(1.0)).item() == 1 + 2 + 2
    assert len(asked) == 2


class Quiet(pdb.Pdb):
    """It stops, and goes on."""

    stops: ClassVar[list[str]] = []

    def interaction(self, frame: Any, *_: Any) -> None:
        self.stops.append(frame.f_code.co_name)
        self.set_continue()


def set_trace() -> None:
    Quiet().set_trace(sys._getframe(1))


@pytest.mark.parametrize("where", ["function", "method", "pdb"])
def test_debuggers_of_any_make_stop_in_the_body(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quiet, "stops", [])
    monkeypatch.setattr(pdb, "set_trace", lambda: Quiet().set_trace(sys._getframe(1)))

    @trace
    def by_function(x: Any) -> Any:
        set_trace()
        return x * 2.0

    @trace
    def by_method(x: Any) -> Any:
        Quiet().set_trace()
        return x * 2.0

    @trace
    def by_pdb(x: Any) -> Any:
        pdb.set_trace()
        return x * 2.0

    stopped = {"function": by_function, "method": by_method, "pdb": by_pdb}[where]
    before = sys.gettrace()
    try:
        assert [stopped(tensor(1.0)).item() for _ in range(3)] == [2.0] * 3
    finally:
        sys.settrace(before)
    assert Quiet.stops == [f"by_{where}"] * 3
    assert "starts a debugger" in reasons(stopped)


def raises(x: Any) -> Any:
    y = x * 2.0
    raise ValueError(f"{y.shape}")


def test_traceback_names_the_line_of_the_body() -> None:
    with pytest.raises(ValueError) as caught:
        trace(raises)(tensor(1.0))
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.filename, last.name, last.lineno) == (HERE, "raises", raises.__code__.co_firstlineno + 2)
    assert last.line == 'raise ValueError(f"{y.shape}")'


def test_gc_callbacks_are_not_part_of_the_body() -> None:
    told: list[str] = []

    def callback(phase: str, information: dict[str, int]) -> None:
        told.append(phase)

    @trace
    def f(x: Any) -> Any:
        made = [[i] for i in range(5000)]
        return x * len(made)

    gc.callbacks.append(callback)
    try:
        for _ in range(3):
            f(tensor(1.0))
    finally:
        gc.callbacks.remove(callback)
    assert told and runs(f) == 1
