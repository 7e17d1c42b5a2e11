"""Python's garbage collector rests while graphs are rewritten and cut."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..runtime import forking

_lock = forking.lock()
_resting: dict[int, int] = {}  # by thread: how many calls of it want it to
_was_on = False


@contextmanager
def resting() -> Iterator[None]:
    """Have no garbage collection within, in any thread; also a decorator.

    The nodes of a graph form no cycles, so that reference counts free them. With ten thousand of them alive
    the collector would visit each again and again for nothing: a third of the time that compiling takes.
    """
    global _was_on
    before = _resting.get(threading.get_ident(), 0)
    try:
        with _lock:
            if not _resting:
                _was_on = gc.isenabled()
            _resting[threading.get_ident()] = before + 1
            gc.disable()
        yield
    finally:
        try:
            _end(before)
        except BaseException:  # an interrupt: what is done twice is done
            _end(before)
            raise


def _end(before: int) -> None:
    """Restore how many calls of this thread hold the collector; enable it after the last one."""
    with _lock:
        if before:
            _resting[threading.get_ident()] = before
        else:
            _resting.pop(threading.get_ident(), None)
        if not _resting and _was_on:
            gc.enable()


def _after_fork() -> None:
    """Resume the collector in a child, where no other thread is left to do it."""
    mine = _resting.get(threading.get_ident(), 0)
    if _resting:
        _resting.clear()
        _end(mine)


forking.at_fork(in_child=_after_fork)
