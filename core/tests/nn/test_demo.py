"""`mgb demo`: its ways take turns, and its report says when others had the cores."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from mgb.jit import trace
from mgb.tensor import Tensor
from mgb.tools import demo
from rich.console import Console


def test_ways_take_their_steps_in_turns() -> None:
    called: list[str] = []

    def noted(name: str) -> Callable[[demo.Step], demo.Step]:
        def wrap(step: demo.Step) -> demo.Step:
            def call(data: Tensor, label: Tensor) -> Tensor:
                called.append(name)
                return step(data, label)

            return call

        return wrap

    told: list[int] = []
    runs = demo.train([(n, noted(n)) for n in "abc"], 1, lambda place, loss: told.append(place))
    assert [run.name for run in runs] == ["a", "b", "c"]
    assert "".join(called[:9]) == "abcbcacab"
    assert ["abc"[place] for place in told] == called
    assert len(runs[0].losses) == len(runs[0].seconds) == len(called) / 3
    assert runs[0].losses == runs[1].losses == runs[2].losses


def _report(others: float) -> str:
    traced = trace(lambda x: x * 2.0)
    for _ in range(2):
        traced(demo.tensor([1.0]))
    slow = demo.Run("eager", [1.0] * 4, [9.0, 9.0, 4e-3, 6e-3], 1.0)
    quick = demo.Run("@trace", [1.0] * 4, [1e-4, 9.0, 5e-3, 2e-3], 1.0, step=traced)
    console: Any = Console(file=StringIO(), width=120)
    assert demo.report(console, [slow, quick], others, 0.9) == 0
    text: str = console.file.getvalue()
    return text


def test_report_has_the_fastest_step_after_the_first_two() -> None:
    text = _report(0.0)
    assert "4.00 ms" in text and "2.00 ms" in text and "2.00x" in text
    assert "busy" not in text


def test_report_says_that_the_machine_was_busy() -> None:
    assert "the machine was busy: other programs took 1.3 cores" in _report(1.3)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what others take")
def test_what_another_process_takes_is_counted() -> None:
    others = demo.Others()
    program = "import time\nend = time.perf_counter() + 60\nwhile time.perf_counter() < end: pass"
    child = subprocess.Popen([sys.executable, "-c", program])
    try:
        time.sleep(0.7)
        assert others.cores() > 0.2
    finally:
        child.kill()
        child.wait()
