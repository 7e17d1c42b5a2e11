"""The ops of a traced body that runs: deferred, as by `auto`, in a tree of the trace's own."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import get_ident
from typing import Any

import numpy as np

from ... import dtypes
from ...apply import constant
from ...ir import Op
from ...tensor import ACTIVE, CONSTANT, Tensor, handling, replace_handlers, restore_handlers
from .differences import why_another
from .ending import Compile
from .link import Link
from .results import Failed, Late
from .stream import Stream


class BodyStream(Stream):
    """A stream for one call after another of a body that runs at each.

    A traced function that the body calls runs as a part of it.

    Parameters
    ----------
    after : int
    compile : callable
        As for `Stream`.
    tell : callable
        Told why a sequence is compiled beside another one, in the user's terms.
    symbolic_shape : bool
        Are shapes Tensors in the body?
    """

    of_trace = True
    most_ops = most_bytes = 1 << 62

    def __init__(
        self, after: int, compile: Compile, tell: Callable[[str], object], symbolic_shape: bool = False
    ) -> None:
        super().__init__(after, compile)
        self._tell = tell
        self.symbolic_shape = symbolic_shape
        self._grads: list[tuple[weakref.ref[Tensor], weakref.ref[Tensor] | None]] = []

    def run(self, body: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What `body` gives; nothing waits afterwards."""
        self._thread, self._compiles = get_ident(), True
        if self._fed:  # of an op that an exception ended
            self._begin(self.most_ops)
        before, replaced = ACTIVE.get(), replace_handlers()  # whose ops are no part of the body
        try:
            ACTIVE.set(self)
            result = body(*args, **kwargs)
            ACTIVE.set(before)
            self._finish()
        except BaseException as error:
            ACTIVE.set(before)
            try:
                self._end_after(error)
            except BaseException as another:  # a second interrupt
                self._end_after(another)
                raise
            raise
        finally:
            restore_handlers(replaced)
        if self._grads:
            self._grads = []
        return result

    def _finish(self) -> None:
        """The body is done."""
        self.flush()

    def _end_after(self, error: BaseException) -> None:
        """What was done before an error stands, as in eager code; after an interrupt nothing is computed.

        Each Tensor outside is then as before the call or as after it.
        """
        self._compiles = False
        if isinstance(error, Exception):
            with suppress(Exception):  # that op raises where it is wanted
                self.flush()
        else:
            self.give_up()
        for reference, before in reversed(self._grads):
            tensor = reference()
            grad = tensor._grad if tensor is not None else None
            if tensor is not None and grad is not None and isinstance(grad._session, Failed | Late):
                tensor._grad = before() if before is not None else None
        self._grads = []

    def read(self, tensor: Tensor) -> Any:
        if handling() and self._now is None:
            return self._apart(self._at, self._fed, tensor)
        return super().read(tensor)

    def touched_grad(self, tensor: Tensor, reads: bool) -> None:
        if not reads:  # weakly, for the memory of a gradient that is replaced is wanted for the new one
            grad = tensor._grad
            self._grads.append((weakref.ref(tensor), None if grad is None else weakref.ref(grad)))

    def shape_of(self, tensor: Tensor) -> Tensor:
        return constant(np.array(tensor._tuple_shape, dtypes.int32), tensor._device)

    def step(self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any]) -> Tensor:
        if self.symbolic_shape and inputs and all(t._index == CONSTANT for t in inputs) and not op.ordered:
            out = self._run_at_once(op, inputs, params)  # it follows from shapes
            out._index = CONSTANT
            return out
        return super().step(op, inputs, params)

    def pause(self) -> None:
        """Enter `exclude_from_trace`: everything alive gets its value."""
        self.flush()

    def resume(self) -> None:
        """Leave `exclude_from_trace`."""

    def _has_compiled(self, at: Link) -> None:
        if (reason := why_another(at)) is not None:
            self._tell(reason)
