"""A kernel that calls itself atomic leaves each result untouched or whole, wherever an exception ends it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

from .cases import of, require, samples
from .drive import Driver, guarded_copy

#: The most lines of Python in a call at which an exception is raised.
MOST = 400


class _Stopped(BaseException):
    pass


def _stopped_at(place: int, call: Callable[[], Any]) -> bool:
    """Make a call with an exception at line number `place` of its Python; was there such a line?"""
    count = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        if event == "line" and frame.f_code is not call.__code__:
            count += 1
            if count == place:
                sys.settrace(None)
                raise _Stopped
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except _Stopped:
        return True
    finally:
        sys.settrace(before)
    return False


class TestInterrupts:
    @pytest.mark.parametrize("shape", [(40,), (300, 700)])
    def test_interrupted_result_is_untouched_or_complete(
        self, driver: Driver, shape: tuple[int, ...]
    ) -> None:
        before = [samples("float32", shape, seed) for seed in (1, 2, 3)]
        graph = of(lambda p, m, g: (p - (m * 0.9 + g) * 0.1, m * 0.9 + g), *before)
        require(driver, graph)
        kernel = driver.compile(graph)
        if not kernel.atomic:
            pytest.skip("its kernels do not promise it, so none is given the memory of a parameter to update")
        after = driver.run(graph, before, over={0: 0, 1: 1})
        place, stopped = 0, True
        while stopped and place < MOST:
            place += 1
            p, m, g = (guarded_copy(a, driver.place)[1] for a in before)
            stopped = _stopped_at(place, lambda: kernel.run(p, m, g, out=(p, m)))  # noqa: B023
            for n, (array, old, new) in enumerate(zip((p, m), before, after)):
                now = driver.place.get(array)
                is_whole = np.array_equal(now, new) or (stopped and np.array_equal(now, old))
                assert is_whole, f"result {n} is neither untouched nor whole: line {place}"
