"""Tensors that want a gradient: what is done with it when it arrives, and at the end of a `backward`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from ..ops.primitives import add
from ..tensor import Tensor
from .tape import Tape

#: ``(tensor, grad) -> grad``: sees a gradient as soon as it is complete, and may replace it.
Callback = Callable[[Tensor, Tensor], Any]


class Ending:
    """Work of a `backward` that waits until all gradients are complete.

    Attributes
    ----------
    kept : dict
        What callbacks keep until then, by keys of their own.
    """

    def __init__(self) -> None:
        self.kept: dict[Any, Any] = {}
        self._ends: list[Callable[[], object]] = []
        self._waiting: list[tuple[Attached, Tensor]] = []

    def at_end(self, function: Callable[[], object]) -> None:
        """Call `function` then; gradients of callbacks from now on become ``grad`` after that."""
        self._ends.append(function)

    def take(self, attached: Attached, grad: Tensor) -> None:
        """Add a gradient as the callbacks leave it, now or at the end."""
        if self._ends:
            self._waiting.append((attached, grad))
        else:
            attached.add(grad)

    def finish(self) -> None:
        """Run what was left for the end."""
        for function in self._ends:
            function()
        for attached, grad in self._waiting:
            attached.add(grad)


_ending: ContextVar[Ending | None] = ContextVar("_ending", default=None)


def backwarding() -> Ending | None:
    """Return the end of the `GradManager.backward` that runs now; None: none runs."""
    return _ending.get()


class Attached:
    """A tensor that wants its gradient. The tensor is not kept alive."""

    __slots__ = ("__weakref__", "callbacks", "reference")

    def __init__(self, tensor: Tensor, forget: Callable[[weakref.KeyedRef[int, Tensor]], object]) -> None:
        self.reference = weakref.KeyedRef(tensor, forget, id(tensor))
        self.callbacks: list[Callback] = []

    def arrived(self, grad: Tensor) -> None:
        """Run the callbacks on a complete gradient and add it to ``tensor.grad``."""
        tensor = self.reference()
        if tensor is None:
            return
        for callback in self.callbacks:
            grad = callback(tensor, grad)
        if grad is None:
            return
        ending = _ending.get()
        if ending is None:
            self.add(grad)
        else:
            ending.take(self, grad)

    def add(self, grad: Tensor) -> None:
        """Add to ``tensor.grad``."""
        tensor = self.reference()
        if tensor is None:
            return
        if tensor.grad is None:
            tensor.grad = grad._alias(grad._tape)  # two tensors may share one gradient, not its identity
        else:
            tensor.grad._reset(add(tensor.grad, grad))


def backward_to_its_end(tape: Tape, ys: Sequence[Tensor], dys: Sequence[Tensor]) -> None:
    """Run `Tape.backward`, then what callbacks left for the end."""
    ending = Ending()
    outer = _ending.set(ending)
    try:
        tape.backward(ys, dys)
        ending.finish()
    finally:
        _ending.reset(outer)
