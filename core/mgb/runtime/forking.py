"""Support of `os.fork`: a child has only one thread, the one that forked.

What another thread held or had begun is never given back or ended there. So

* a lock of `lock` is free in the child, unless the thread that forked holds it. What it guards is replaced by
  one assignment at a time, and so is whole at any moment;
* what a child could not go on with half-way, such as work inside a compiler, stands in an `undivided` block,
  or is a `short_call`: a fork waits for its end;
* what has to be put away or put right is, by functions given to `at_fork`;
* what has threads of its own that a child can neither start again nor do without is a `Resource`: the child
  is told so at once, and what helps.
"""

from __future__ import annotations

import functools
import logging  # noqa: F401 - its own hook takes its lock: called after ours, for who we wait for may log
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any, TypeVar
from weakref import WeakSet

from ..errors import ForkedProcessError

__all__ = [
    "ForkedProcessError", "Resource", "at_fork", "cached_property", "lock", "short_call", "undivided",
]  # fmt: skip

Value = TypeVar("Value")

#: Seconds that a fork waits for the end of `undivided` blocks.
PATIENCE = 30.0

#: Seconds between two looks whether a `short_call` is over.
_POLL = 0.0002

#: What a child can do that lacks what its parent had.
REMEDY = (
    'start processes by multiprocessing.get_context("spawn"), or fork before the first use of {0} and while '
    "no other thread uses it"
)

_locks: WeakSet[Any] = WeakSet()
_resources: list[Resource] = []
_before: list[Callable[[], object]] = []
_in_child: list[Callable[[], object]] = []


def lock() -> Any:
    """Return a reentrant lock that a child finds free, unless the thread that forked holds it."""
    made = threading.RLock()
    _locks.add(made)
    return made


class cached_property(functools.cached_property[Value]):
    """As that of `functools`, whose lock, which Python has until 3.12, is like one of `lock` here."""

    def __init__(self, function: Callable[[Any], Value]) -> None:
        super().__init__(function)
        if hasattr(self, "lock"):
            _locks.add(self.lock)


def at_fork(before: Callable[[], object] | None = None, in_child: Callable[[], object] | None = None) -> None:
    """Have functions called by the thread that forks, before it does, and in the child, with locks free."""
    if before is not None:
        _before.append(before)
    if in_child is not None:
        _in_child.append(in_child)


# what is not to be divided

_inside: dict[int, list[str]] = {}  # by thread: what it is at
_guard = threading.RLock()  # C takes it: no signal comes between that and the block
_change = threading.Condition(_guard)
_forks = False  # one is waiting for all others to come out
_problem = ""  # why nobody may enter in this process any more


@contextmanager
def undivided(what: str) -> Iterator[None]:
    """Run a block that no fork divides: it waits until no thread is in any. Several threads may be.

    Locks that others in such blocks may want are taken inside, or the others would wait for who waits here.

    Parameters
    ----------
    what : str
        What the block does, for the message.

    Raises
    ------
    ForkedProcessError
        This is a child of a fork that waited in vain.
    """
    thread = get_ident()
    depth = len(_inside.get(thread, ()))
    try:
        with _guard:
            while _forks and thread not in _inside:
                _change.wait()
            if _problem:
                raise ForkedProcessError(_problem)
            _inside.setdefault(thread, []).append(what)
        yield
    finally:
        with _guard:
            del _inside.get(thread, [])[depth:]
            if not depth:
                _inside.pop(thread, None)
                _change.notify_all()


_calls: list[int] = []  # the thread of each short call that is being made


def short_call(function: Callable[..., Value]) -> Callable[..., Value]:
    """Wrap `function` so that no fork divides it, like an `undivided` block at a fraction of its cost."""

    def call(*args: Any, **params: Any) -> Value:
        thread = get_ident()
        try:
            _calls.append(thread)
            if _forks:
                _let_fork(thread)
            return function(*args, **params)
        finally:
            _calls.remove(thread) if thread in _calls else None  # a signal may have come first

    return call


def _let_fork(thread: int) -> None:
    """Wait until the fork is over that another thread wants."""
    if _calls.count(thread) == 1:
        _calls.remove(thread)
        with _guard:
            while _forks:
                _change.wait()
        _calls.append(thread)


def _others() -> set[str]:
    """Return the activities of other threads."""
    return {what for thread, at in _inside.items() if thread != get_ident() for what in at}


class Resource:
    """A resource with threads, unusable in a child of a process that has used it.

    It lives as long as the process.

    Parameters
    ----------
    what : str
        Its name.
    is_used : callable
        Has this process used it? Asked in the child.
    otherwise : str, optional
        What else helps.

    Attributes
    ----------
    problem : str or None
        Why it cannot be used in this process; None where it can.
    """

    def __init__(self, what: str, is_used: Callable[[], bool], otherwise: str = "") -> None:
        self._what, self._is_used, self._otherwise = what, is_used, otherwise
        self.problem: str | None = None
        _resources.append(self)

    def check(self) -> None:
        """Raise a `ForkedProcessError` where a call would hang."""
        if self.problem is not None:
            raise ForkedProcessError(self.problem)

    def forked(self) -> None:
        """Note that this is a child."""
        if self.problem is None and self._is_used():
            self.problem = (
                f"process {os.getpid()} was forked after {self._what} had run in process {os.getppid()}, and "
                f"has none of its threads; {REMEDY.format(self._what)}{self._otherwise}"
            )


# the fork


def _wait() -> None:
    """Wait until no other thread is in an `undivided` block; none enters one before the fork is over."""
    global _forks
    _guard.acquire()  # until the fork is over
    while _forks:  # another thread forks
        _change.wait()
    _forks = True
    deadline = time.monotonic() + PATIENCE
    _change.wait_for(lambda: not _others(), PATIENCE)
    while any(thread != get_ident() for thread in _calls[:]) and time.monotonic() < deadline:
        time.sleep(_POLL)
    for function in _before:
        function()


def _go_on() -> None:
    """Resume in the parent."""
    global _forks
    _forks = False
    _change.notify_all()
    _guard.release()


def _begin() -> None:
    """Begin in the child."""
    global _guard, _change, _forks, _problem
    if others := " and ".join(sorted(_others())):
        _problem = (
            f"process {os.getpid()} was forked while other threads of process {os.getppid()} were at "
            f"{others}, for more than {PATIENCE:.0f} s; {REMEDY.format('it')}"
        )
    for thread in _inside.keys() - {get_ident()}:
        del _inside[thread]
    _calls[:] = [thread for thread in _calls if thread == get_ident()]
    _guard, _forks = threading.RLock(), False
    _change = threading.Condition(_guard)
    for made in _locks:
        if made.acquire(blocking=False):  # free, or ours
            made.release()
        else:
            made._at_fork_reinit()
    for resource in _resources:
        resource.forked()
    for function in _in_child:
        function()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait, after_in_parent=_go_on, after_in_child=_begin)
