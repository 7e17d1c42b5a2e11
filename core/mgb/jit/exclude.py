"""`exclude_from_trace`: a stretch of code that runs eagerly in the middle of a traced function."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..tensor import ACTIVE
from .recording import Recording
from .replay import Replay


@contextmanager
def exclude_from_trace() -> Iterator[None]:
    """Run the block eagerly and freely, at every call; outside a trace this does nothing.

    What was traced before has its values inside the block; Tensors made inside are inputs of what follows.

    Examples
    --------
    >>> from mgb import jit, tensor
    >>> @jit.trace
    ... def f(x, i):
    ...     x = x + 1
    ...     with jit.exclude_from_trace():
    ...         if i % 2 == 0:
    ...             x = x + 1
    ...     return x * 1
    >>> [f(tensor(1), i).item() for i in range(3)]
    [3, 2, 3]
    """
    session = ACTIVE.get()
    if not isinstance(session, Recording | Replay):
        yield
        return
    session.pause()
    token = ACTIVE.set(None)
    try:
        yield
    finally:
        ACTIVE.reset(token)
        session.resume()
