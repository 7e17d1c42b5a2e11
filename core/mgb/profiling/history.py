"""Profiling of a traced function: who looks on at its calls, and what it tells of them."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Protocol

from ..errors import TraceError
from ..executor import Program
from ..executor.profile import PROFILED, CallProfile
from ..runtime import forking
from .chrome import save
from .debug import Ladder, level
from .report import report, warm
from .statistics import Statistics
from .table import ProfileTable

#: Times that are kept of one function, of its newest calls: about three megabytes.
_MOST = 1 << 16


class History:
    """The newest calls of one function. Several threads may use it at once."""

    def __init__(self) -> None:
        self._calls: deque[tuple[CallProfile, int]] = deque()
        self._times = 0
        self._lock = forking.lock()

    def call(self, call: CallProfile) -> None:
        """Keep `call`, and drop the oldest ones where there are too many times."""
        times = 2 + sum([len(run.times) for run in call.runs])
        with self._lock:
            self._calls.append((call, times))
            self._times += times
            while self._times > _MOST and len(self._calls) > 1:
                self._times -= self._calls.popleft()[1]

    def clear(self) -> None:
        """Drop them all."""
        with self._lock:
            self._calls.clear()
            self._times = 0

    def calls(self) -> list[CallProfile]:
        """Return the calls in the order in which they began."""
        with self._lock:
            kept = [call for call, _ in self._calls]
        return sorted(kept, key=lambda call: call.begin)


class Watch:
    """Looks on at each call of one traced function.

    Parameters
    ----------
    statistics : Statistics
        Of the function, which counts its calls.
    history : History, optional
        Keeps what the calls cost.
    ladder : Ladder, optional
        Prints it, and what is compiled.
    miss : object
        The value that marks an incomplete call.
    """

    def __init__(
        self, statistics: Statistics, history: History | None, ladder: Ladder | None, miss: object
    ) -> None:
        self._statistics, self._miss = statistics, miss
        self._tell = [part.call for part in (history, ladder) if part is not None]
        self._ladder = ladder

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run ``function(*args)``, which is a call, or the part of one that gives a miss."""
        thread = threading.get_ident(), threading.current_thread().name
        call = CallProfile(self._statistics, self._statistics.calls, thread, perf_counter_ns())
        token = PROFILED.set(call)
        try:
            result = function(*args)
        finally:
            PROFILED.reset(token)
        call.end = perf_counter_ns()
        if result is not self._miss:
            for tell in self._tell:
                tell(call)
        return result

    def compiled(self, program: Program) -> None:
        """Record that a program was compiled."""
        if self._ladder is not None:
            self._ladder.compiled(program)


def watch_of(name: str, statistics: Statistics, history: History | None, miss: object) -> Watch | None:
    """Return the observer of calls of `name`, if calls are saved or ``MGB_DEBUG`` prints them."""
    wanted = level()
    if history is None and not wanted:
        return None
    return Watch(statistics, history, Ladder(name, wanted) if wanted else None, miss)


class Profiled(Protocol):
    """A function with a history."""

    __name__: str
    _history: History | None


def _history_of(function: Profiled) -> History:
    if function._history is None:
        raise TraceError(
            f"{function.__name__} is not profiled: decorate it with @{type(function).__name__}"
            "(profiling=True) and call it again"
        )
    return function._history


def _calls_of(function: Profiled) -> list[CallProfile]:
    calls = _history_of(function).calls()
    if not any(call.runs for call in calls):
        raise TraceError(
            f"no compiled program of {function.__name__} has run since it was defined or since "
            "reset_profile(): call it, twice as a rule, since the first call records and runs op by op"
        )
    return calls


def get_profile(function: Profiled) -> dict[str, Any]:
    """Return the times of the newest calls, step by step, as data that `json` can write.

    Returns
    -------
    dict
        ``graph_exec``: the programs that ran, as ``operator`` and ``var`` by id. An operator is what runs
        as one: a fused group, several of them that share a call, or an op that runs eagerly.

        ``profiler``: for the latest run of each program, by id of operator: ``device``, by ``comp_node``,
        and ``host``, by thread: ``start`` (results are allocated, operands laid out), ``kern`` (it is
        called) and ``end``, in seconds since the program started; ``opr_footprint``: what the operator
        moves and computes; ``opr_internal_pf``: the ops in it.

        ``kernels``: a row for each operator, over all calls that are kept, but for a program's first run
        where there are others: how long they took, what they moved and computed.

        ``calls``: how many calls that is; ``copy_bandwidth``: bytes that this machine reads and writes in
        a second while it copies, which is measured at the first call of this.

    Raises
    ------
    TraceError
        It is not traced with ``profiling=True``, or no compiled program has run yet.
    """
    return report(_calls_of(function))


def profile_table(function: Profiled) -> ProfileTable:
    """Return the rows of ``get_profile()["kernels"]``, the longest first: for `print`, or a `rich` console.

    Raises
    ------
    TraceError
        As `get_profile`.
    """
    return ProfileTable(function.__name__, warm(_calls_of(function)))


def save_profile(function: Profiled, path: str | os.PathLike[str]) -> None:
    """Write the newest calls in the Chrome trace format, which Perfetto and ``chrome://tracing`` show.

    There is a track for each thread, on it the calls, in these their programs, in these their steps. A
    file that exists is replaced in one go.

    Raises
    ------
    TraceError
        As `get_profile`.
    """
    save(function.__name__, _calls_of(function), path)


def reset_profile(function: Profiled) -> None:
    """Forget the calls so far.

    Raises
    ------
    TraceError
        It is not traced with ``profiling=True``.
    """
    _history_of(function).clear()
