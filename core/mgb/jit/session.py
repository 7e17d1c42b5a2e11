"""The values in flight in a recorded call, and the Tensors that stand for them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ParamSpec, TypeVar

from ..errors import SymbolicReadError, TraceError, TraceMismatchError, UnknownInputError
from ..ir import Op
from ..tensor import Session, Tensor
from ..tensor.apply import apply, caller, evaluate
from .entry import SHAPE, Entry, Literal, cut_at
from .policy import Policy
from .provenance import Provenance
from .record import Record
from .variant import Variant

P = ParamSpec("P")
R = TypeVar("R")


class CallSession(Session[Tensor]):
    """The values of one call that is recorded, see `recording.Recording`.

    Parameters
    ----------
    record : Record
    policy : Policy
    provenance : Provenance

    Attributes
    ----------
    fed : list
        The arrays of the external inputs.
    values : dict
        The arrays of steps.
    """

    replays = True
    paused = False
    _finished = _failed = _undone = False

    def __init__(self, record: Record, policy: Policy, provenance: Provenance) -> None:
        self.record, self.policy, self.provenance = record, policy, provenance
        self.fed: list[Any] = [None] * len(record.externals)
        self.values: dict[int, Any] = {}
        self._tensors: list[weakref.ref[Tensor]] = []
        self._replaced: list[tuple[weakref.ref[Tensor], Any]] = []  # with the old array, or its step

    # the Session protocol

    def adopt(self, alias: Tensor, original: Tensor) -> None:
        if alias._session is self:
            self._tensors.append(weakref.ref(alias))
        self.provenance.add_alias(alias, original)

    def rebound(self, tensor: Tensor, value: Tensor) -> None:
        reference = weakref.ref(tensor)
        self._tensors.append(reference)
        self._replaced.append((reference, tensor._index if tensor._session is self else tensor._data))
        self.provenance.rebind(tensor, value)

    def shape_of(self, tensor: Tensor) -> Tensor:
        return apply(SHAPE, tensor)

    # Tensors in flight

    def alive(self) -> list[Tensor]:
        """Return the living Tensors that stand for a step of this call."""
        found = (r() for r in self._tensors)
        return [t for t in found if t is not None and t._session is self]

    @property
    def reached(self) -> int:
        """Return how many of the recorded steps were only noted when the body did them."""
        return 0 if self.policy.runs else len(self.record.entries)

    @property
    def ended_early(self) -> bool:
        """Check whether the call ended before its programs ran: its Tensors are computed on first use."""
        return self._failed

    def compute_late(self, tensor: Tensor) -> Any:
        """Return the value of a Tensor that is in flight after the call, and store it there: see `value`.

        Until then the Tensor keeps this session alive, and so what it is made of.
        """
        tensor._data, tensor._session, tensor._index = self.value(tensor), None, -1
        return tensor._data

    def value(self, tensor: Tensor) -> Any:
        """Return the value of a Tensor in flight; if the call ended early, compute it now."""
        step = tensor._index
        if step not in self.values:
            if not self.ended_early:
                raise self.unreadable(tensor)
            if (value := self.record.static_value(step)) is not None:
                self.values[step] = value
            else:
                self.evaluate((step,))
        return self.values[step]

    def peek(self, tensor: Tensor) -> Any:
        """Return the value of a Tensor in flight to code outside the body; the call continues."""
        if tensor._data is not None:
            return tensor._data
        step, values, needed = tensor._index, self.values, self._needed((tensor._index,))
        if any(self.entry(n).op.ordered for n in needed):
            raise self.unreadable(tensor)
        try:
            self.values = dict(values)
            self._run_eagerly(needed)
            return self.values[step]
        finally:
            self.values = values

    def check_foreign(self, tensor: Tensor) -> None:
        """Raise an error for a Tensor of another trace that is unfinished, or that did not save its value."""
        other = tensor._session
        if isinstance(other, CallSession) and (other._finished or other.ended_early):
            other.compute_late(tensor)
            return
        if other is not None and not other.replays:
            other.read(tensor)  # compute an op that another thread deferred
        elif other is not None:
            raise UnknownInputError(
                f"a tensor of another trace, whose call has not finished, was used at {caller()}; "
                "return it from there first"
            )

    def finish_values(self) -> None:
        """End the call: give every living Tensor its value. One that no program computes stays unreadable."""
        self._finished = True
        self.release()
        self._tensors.clear()
        self._replaced.clear()

    def release(self) -> None:
        """Give every living Tensor its value, if there is one; it is a Tensor from outside then."""
        for tensor in self.alive():
            if tensor._data is not None:
                self.values[tensor._index] = tensor._data
        for tensor in self.alive():
            if (array := self.values.get(tensor._index)) is not None:
                tensor._data = array
                tensor._session = tensor._spec = None
                tensor._index = -1

    def unreadable(self, tensor: Tensor) -> TraceError:
        """Return the error for a value that was never computed."""
        step = f"step {tensor._index} ({self.entry(tensor._index)})"
        if self._undone:
            return SymbolicReadError(
                f"the result of {step} has no value: the call was only recorded, as by "
                "trace(record_only=True); trace without that option to run it"
            )
        return TraceMismatchError(
            "data unreadable", f"the call has not come to {step}, or failed before it; call it again"
        )

    def entry(self, step: int) -> Entry:
        """Return the recorded step."""
        return self.record.entries[step]

    # values by programs

    def run_programs(self, variant: Variant) -> None:
        """Compute what a call that was only noted needs; nothing is written in place."""
        self.record = variant.record
        for number, segment in enumerate(variant.segments):
            if any(step not in self.values for step in segment.outputs):
                program, reads = variant.program(number)
                arrays = [self.values[r] if r >= 0 else self.fed[-1 - r] for r in reads]
                self.values.update(zip(segment.outputs, program.run(*arrays), strict=True))

    # what is recorded

    def cut(self, op: Op, steps: Iterable[int]) -> None:
        """Record a cut, where the values of `steps` leave the program."""
        self.record.entries.append(cut_at(op, caller(), tuple(sorted(steps))))

    # values without a program

    def evaluate(self, steps: Iterable[int]) -> None:
        """Compute `steps`, what they need, and ordered steps before the last of them, in recorded order."""
        steps = list(steps)
        self._run_eagerly(self._needed(steps + [*self.find_due(max(steps, default=0))]))

    def _needed(self, steps: Sequence[int]) -> set[int]:
        """Return those of `steps`, and of the steps that they depend on, that have no value."""
        needed: set[int] = set()
        stack = list(steps)
        while stack:
            step = stack.pop()
            if step not in self.values and step not in needed:
                needed.add(step)
                stack.extend(r for r in self.entry(step).args if isinstance(r, int) and r >= 0)
        return needed

    def _run_eagerly(self, steps: Iterable[int]) -> None:
        for step in sorted(steps):
            entry = self.entry(step)
            self.values[step] = evaluate(entry.op, self.operands(entry.args), entry.params, entry.spec.device)

    def find_due(self, stop: int) -> set[int]:
        """Return the ordered steps before `stop` that have not run."""
        steps = range(stop)
        return {step for step in steps if self.entry(step).op.ordered and step not in self.values}

    def operands(self, args: Sequence[Any]) -> list[Any]:
        """Return the arrays that `args` refer to."""
        return [
            r.array if isinstance(r, Literal) else self.values[r] if r >= 0 else self.fed[-1 - r]
            for r in args
        ]

    def watch_over(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return ``work(*args, **kwargs)``; if it raises, end the call, even under another interrupt."""
        try:
            return work(*args, **kwargs)
        except BaseException as error:
            try:
                self.abandon(error)
            except BaseException as another:
                self.abandon(another)
                raise
            raise

    def abandon(self, error: BaseException) -> None:
        """End the call after `error`: each Tensor outside is as before the call or as after it.

        After an error, what was done before it is computed, as in eager code, unless a program has begun to
        overwrite what it needs. After an interrupt nothing is computed.
        """
        self._failed = True
        try:
            if isinstance(error, Exception):
                self._tensors.extend(map(weakref.ref, self._new_grads()))
                alive = {t._index for t in self.alive() if t._data is None}
                self.evaluate(alive.union(self.find_due(self.reached)))
        except Exception:  # the failing op fails again; later ones were never done
            pass
        finally:
            self._restore()

    def _restore(self) -> None:
        """Give Tensors outside without a value their old one, or what a program left in its place."""
        self.release()
        for tensor, array in self.previous():
            if tensor._session is self:
                tensor._data, tensor._session, tensor._index, tensor._spec = array, None, -1, None
        for tensor, grad in self.grads_before():
            if tensor._grad is not None and tensor._grad._session is self:
                tensor._grad = grad
        self.finish_values()

    def grads_before(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Yield the Tensors outside whose ``grad`` was replaced, with the old one; the latest first."""
        return ((tensor, grad) for tensor, grad, _ in self.provenance.grads.values())

    def _new_grads(self) -> list[Tensor]:
        """Return the new gradients of Tensors outside that are in flight."""
        grads = (tensor._grad for tensor, _ in self.grads_before())
        return [grad for grad in grads if grad is not None and grad._session is self]

    def previous(self) -> Iterator[tuple[Tensor, Any]]:
        """Yield the Tensors that took new values in this call, with their old arrays; the latest first."""
        for reference, old in reversed(self._replaced):
            tensor = reference()
            array = self.values.get(old) if isinstance(old, int) else old
            if tensor is not None and array is not None:
                yield tensor, array
