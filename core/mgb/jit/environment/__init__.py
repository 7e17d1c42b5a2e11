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

Values of Tensors are not watched here: the recording session sees when one is read.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...tensor import Outside
from ..watch.impurity import Impurity
from .observer import Observer, may_follow, unwatched, writes_of

# For a time there are two observers: this one, and with MGB_OBSERVER=names that of `watch`.
if not TYPE_CHECKING and os.environ.get("MGB_OBSERVER") == "names":
    from ..watch import Observer, unwatched, writes_of

Outside.unwatched = staticmethod(unwatched)  # type: ignore[arg-type]

__all__ = ["Impurity", "Observer", "may_follow", "unwatched", "writes_of"]
