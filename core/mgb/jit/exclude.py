"""`exclude_from_trace`: run a block of a traced function eagerly."""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import Any

from ..tensor import ACTIVE
from .deferred.body import BodyStream
from .recording import Recording


class exclude_from_trace(ContextDecorator):
    """Run the block eagerly at every call. Outside a trace this does nothing.

    Inside the block, Tensors that were traced before it have values; Tensors made inside are inputs of the
    ops after it. A body with such a block runs at every call, so ``trace(run_body=False)`` raises an error
    for it.

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

    _session: Recording | BodyStream | None = None

    def _recreate_cm(self) -> exclude_from_trace:
        """Return a new context for each call of a decorated function, which may be recursive."""
        return exclude_from_trace()

    def __enter__(self) -> None:
        session = ACTIVE.get()
        if isinstance(session, Recording | BodyStream):
            session.pause()
            self._session = session
            ACTIVE.set(None)

    def __exit__(self, *_error: Any) -> None:
        if self._session is not None:
            ACTIVE.set(self._session)
            self._session.resume()
