"""Function: an operation whose gradient the user writes."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from ..errors import ShapeError
from ..ir import Spec
from ..ops.primitives import add
from ..runtime.precision import AUTOCAST, exactly
from ..tensor import Tensor
from ..tensor.apply import autocasted, recording_tapes
from .tape import Tape, open_tapes, snapshot, while_paused


class Function(ABC):
    """A differentiable operation given by its own `forward` and `backward`.

    What `backward` needs is kept on ``self``: it finds what its own `forward` set there, however often the
    object was called since. For derivatives of higher order, keep only inputs and outputs and compute the
    rest from them in `backward`; other tensors are constants there.

    Examples
    --------
    >>> from mgb import tensor
    >>> import mgb.functional as F
    >>> class Sigmoid(Function):
    ...     def forward(self, x):
    ...         self.y = 1 / (1 + F.exp(-x))
    ...         return self.y
    ...
    ...     def backward(self, dy):
    ...         return dy * self.y * (1 - self.y)
    >>> Sigmoid()(tensor([0.0]))
    Tensor([0.5], device=xpux:0)
    """

    #: As of an `Op`: what `amp.autocast` casts the inputs to, before `forward` computes in what it is given.
    precision = ""

    @abstractmethod
    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the result, computed without being recorded."""

    @abstractmethod
    def backward(self, *output_grads: Any) -> Tensor | Sequence[Tensor | None] | None:
        """Return the gradient of each input, None where there is none.

        It gets None for outputs without use.
        """

    def __call__(self, *inputs: Tensor) -> Any:
        for tensor in inputs:
            if not isinstance(tensor, Tensor):
                raise TypeError(
                    f"op Function expect type Tensor as inputs, got {type(tensor).__name__}: convert it with "
                    "mgb.tensor"
                )
        if self.precision and AUTOCAST.get() is not None:
            return exactly(self, *autocasted(self.precision, inputs))
        tapes = recording_tapes(inputs)
        before = dict(vars(self)) if tapes else {}
        results = while_paused((*tapes, *open_tapes()), lambda: self.forward(*inputs))
        if tapes:
            self._note_changes(before)
        values = (results,) if isinstance(results, Tensor) else tuple(results)
        outputs = tuple(value._alias() for value in values)
        for tape in tapes:
            self._record(tape, inputs, values, outputs)
        return outputs[0] if isinstance(results, Tensor) else outputs

    def _note_changes(self, before: dict[str, Any]) -> None:
        """Add what `forward` has changed since `before` to what it sets."""
        changed = {name for name, value in vars(self).items() if before.get(name, before) is not value}
        known = _set_by_forward.get(type(self))
        if known is None or not changed <= known:
            _set_by_forward[type(self)] = changed.union(known or ())

    def _record(
        self, tape: Tape, inputs: Sequence[Tensor], values: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> None:
        """Put the call on `tape`, with what `forward` has set, in tensors that only outer tapes see."""
        seen = zip((*inputs, *values), (*inputs, *outputs), strict=True)
        snapshots = {id(original): snapshot(t, tape.level) for original, t in seen}
        names, kept = _set_by_forward[type(self)], {}
        for name, value in vars(self).items():
            replaced = _replaced(value, snapshots)
            if replaced is not value or name in names:
                kept[name] = replaced
        sources = tuple(t._tape.get(tape) if t._tape else None for t in inputs)
        gradients = partial(_gradients, self, kept, [t.spec for t in inputs], len(outputs))
        attach_call(tape, sources, [y if y.dtype.kind in "fVc" else None for y in outputs], gradients)


#: Which attributes `forward` sets: those of a call are its own, in which its `backward` runs.
_set_by_forward: WeakKeyDictionary[type[Function], set[str]] = WeakKeyDictionary()


def _gradients(
    function: Function, kept: dict[str, Any], given: Sequence[Spec], results: int, grads: Mapping[int, Tensor]
) -> Sequence[Tensor | None]:
    """Return the gradient of each input, which were of the specs `given`."""
    parts = _backward(function, kept, map(grads.get, range(results)))
    parts = [parts] if parts is None or isinstance(parts, Tensor) else list(parts)
    name = type(function).__name__
    if len(parts) != len(given):
        raise ValueError(f"{name}.backward gave {len(parts)} gradients for {len(given)} inputs")
    for part, spec in zip(parts, given, strict=True):
        if part is not None and part.shape != spec.shape:
            raise ShapeError(f"{name}.backward gave a gradient of {part.shape} for an input {spec.shape}")
    return parts


def _backward(function: Function, kept: dict[str, Any], grads: Iterable[Tensor | None]) -> Any:
    """Call ``function.backward`` with the attributes `kept`, and restore its own attributes afterwards."""
    now = vars(function)
    left = {name: now[name] for name in kept if name in now}
    now.update(kept)
    try:
        return function.backward(*grads)
    finally:
        for name, value in kept.items():
            if name in now and now[name] is value:
                if name in left:
                    now[name] = left[name]
                else:
                    del now[name]


def attach_call(
    tape: Tape,
    inputs: tuple[Any, ...],
    outputs: Sequence[Tensor | None],
    gradients: Callable[[dict[int, Tensor]], Sequence[Tensor | None]],
) -> None:
    """Have `tape` remember a call as one node.

    Parameters
    ----------
    tape : Tape
    inputs : tuple
        Nodes of the tape, or None where an input has none.
    outputs : sequence of Tensor or None
        None: it has no gradient.
    gradients : callable
        Gives the gradient of each input for ``{place of an output: gradient}``.
    """
    call = Call(inputs, gradients)
    for place, output in enumerate(outputs):
        if output is not None:
            tape.attach(output, Output(call, place))


class Call:
    """A call, as one tape remembers it."""

    __slots__ = ("__weakref__", "inputs", "pull")

    def __init__(self, inputs: tuple[Any, ...], pull: Callable[[dict[int, Tensor]], Any]) -> None:
        self.inputs: tuple[Any, ...] = inputs
        self.pull: Callable[[dict[int, Tensor]], Any] | None = pull

    merge = staticmethod(operator.or_)

    def clear(self) -> None:
        """Let go of the inputs and of what was kept."""
        self.inputs, self.pull = (), None


class Output:
    """One result of a call."""

    __slots__ = ("__weakref__", "inputs", "place")

    def __init__(self, call: Any, place: int) -> None:
        self.inputs: tuple[Any, ...] = (call,)
        self.place = place

    def pull(self, g: Tensor) -> Sequence[Any]:
        """Tell the call which of its outputs this gradient belongs to."""
        return ({self.place: g},)

    merge = staticmethod(add)

    def clear(self) -> None:
        """Let go of the call."""
        self.inputs = ()


def _replaced(value: Any, snapshots: dict[int, Tensor]) -> Any:
    """Return `value` with each tensor that has a snapshot replaced by it, inside lists and tuples too."""
    if isinstance(value, Tensor):
        return snapshots.get(id(value), value)
    if type(value) in (list, tuple):
        parts = [_replaced(v, snapshots) for v in value]
        return value if all(map(operator.is_, parts, value)) else type(value)(parts)
    return value
