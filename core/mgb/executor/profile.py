"""Measured runs: what the function of a program that is compiled for profiling notes, and who collects it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple

from ..ir import Graph
from ..runtime.device import array_module, is_gpu
from ..runtime.forking import cached_property
from .profile_cost import Cost, cost_of
from .schedule import Call


class Span(NamedTuple):
    """When one call of a program ran, in nanoseconds of `time.perf_counter_ns`.

    Attributes
    ----------
    start : int
        Its turn has come: results are allocated, and operands copied where the kernel cannot read them.
    kern : int
        The kernel, or the eager rule, is called.
    end : int
        It has returned.
    """

    start: int
    kern: int
    end: int


@dataclass(eq=False)
class Measured:
    """A program whose function notes the time before and after each of its calls.

    Attributes
    ----------
    graph : Graph
        What it computes.
    calls : tuple of Call
        Those that run something, in order: constants do not.
    ran : bool
        Has it run? The first run meets cold caches and makes the plans of kernels.
    """

    graph: Graph
    calls: tuple[Call, ...]
    ran: bool = False

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """The bytes moved and the operations of each of `calls`."""
        return tuple(map(cost_of, self.calls))

    def keep(self, times: tuple[int, ...]) -> None:
        """Add a run to the call that is profiled here; generated functions call it at their end."""
        first, self.ran = not self.ran, True
        call = PROFILED.get()
        if call is not None:
            call.runs.append(Run(self, times, first))


class Run(NamedTuple):
    """One run of a program.

    Attributes
    ----------
    program : Measured
    times : tuple of int
        The beginning, when the arena is there, two for each call (`Span.kern` and `Span.end`), and the end.
    first : bool
        Is it the program's first one?
    """

    program: Measured
    times: tuple[int, ...]
    first: bool

    @property
    def seconds(self) -> float:
        """From its beginning to its end."""
        return (self.times[-1] - self.times[0]) / 1e9

    @property
    def spans(self) -> Iterator[Span]:
        """One for each of ``program.calls``; what is between two calls belongs to the later one."""
        marks = self.times[1:-1]
        return map(Span, marks[:-2:2], marks[1::2], marks[2::2])


@dataclass(slots=True, eq=False)
class CallProfile:
    """One call of a traced function: when it was, what ran in it, and what else it took.

    Attributes
    ----------
    of : object
        What stands for the function.
    number : int
        The first call is 1.
    thread : (int, str)
        Its identifier and its name.
    begin, end : int
        In nanoseconds of `time.perf_counter_ns`; what the body did is in between.
    runs : list of Run
    recorded : bool
        The body was recorded.
    compiled : tuple of float
        For each program that was compiled in it, the seconds that took.
    reasons : tuple of str
        Why something was recorded or compiled again.
    """

    of: object
    number: int
    thread: tuple[int, str]
    begin: int
    end: int = 0
    runs: list[Run] = field(default_factory=list)
    recorded: bool = False
    compiled: tuple[float, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """From begin to end."""
        return (self.end - self.begin) / 1e9


#: The call that is profiled in this context.
PROFILED: ContextVar[CallProfile | None] = ContextVar("mgb_profiled_call", default=None)


def clock(device: str) -> Callable[[], int]:
    """Return the clock for calls on `device`, in nanoseconds.

    On a GPU it waits until what was begun is done.
    """
    if not is_gpu(device):
        return time.perf_counter_ns
    synchronize = array_module(device).cuda.Device().synchronize

    def waiting() -> int:
        synchronize()
        return time.perf_counter_ns()

    return waiting
