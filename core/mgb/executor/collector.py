"""Python's garbage collector rests while graphs are rewritten and cut."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_resting = 0  # how many calls in all threads want it to
_was_on = False


@contextmanager
def resting() -> Iterator[None]:
    """Have no garbage collection within, in any thread; also a decorator.

    The nodes of a graph form no cycles, so that reference counts free them. With ten thousand of them alive
    the collector would visit each again and again for nothing: a third of the time that compiling takes.
    """
    global _resting, _was_on
    with _lock:
        if not _resting:
            _was_on = gc.isenabled()
            gc.disable()
        _resting += 1
    try:
        yield
    finally:
        with _lock:
            _resting -= 1
            if not _resting and _was_on:
                gc.enable()
