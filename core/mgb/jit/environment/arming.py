"""Functions whose code is the one with hooks, for a time; and who else is called."""

from __future__ import annotations

import dis
import functools
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any, ParamSpec, TypeVar

from ... import forking
from .known import is_trusted

Instrument = Callable[[FunctionType], CodeType | str]
Given = ParamSpec("Given")
Value = TypeVar("Value")

_lock = forking.lock()

#: Where a function begins, and a generator that goes on.
_RESUME = dis.opmap["RESUME"]


def _alone(function: Callable[Given, Value]) -> Callable[Given, Value]:
    """Have one thread at a time do it.

    Nothing but its call stands under the lock, which so is free after an interrupt however the rest compiles.
    """

    @functools.wraps(function)
    def alone(*args: Given.args, **kwargs: Given.kwargs) -> Value:
        with _lock:
            return function(*args, **kwargs)

    return alone


#: By the id of a function: itself, its own code, that with hooks, and the ids of those who want it.
_armed: dict[int, tuple[FunctionType, CodeType, CodeType, set[int]]] = {}


@_alone
def arm(function: FunctionType, instrument: Instrument, holder: int) -> str | None:
    """Have the code with hooks run when `function` is called, until `disarm`; a text says why not."""
    known = _armed.get(id(function))
    if known is not None and function.__code__ is known[2]:
        known[3].add(holder)
        return None
    own = function.__code__
    made = instrument(function)
    if isinstance(made, str):
        return made
    _armed[id(function)] = function, own, made, {holder, *(known[3] if known is not None else ())}
    function.__code__ = made
    return None


@_alone
def disarm(function: FunctionType, holder: int) -> None:
    """Undo what `arm` did for `holder`; a code that somebody has given the function since stays."""
    known = _armed.get(id(function))
    if known is None or holder not in known[3]:
        return
    if known[3] == {holder}:
        if function.__code__ is known[2]:
            function.__code__ = known[1]
        _armed.pop(id(function), None)
    known[3].discard(holder)


def own_code(function: FunctionType) -> CodeType:
    """The code that `function` has when it is not armed."""
    known = _armed.get(id(function))
    return known[1] if known is not None and function.__code__ is known[2] else function.__code__


#: The tool of `sys.monitoring`, for all threads that watch, and the ids of their nets.
_TOOL = "mgb"
_TOOLS = (4, 3, 5)  # the numbers that are nobody's
_nets: set[int] = set()


class _Here(threading.local):
    net: Net | None = None


_here = _Here()


def _monitored(code: CodeType, offset: int) -> Any:
    """A function starts, in any thread."""
    del offset
    net = _here.net
    if net is not None:
        net.started(code, sys._getframe(1).f_back)
    return sys.monitoring.DISABLE if is_trusted(code) else None  # type: ignore[attr-defined]


@_alone
def _begin_monitoring(monitoring: Any, net: int) -> str | None:
    """Have one tool for all nets; a text says why there is none."""
    _nets.add(net)
    tools = [number for number in _TOOLS if monitoring.get_tool(number) in (_TOOL, None)]
    if not tools:
        return "all tools of sys.monitoring are taken"
    if not any(monitoring.get_tool(number) == _TOOL for number in tools):
        monitoring.use_tool_id(tools[0], _TOOL)
        monitoring.register_callback(tools[0], monitoring.events.PY_START, _monitored)
        monitoring.set_events(tools[0], monitoring.events.PY_START)
    return None


@_alone
def _end_monitoring(monitoring: Any, net: int) -> None:
    _nets.discard(net)
    for number in _TOOLS if not _nets else ():
        if monitoring.get_tool(number) == _TOOL:
            monitoring.set_events(number, 0)
            monitoring.register_callback(number, monitoring.events.PY_START, None)
            monitoring.free_tool_id(number)


class Net:
    """Tells of each Python function of this thread that starts, while it is spread.

    Parameters
    ----------
    started : callable
        Told the code and the frame that called it, if that is known. True: this code need not be told again.
    """

    def __init__(self, started: Callable[[CodeType, FrameType | None], bool]) -> None:
        self._started = started
        self._known: set[int] = set()
        self._kept: list[CodeType] = []  # so that no other gets their ids
        self._undo: Callable[[], object] = lambda: None
        self.tracer: Callable[..., None] | None = None  # which CPython calls without a reference of its own
        self._rests = False

    def spread(self) -> str | None:
        """Begin; a text says why it cannot be."""
        monitoring = getattr(sys, "monitoring", None)
        if monitoring is not None:
            return self._monitor(monitoring)
        self.tracer = self.tracer or self._traced
        if sys.gettrace() is None:
            self._undo = self._untrace
            sys.settrace(self.tracer)
        elif sys.getprofile() is None:
            self._undo = self._unprofile
            sys.setprofile(self.tracer)
        else:
            return "a debugger and a profiler are both active"
        return None

    def _untrace(self) -> None:
        if sys.gettrace() == self._traced:
            sys.settrace(None)

    def _unprofile(self) -> None:
        if sys.getprofile() == self._traced:
            sys.setprofile(None)

    def _monitor(self, monitoring: Any) -> str | None:
        self._undo = self._unmonitor
        trouble = _begin_monitoring(monitoring, id(self))
        if trouble is None:
            _here.net = self
        return trouble

    def _unmonitor(self) -> None:
        _here.net = None
        _end_monitoring(sys.monitoring, id(self))  # type: ignore[attr-defined]

    @property
    def can_rest(self) -> bool:
        """Does what starts while it is spread take longer, whoever is told of it?"""
        return self.tracer is not None

    def without(self, function: Callable[Given, Value], *args: Given.args, **kwargs: Given.kwargs) -> Value:
        """What `function` gives. Nothing is told until `goes_on`: that takes longer than what most do."""
        tracer, rested = sys.gettrace(), self._rests
        if tracer is None or tracer is not self.tracer:
            return function(*args, **kwargs)
        try:
            self._rests = True
            sys.settrace(None)
            return function(*args, **kwargs)
        finally:
            self._rests = rested
            if sys.gettrace() is None:
                sys.settrace(self.tracer)

    def goes_on(self) -> None:
        """Code that may call anything begins, maybe inside `without`."""
        if self._rests and sys.gettrace() is None:
            sys.settrace(self.tracer)

    def gather(self) -> None:
        """End, and tell nobody any more."""
        self._undo()
        self._undo = lambda: None
        self._started = lambda *_: True

    def forget(self) -> None:
        """Hold nothing; asked where no tracer runs."""
        self.tracer = None
        self._kept.clear()

    def started(self, code: CodeType, caller: FrameType | None) -> bool:
        """`code` starts. True: it need not be told again."""
        if id(code) not in self._known:
            self._tell(code, caller)
        return id(code) in self._known

    def _traced(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and id(frame.f_code) not in self._known and not _goes_on(frame):
            self._tell(frame.f_code, frame.f_back)

    def _tell(self, code: CodeType, caller: FrameType | None) -> None:
        if self._started(code, caller):
            self._known.add(id(code))
            self._kept.append(code)


def _goes_on(frame: FrameType) -> bool:
    """Is it a generator that goes on, or ends, perhaps unused? Who asks it to is watched."""
    code = frame.f_code
    if code.co_flags & 0x2A0 == 0:
        return False
    return code.co_code[frame.f_lasti] != _RESUME or frame.f_lineno != code.co_firstlineno
