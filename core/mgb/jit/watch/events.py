"""Call events of this thread: code that starts and functions in C, while a listener is registered."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from types import CodeType, FrameType, MethodDescriptorType, WrapperDescriptorType
from typing import Any, ParamSpec, Protocol, TypeVar

from ...runtime import forking

Given = ParamSpec("Given")
Value = TypeVar("Value")
_lock = forking.lock()
_UNBOUND = (MethodDescriptorType, WrapperDescriptorType)
_TOOL = "mgb"
_TOOLS = (4, 3, 5)  # the numbers that are nobody's
_listening: set[int] = set()


class Listener(Protocol):
    """Gets notified of what a thread does."""

    def starts(self, frame: FrameType) -> None:
        """Note that a Python function starts, or a generator resumes."""

    def calls(self, function: Any, frame: FrameType) -> None:
        """Note that `frame` calls a function in C."""


class _Here(threading.local):
    events: Events | None = None


_here = _Here()


class Events:
    """Tells a listener of what this thread does, from `begin` to `end`."""

    def __init__(self, listener: Listener, quiet: Mapping[int, dict[str, Any]] | None = None) -> None:
        self._listener: Listener | None = listener
        #: By the ids of code objects whose starts are not reported: their globals.
        self._quiet = {} if quiet is None else quiet
        self._busy = self._is_on = False
        #: Has a report failed, as by a signal? The body may handle that; Python 3.11 reports nothing more.
        self.is_lost = False
        self._callback = self._profiled  # which CPython calls without a reference of its own

    def begin(self) -> str | None:
        """Begin; a text says why it cannot be."""
        monitoring = getattr(sys, "monitoring", None)
        if monitoring is not None:
            with _lock:
                trouble = _begin_monitoring(monitoring, id(self))
            _here.events = self if trouble is None else None
            return trouble
        if sys.getprofile() is not None:
            return "a profiler is active"
        self._is_on = True
        sys.setprofile(self._callback)
        return None

    def end(self) -> None:
        """Tell nobody any more."""
        monitoring = getattr(sys, "monitoring", None)
        if monitoring is not None:
            if id(self) in _listening:
                with _lock:
                    _end_monitoring(monitoring, id(self))
            if _here.events is self:
                _here.events = None
        elif sys.getprofile() == self._callback:
            self._is_on = False
            sys.setprofile(None)
        elif self._is_on:
            self._is_on, self.is_lost = False, True

    def forget(self) -> None:
        """Hold nothing; asked where it has ended."""
        self._listener = None

    def without(self, function: Callable[Given, Value], *args: Given.args, **kwargs: Given.kwargs) -> Value:
        """Call `function` without reporting its events."""
        busy, self._busy = self._busy, True
        paused = self._is_on and sys.getprofile() is self._callback
        if paused:
            sys.setprofile(None)
        try:
            return function(*args, **kwargs)
        finally:
            self._busy = busy
            if paused and sys.getprofile() is None:
                sys.setprofile(self._callback)

    def _profiled(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_call":
            if (listener := self._listener) is not None and frame.f_code.co_filename != __file__:
                listener.calls(arg, frame)
        elif event == "call" and self._quiet.get(id(frame.f_code)) is not frame.f_globals:
            self.report_start(frame)

    # Python reports nothing of what runs while it reports; each call that this takes counts for all events.

    def report_start(self, frame: FrameType) -> None:
        """Report that a function starts."""
        if self._listener is None or self._busy or frame.f_code.co_filename == __file__:
            return
        if self._quiet.get(id(frame.f_code)) is not frame.f_globals:
            try:
                self._listener.starts(frame)
            except BaseException:
                self.is_lost = True
                raise

    def report_call(self, function: Any, frame: FrameType) -> None:
        """Report that a function in C is called."""
        if self._listener is not None and not self._busy and frame.f_code.co_filename != __file__:
            try:
                self._listener.calls(function, frame)
            except BaseException:
                self.is_lost = True
                raise


def _started(code: CodeType, offset: int) -> None:
    del code, offset
    if _here is not None and _here.events is not None:  # None as Python ends
        _here.events.report_start(sys._getframe(1))


def _called(code: CodeType, offset: int, function: Any, first: Any) -> None:
    del code, offset
    if _here is not None and _here.events is not None:
        _here.events.report_call(_bound(function, first), sys._getframe(1))


def _bound(function: Any, first: Any) -> Any:
    """Return a method in C with what it is called of, as a profiler is given it."""
    missing: Any = sys.monitoring.MISSING  # type: ignore[attr-defined]
    if (
        isinstance(function, _UNBOUND)
        and first is not missing
        and issubclass(type(first), function.__objclass__)
    ):
        if first is None:  # which a descriptor takes for no object
            return getattr(None, function.__name__)
        return function.__get__(first, type(first))  # without a class CPython 3.12 crashes for some
    return function


def _begin_monitoring(monitoring: Any, who: int) -> str | None:
    """Have one tool for all that listen; a text says why there is none."""
    _listening.add(who)
    tools = [number for number in _TOOLS if monitoring.get_tool(number) in (_TOOL, None)]
    if not tools:
        return "all tools of sys.monitoring are taken"
    ours = next((number for number in tools if monitoring.get_tool(number) == _TOOL), tools[0])
    events = monitoring.events
    if monitoring.get_tool(ours) is None:
        monitoring.use_tool_id(ours, _TOOL)
    if monitoring.get_events(ours) != events.PY_START | events.CALL:
        monitoring.register_callback(ours, events.PY_START, _started)
        monitoring.register_callback(ours, events.CALL, _called)
        monitoring.set_events(ours, events.PY_START | events.CALL)
    return None


def _end_monitoring(monitoring: Any, who: int) -> None:
    _listening.discard(who)
    for number in _TOOLS if not _listening else ():
        if monitoring.get_tool(number) == _TOOL:
            monitoring.set_events(number, 0)
            for event in (monitoring.events.PY_START, monitoring.events.CALL):
                monitoring.register_callback(number, event, None)
            monitoring.free_tool_id(number)
