"""Python's garbage collector rests while graphs are rewritten and cut."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .. import forking

_lock = forking.lock()
_resting = 0  # how many calls in all threads want it to
_own = threading.local()  # how many of them are of this thread
_was_on = False


@contextmanager
def resting() -> Iterator[None]:
    """Have no garbage collection within, in any thread; also a decorator.

    The nodes of a graph form no cycles, so that reference counts free them. With ten thousand of them alive
    the collector would visit each again and again for nothing: a third of the time that compiling takes.
    """
    global _resting, _was_on
    before = getattr(_own, "resting", 0)
    try:
        with _lock:
            if not _resting:
                _was_on = gc.isenabled()
            # The two counts change together: between these two no signal is looked for.
            _own.resting = before + 1
            _resting += 1
            gc.disable()
        yield
    finally:
        with _lock:
            left, _own.resting = _resting + before - getattr(_own, "resting", 0), before
            _end(left)


def _end(left: int) -> None:
    """So many calls still want it to rest."""
    global _resting
    _resting = left
    if not left and _was_on:
        gc.enable()


def _after_fork() -> None:
    if _resting:
        _end(getattr(_own, "resting", 0))  # no other thread is left to say that it may work again


forking.at_fork(in_child=_after_fork)
