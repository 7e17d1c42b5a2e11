"""The gradient tape: what was done to the tensors it watches, and the way back."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

from ..errors import NoGradientError
from ..ir import Op, Spec
from ..ir.dtypes import COMPLEX
from ..ops.elementwise import conj
from ..ops.layout import sum_to
from ..ops.primitives import add
from ..runtime.precision import exactly
from ..tensor import ACTIVE, Tensor

#: Called with a watched tensor's gradient when its last contribution has arrived.
Arrived = Callable[[Tensor], None]

Result = TypeVar("Result")

_open: ContextVar[tuple[Tape, ...]] = ContextVar("mgb_open_tapes", default=())

#: Is what is pulled here wanted for its own gradient alone, which is the derivative in a direction?
forward_mode: ContextVar[bool] = ContextVar("mgb_forward_mode", default=False)


def any_open() -> bool:
    """Return whether a gradient tape records in this context."""
    tapes = _open.get()
    return bool(tapes) and any(tape.recording for tape in tapes)


class Node:
    """One application of an op, as one tape remembers it.

    A saved value is a `Spec` when the gradient rule does not read it, else an alias that only outer tapes
    see. So they can differentiate the way back, nothing refers to itself, and rebinding the original changes
    nothing here.
    """

    __slots__ = ("__weakref__", "inputs", "op", "output", "params", "saved")

    def __init__(
        self, op: Op, inputs: tuple[Any, ...], saved: tuple[Any, ...], output: Any, params: dict[str, Any]
    ) -> None:
        self.op, self.inputs, self.saved, self.output, self.params = op, inputs, saved, output, params

    def pull(self, g: Tensor) -> Sequence[Tensor | None]:
        """Return the gradient of each input, given that of the output."""
        rule = self.op.grad
        assert rule is not None
        parts = rule(g, _turned(self.output), *map(_turned, self.saved), **self.params)
        return [
            None if part is None or source is None else sum_to(part, x.shape)
            for part, source, x in zip(parts, self.inputs, self.saved, strict=True)
        ]

    merge = staticmethod(add)

    def clear(self) -> None:
        """Let go of everything; the node has been used or never will be."""
        self.inputs, self.saved, self.output = (), (), None


def _turned(value: Any) -> Any:
    """Return the saved value that a gradient rule reads: the conjugate of a complex one."""
    if type(value) is Spec:
        return value
    data = value._data
    dtype = data.dtype if data is not None else value.spec.dtype
    return conj(value) if dtype in COMPLEX else value


class Leaf:
    """A watched tensor. When it was computed on the same tape, the gradient goes on to `source`."""

    __slots__ = ("__weakref__", "arrived", "inputs")

    def __init__(self, arrived: Arrived, source: Any) -> None:
        self.arrived = arrived
        self.inputs: tuple[Any, ...] = () if source is None else (source,)

    def pull(self, g: Tensor) -> Sequence[Tensor]:
        """Hand the gradient over."""
        self.arrived(g)
        return (g,) * len(self.inputs)

    merge = staticmethod(add)

    def clear(self) -> None:
        """Let go of the source."""
        self.inputs = ()


class Tape:
    """Records every op on the tensors that it watches.

    Parameters
    ----------
    level : int
        Tapes of a smaller level were opened earlier: they see this tape's way back. Tapes of one level form a
        group and do not see each other.
    of_transform : bool
        Is it of `mgb.grad` and its kin, whose functions let no value become an array unasked?
    """

    __slots__ = ("__weakref__", "_closed", "_nodes", "_watched", "level", "of_transform", "recording")

    def __init__(self, level: int, of_transform: bool = False) -> None:
        self.level, self.of_transform = level, of_transform
        self.recording = True
        self._closed = False
        self._nodes: list[weakref.ref[Any]] = []
        self._watched: list[weakref.ref[Tensor]] = []

    def open(self) -> None:
        """Be one of the tapes of this context, until `close`."""
        _open.set((*_open.get(), self))

    def watch(self, tensor: Tensor, arrived: Arrived) -> None:
        """Record what is done to `tensor` from now on; `arrived` gets its gradient."""
        session = ACTIVE.get()
        if session is not None:
            session.watched(tensor)
        tapes = tensor._tape or {}
        leaf = Leaf(arrived, tapes.get(self))
        self._nodes.append(weakref.ref(leaf))
        self._watched.append(weakref.ref(tensor))  # before the tensor knows of it: `close` takes it back
        tensor._tape = {**tapes, self: leaf}

    def record(self, op: Op, inputs: Sequence[Tensor], out: Tensor, params: dict[str, Any]) -> None:
        """Note that ``out = op(*inputs, **params)``."""
        spec = out._spec or out.spec
        if spec.dtype.kind not in "fVc":
            return
        keeps = _keeps.get((op, len(inputs)))
        if keeps is None:
            keeps = _keeps[op, len(inputs)] = _kept_values(op, len(inputs))
        level = self.level
        sources, saved = [], []
        for tensor, keep in zip(inputs, keeps):  # keeps has one more, for the output
            tapes = tensor._tape
            sources.append(tapes.get(self) if tapes else None)
            saved.append(snapshot(tensor, level) if keep else tensor._spec or tensor.spec)
        output = snapshot(out, level) if keeps[-1] else spec
        self.attach(out, Node(op, tuple(sources), tuple(saved), output, params))

    def attach(self, out: Tensor, node: Any) -> None:
        """Let `node` be where `out` came from."""
        if out._tape is None:
            out._tape = {self: node}
        else:
            out._tape[self] = node
        self._nodes.append(weakref.ref(node))

    def has_seen(self, tensor: Tensor) -> bool:
        """Return whether this tape was open when `tensor` got its value, or watches it."""
        return tensor._level >= self.level or self in (tensor._tape or ())

    def backward(self, ys: Sequence[Tensor], dys: Sequence[Tensor]) -> None:
        """Send the gradients `dys` of `ys` back to every watched tensor; the tape is used up by this."""
        self.pull(ys, dys, ())

    def pull(
        self, ys: Sequence[Tensor], dys: Sequence[Tensor], ends: Collection[Any], keep: bool = False
    ) -> dict[Any, Tensor]:
        """Run `backward` up to the nodes `ends`; return the gradients that arrive there.

        With `keep` the tape is not used up.
        """
        grads: dict[Any, Any] = {}
        for y, dy in zip(ys, dys, strict=True):
            node = y._tape.get(self) if y._tape else None
            if node is not None:
                grads[node] = node.merge(grads[node], dy) if node in grads else dy
        inner = (self, *(t for t in _open.get() if t.level >= self.level))
        return exactly(while_paused, inner, lambda: _pull_all(grads, ends, keep))

    def rest(self) -> None:
        """Stop recording, and keep what was recorded for `pull`."""
        self._closed = True
        self.recording = False
        _open.set(tuple(t for t in _open.get() if t is not self))

    def close(self) -> None:
        """Stop recording and free what was kept; after an interrupt it may be called again."""
        self.rest()
        for reference in self._watched:
            tensor = reference()
            if tensor is not None and tensor._tape:
                tensor._tape = {t: node for t, node in tensor._tape.items() if t is not self} or None
        for node_reference in self._nodes:
            node = node_reference()
            if node is not None:
                node.clear()
        self._nodes.clear()
        self._watched.clear()


def while_paused(tapes: Iterable[Tape], function: Callable[[], Result]) -> Result:
    """Call `function` while none of `tapes` records."""
    stopped = [t for t in dict.fromkeys(tapes) if t.recording]
    try:
        try:
            _let_record(stopped, False)
            return function()
        finally:
            _let_record(stopped, True)
    except BaseException:
        _let_record(stopped, True)  # an interrupt may have ended the line above
        raise


def _let_record(tapes: Iterable[Tape], records: bool) -> None:
    for tape in tapes:
        tape.recording = records and not tape._closed


def open_tapes() -> tuple[Tape, ...]:
    """Return the tapes opened in this context, outer ones first."""
    return _open.get()


def snapshot(tensor: Tensor, level: int) -> Tensor:
    """Return an alias of `tensor` that only the tapes outside `level` see."""
    return tensor._alias(_outside(tensor._tape, level) if tensor._tape else None)


def _outside(tapes: dict[Tape, Any], level: int) -> dict[Tape, Any] | None:
    for tape in tapes:
        if tape.level < level:
            return {t: node for t, node in tapes.items() if t.level < level}
    return None


def _pull_all(grads: dict[Any, Any], ends: Collection[Any], keep: bool) -> dict[Any, Any]:
    """Visit every node behind `grads`, up to `ends`, once all that it feeds have been visited.

    Returns
    -------
    dict
        The gradients of `ends`, which are not visited.
    """
    waiting = _consumers(grads, ends)
    ready = [node for node in grads if not waiting[node]]
    arrived: dict[Any, Any] = {}
    while ready:
        node = ready.pop()
        if node in ends:
            if node in grads:
                arrived[node] = grads.pop(node)
            continue
        sources = node.inputs
        g = grads.pop(node, None)
        parts = node.pull(g) if g is not None else (None,) * len(sources)
        if not keep:
            node.clear()
        freed = []
        for source, part in zip(sources, parts, strict=True):
            if source is None:
                continue
            if part is not None:
                grads[source] = source.merge(grads[source], part) if source in grads else part
            waiting[source] -= 1
            if not waiting[source]:
                freed.append(source)
        if len(freed) > 1:
            freed.sort(key=_is_leaf)  # a watched tensor's gradient is handed over at once
        ready += freed
    return arrived


def _is_leaf(node: Any) -> bool:
    return isinstance(node, Leaf)


def _consumers(roots: Iterable[Any], ends: Collection[Any]) -> dict[Any, int]:
    """Count the consumers of each node that `roots` depend on, up to `ends`."""
    counts = dict.fromkeys(roots, 0)
    stack = list(counts)
    while stack:
        node = stack.pop()
        for source in () if node in ends else node.inputs:
            if source is None:
                continue
            if source not in counts:
                counts[source] = 0
                stack.append(source)
            counts[source] += 1
    return counts


# which values a gradient rule reads

_keeps: dict[tuple[Op, int], tuple[bool, ...]] = {}


def _kept_values(op: Op, arity: int) -> tuple[bool, ...]:
    """Return for each of `arity` inputs, then for the output, whether the rule of `op` reads its value."""
    if op.grad is None:
        raise NoGradientError(
            f"op {op.name!r} has neither a gradient nor a body: declare it with differentiable=False"
        )
    parameters = list(inspect.signature(op.grad).parameters.values())[1:]
    output, *rest = (not p.name.startswith("_") for p in parameters)
    kinds = [p.kind for p in parameters[1:]]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        place = kinds.index(inspect.Parameter.VAR_POSITIONAL)
        rest = [*rest[:place], *[rest[place]] * (arity - place)]
    if len(rest) < arity:
        raise NoGradientError(
            f"the gradient of op {op.name!r} takes {len(rest)} inputs, but the op has {arity}"
        )
    return (*rest[:arity], output)
