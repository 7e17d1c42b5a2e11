"""The ops of a traced body that runs: deferred as by `auto`, in a tree of the trace's own."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import get_ident
from typing import Any

import numpy as np

from ...ir import Op, dtypes
from ...tensor import ACTIVE, CONSTANT, Tensor, handling, replace_handlers, restore_handlers
from ...tensor.apply import constant
from .differences import explain_new_sequence
from .link import Link
from .plan import Compile
from .results import Failed, Lazy
from .stream import Stream


class BodyStream(Stream):
    """A stream for the calls of a body that runs at each call.

    A traced function that the body calls is part of the body.

    Parameters
    ----------
    after : int
    compile : callable
        As for `Stream`.
    report : callable
        Called with the reason, in the user's terms, when another sequence than before is compiled.
    symbolic_shape : bool
        Shapes are Tensors in the body.
    """

    of_trace = True
    most_ops = most_bytes = 1 << 62

    def __init__(
        self, after: int, compile: Compile, report: Callable[[str], object], symbolic_shape: bool = False
    ) -> None:
        super().__init__(after, compile)
        self._report = report
        self.symbolic_shape = symbolic_shape
        self._grads: list[tuple[weakref.ref[Tensor], weakref.ref[Tensor] | None]] = []

    def run(self, body: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the result of `body`, with everything that it deferred computed."""
        self._thread, self._compiles = get_ident(), True
        if self._fed:  # left by an op that raised
            self._reset(self.most_ops)
        before, replaced = ACTIVE.get(), replace_handlers()  # the ops of handlers are not part of the body
        try:
            ACTIVE.set(self)
            result = body(*args, **kwargs)
            ACTIVE.set(before)
            self._finish()
        except BaseException as error:
            ACTIVE.set(before)
            try:
                self._abort(error)
            except BaseException as another:  # a second interrupt
                self._abort(another)
                raise
            raise
        finally:
            restore_handlers(replaced)
        if self._grads:
            self._grads = []
        return result

    def _finish(self) -> None:
        """End the call after the body has returned."""
        self.flush()

    def _abort(self, error: BaseException) -> None:
        """End the call after an exception.

        After an error, what was done before it is computed, as in eager code. After an interrupt nothing is
        computed, and each Tensor outside is as before the call or as after it.
        """
        self._compiles = False
        if isinstance(error, Exception):
            with suppress(Exception):  # the failing op raises where its result is needed
                self.flush()
        else:
            self.abandon()
        for reference, before in reversed(self._grads):
            tensor = reference()
            grad = tensor._grad if tensor is not None else None
            if tensor is not None and grad is not None and isinstance(grad._session, Failed | Lazy):
                tensor._grad = before() if before is not None else None
        self._grads = []

    def read(self, tensor: Tensor) -> Any:
        if handling() and self._in_flight is None:
            return self._evaluate_apart(self._at, self._fed, tensor)
        return super().read(tensor)

    def touched_grad(self, tensor: Tensor, reads: bool) -> None:
        if not reads:  # a weak reference, so that the new gradient can reuse the memory of the old one
            grad = tensor._grad
            self._grads.append((weakref.ref(tensor), None if grad is None else weakref.ref(grad)))

    def shape_of(self, tensor: Tensor) -> Tensor:
        return constant(np.array(tensor._tuple_shape, dtypes.int32), tensor._device)

    def step(self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any]) -> Tensor:
        if self.symbolic_shape and inputs and all(t._index == CONSTANT for t in inputs) and not op.ordered:
            out = self._run_at_once(op, inputs, params)  # it depends on shapes alone
            out._index = CONSTANT
            return out
        return super().step(op, inputs, params)

    def pause(self) -> None:
        """Enter `exclude_from_trace`: compute everything that is alive."""
        self.flush()

    def resume(self) -> None:
        """Leave `exclude_from_trace`."""

    def _on_compiled(self, at: Link) -> None:
        if (reason := explain_new_sequence(at)) is not None:
            self._report(reason)
