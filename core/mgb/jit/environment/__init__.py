"""What one call of a Python function read outside itself, as guards, and why it cannot be skipped later.

A function's body runs once under an `Observer`. What existed before the call is *outside*. What the body read
there becomes a guard; what it wrote there, or did that cannot be known, is an `Impurity` with its line. The
body may be skipped later while there was no impurity and all guards hold::

    observer = Observer(leaves)                       # the flattened arguments
    result = observer.run(function, *args, **kwargs)  # runs it once; what was installed is gone after it
    observer.guards                                   # Guards, see ..guard
    observer.impurities                               # list[Impurity(reason, file, line)]
    observer.source_of(thing)                         # where it was found outside: Source | None
    observer.arm(thing)                               # watch what the core will call by itself: a callback,
                                                      # a Module with its submodules, an Optimizer
    Observer.current()                                # the one that watches this thread, or None

    guards.compile() -> check(leaves) -> bool         # one straight-line function
    guards.lines(name) -> list[str]                   # its lines, to stand in another generated function:
                                                      # `name(value) -> str` names a value there;
                                                      # arguments are `t0`, `t1`, ...; a guard that fails runs
                                                      # `return MISS`; it may raise, which means no as well
    guards.why(leaves) -> str | None                  # the first that fails, in words

Values of Tensors are not watched here: the recording session sees when one is read.
"""

from __future__ import annotations

from . import hooks as _hooks  # noqa: F401 - fills the table of hooks
from .observer import Impurity, Observer

__all__ = ["Impurity", "Observer"]
