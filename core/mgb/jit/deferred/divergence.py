"""Compare a call with its record, and describe the first divergence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import TraceError, TraceMismatchError
from ...ir import Op
from ...tensor import CONSTANT, Session, Tensor
from ...tensor.apply import caller
from ..entry import END, READ, Entry, Literal
from ..entry import Ref as Recorded
from ..reasons import suggest_remedy, suggest_remedy_for_path
from ..record import Record
from .seed import Section

#: Mismatches that mean another path through the body.
_PATH_MISMATCHES = frozenset({"operator mismatch", "too many instructions", "mismature end"})


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first step in which a call differs from its record.

    Attributes
    ----------
    error : TraceError
        The error that reports it.
    is_allowed : bool
        A call may diverge so: in parameters, after the body has read a value.
    ends_matching : bool
        Everything after it may diverge as well, as when a Tensor outside has another shape.
    """

    error: TraceError
    is_allowed: bool = False
    ends_matching: bool = False


@dataclass(slots=True)
class Position:
    """The position of a call in its record.

    Attributes
    ----------
    session : Session
    record : Record
    section : Section
    done : int
        How many links of the section the call has passed.
    fed : sequence of arrays
        The external inputs of the sequence so far.
    has_read : bool
        The body has read a value, so parameters may depend on it.
    has_diverged : bool
        Parameters have differed from the record, so numbers may differ as well.
    """

    session: Session[Tensor]
    record: Record
    section: Section
    done: int
    fed: Sequence[Any]
    has_read: bool
    has_diverged: bool

    @property
    def is_at_end(self) -> bool:
        """Check whether the call is where the section ends."""
        return self.done >= len(self.section.steps)

    @property
    def step(self) -> int:
        """Return the next recorded step."""
        return self.section.end if self.is_at_end else self.section.steps[self.done]

    @property
    def entry(self) -> Entry:
        """Return the entry of that step."""
        return self.record.entries[self.step]

    def compare_op(self, op: Op, inputs: Sequence[Tensor], params: dict[str, Any]) -> Divergence | None:
        """Return how an op differs from the next step."""
        entry = self.entry
        if entry.op is not op:
            mismatch = "too many instructions" if entry.op is END else "operator mismatch"
            promotes = op.name == "cast" and inputs[0]._session is not self.session  # as for another dtype
            return self._diverge(mismatch, op.name, about="dtype mismatch" if promotes else mismatch)
        if len(inputs) != len(entry.args):
            return self._diverge("inputs size mismatch", f"{op.name} of {len(inputs)} operands")
        for tensor, ref in zip(inputs, entry.args, strict=True):
            if (divergence := self._compare_operand(tensor, ref)) is not None:
                return divergence
        if entry.params != params:
            return self._diverge("operator mismatch", f"{op.name} with {params}", is_allowed=self.has_read)
        for tensor, ref in zip(inputs, entry.args, strict=True):
            if isinstance(ref, Literal) and not ref.matches(tensor._data):
                about = "arrays not equal" if ref.array.ndim else ""
                now = str(Literal(tensor._data))
                return self._diverge("tensors not equals", now, about=about, is_allowed=self.has_diverged)
        return None

    def _compare_operand(self, tensor: Tensor, ref: Recorded) -> Divergence | None:
        """Return how an operand differs from `ref` in its origin or its type."""
        link = self.section.links.get(ref) if isinstance(ref, int) else None
        if tensor._session is self.session:
            if link is not None and tensor._index == link.index:
                return None
            mismatch = "input id mismatch" if link is not None else "expect external node, got internal"
            return self._diverge(mismatch, f"the result of step {self.section.steps[tensor._index]}")
        if isinstance(ref, int) and ref in self.record.statics and link is None:
            return None
        converts = isinstance(ref, int) and ref < 0 and self.record.externals[-1 - ref].converts is not None
        if tensor._index == CONSTANT and isinstance(ref, int) and not converts:
            return self._diverge("operator mismatch", f"the constant {tensor._data}")
        if link is not None:
            return self._diverge("expect internal node, got external", "a tensor from outside")
        return None if isinstance(ref, Literal) or self.has_diverged else self._compare_input(ref, tensor)

    def _compare_input(self, ref: int, tensor: Tensor) -> Divergence | None:
        """Return how an input differs from its value earlier in this call, or from its recorded type."""
        array, now = tensor._data, f"input {-1 - ref}" if ref < 0 else f"the result of step {ref}"
        number, spec = self.section.inputs.get(ref, len(self.fed)), self.record.spec(ref)
        if number < len(self.fed):
            known = self.fed[number]
            if known is array or (tensor._index == CONSTANT and Literal(known).matches(array)):
                return None
            return self._diverge("input id mismatch", "another tensor than before in its place")
        if array.dtype != spec.dtype:
            return self._diverge(f"dtype mismatch: {spec.dtype} vs {array.dtype}", now)
        if tensor._device != spec.device:
            return self._diverge(f"comp_node mismatch: {spec.device} vs {tensor._device}", now)
        if array.shape != spec.shape:
            return replace(self._diverge("operator mismatch", now, is_allowed=True), ends_matching=True)
        return None

    def compare_read(self, tensor: Tensor) -> Divergence | None:
        """Return the divergence of reading `tensor` where the record reads no such value."""
        step = self.section.steps[tensor._index]
        if self.entry.op is READ and self.entry.required == (step,):
            return None
        return self._diverge("value unreadable", f"the value of step {step} was read")

    def compare_cut(self, op: Op) -> Divergence | None:
        """Return the divergence of a cut of this kind where the record has none."""
        if self.entry.op is op:
            return None
        if op is END:
            return self._diverge("mismature end", "the end of the function")
        return self._diverge("operator mismatch", op.name)

    def _diverge(self, mismatch: str, came: str, *, about: str = "", is_allowed: bool = False) -> Divergence:
        entry, line = self.entry, caller()
        about = about or mismatch
        help = self._suggest_for_path(came, line) if about in _PATH_MISMATCHES else suggest_remedy(about)
        text = (
            f"  step {self.step} recorded: {entry}  at {entry.source}\n"
            f"  now: {came}  at {line}\n"
            f"  remedy: {help}"
        )
        return Divergence(TraceMismatchError(mismatch, text), is_allowed)

    def _suggest_for_path(self, came: str, line: str) -> str:
        entry, before = self.entry, self.record.entries[: self.step]
        read = next((e.source for e in reversed(before) if e.op is READ), None)
        here = ((entry.op.name, entry.source), (came, line))
        repeats = any((e.op.name, e.source) in here for e in before)
        return suggest_remedy_for_path(line, entry.source, read, repeats)
