"""The work that a function does, counted so that a busy machine does not change it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls_of(function: Callable[[], Any]) -> int:
    """Return the number of calls, of Python and C functions, that `function` makes."""
    count = 0

    def profile(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()  # which has to be free on Python 3.11 for a body to be watched
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


def python_calls_of(function: Callable[[], Any]) -> int:
    """Return the number of calls of Python functions that `function` makes, while a body may be watched."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count
