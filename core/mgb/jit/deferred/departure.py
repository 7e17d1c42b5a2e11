"""In what a call that is matched departs from its record, and what is said then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...apply import caller
from ...errors import TraceError, TraceMismatchError
from ...ir import Op
from ...tensor import CONSTANT, Session, Tensor
from ..entry import END, READ, Entry, Literal
from ..entry import Ref as Recorded
from ..reasons import remedy, remedy_of_way
from ..record import Record
from .seed import Section

#: Mismatches that are another way through the body.
_WAYS = frozenset({"operator mismatch", "too many instructions", "mismature end"})


@dataclass(frozen=True, slots=True)
class Departure:
    """The first thing in which a call differs from its record.

    Attributes
    ----------
    error : TraceError
        What it is refused with.
    may : bool
        May a call do so, in parameters after the body has seen a value?
    frees : bool
        May it, and whatever comes then, as in the shape of a Tensor outside?
    """

    error: TraceError
    may: bool = False
    frees: bool = False


@dataclass(slots=True)
class Place:
    """Where a call has come in its record.

    Attributes
    ----------
    session : Session
    record : Record
    section : Section
    done : int
        How many of its links the call has gone.
    fed : sequence of arrays
        The external inputs of the sequence so far.
    looked : bool
        Has the body seen a value? Then parameters may follow from it.
    departed : bool
        Have parameters been others than recorded? Then numbers may be others as well.
    """

    session: Session[Tensor]
    record: Record
    section: Section
    done: int
    fed: Sequence[Any]
    looked: bool
    departed: bool

    @property
    def is_at_end(self) -> bool:
        """Has it come to where the section ends?"""
        return self.done >= len(self.section.steps)

    @property
    def step(self) -> int:
        """The step that comes now."""
        return self.section.end if self.is_at_end else self.section.steps[self.done]

    @property
    def entry(self) -> Entry:
        """That step."""
        return self.record.entries[self.step]

    def differs_in_op(self, op: Op, inputs: Sequence[Tensor], params: dict[str, Any]) -> Departure | None:
        """In what an op differs from the step that comes now."""
        entry = self.entry
        if entry.op is not op:
            mismatch = "too many instructions" if entry.op is END else "operator mismatch"
            promotes = op.name == "cast" and inputs[0]._session is not self.session  # as for another dtype
            return self._departure(mismatch, op.name, about="dtype mismatch" if promotes else mismatch)
        if len(inputs) != len(entry.args):
            return self._departure("inputs size mismatch", f"{op.name} of {len(inputs)} operands")
        for tensor, ref in zip(inputs, entry.args, strict=True):
            if (departure := self._differs_in_wiring(tensor, ref)) is not None:
                return departure
        if entry.params != params:
            return self._departure("operator mismatch", f"{op.name} with {params}", may=self.looked)
        for tensor, ref in zip(inputs, entry.args, strict=True):
            if isinstance(ref, Literal) and not ref.matches(tensor._data):
                about = "arrays not equal" if ref.array.ndim else ""
                now = str(Literal(tensor._data))
                return self._departure("tensors not equals", now, about=about, may=self.departed)
        return None

    def _differs_in_wiring(self, tensor: Tensor, ref: Recorded) -> Departure | None:
        """Does an operand come from elsewhere than `ref` says, or is it of another type?"""
        link = self.section.links.get(ref) if isinstance(ref, int) else None
        if tensor._session is self.session:
            if link is not None and tensor._index == link.index:
                return None
            mismatch = "input id mismatch" if link is not None else "expect external node, got internal"
            return self._departure(mismatch, f"the result of step {self.section.steps[tensor._index]}")
        if isinstance(ref, int) and ref in self.record.statics and link is None:
            return None
        converts = isinstance(ref, int) and ref < 0 and self.record.externals[-1 - ref].converts is not None
        if tensor._index == CONSTANT and isinstance(ref, int) and not converts:
            return self._departure("operator mismatch", f"the constant {tensor._data}")
        if link is not None:
            return self._departure("expect internal node, got external", "a tensor from outside")
        return None if isinstance(ref, Literal) or self.departed else self._differs_in_input(ref, tensor)

    def _differs_in_input(self, ref: int, tensor: Tensor) -> Departure | None:
        """Is the value of an input another one than before in this call, or of another type than recorded?"""
        array, now = tensor._data, f"input {-1 - ref}" if ref < 0 else f"the result of step {ref}"
        number, spec = self.section.inputs.get(ref, len(self.fed)), self.record.spec(ref)
        if number < len(self.fed):
            known = self.fed[number]
            if known is array or (tensor._index == CONSTANT and Literal(known).matches(array)):
                return None
            return self._departure("input id mismatch", "another tensor than before in its place")
        if array.dtype != spec.dtype:
            return self._departure(f"dtype mismatch: {spec.dtype} vs {array.dtype}", now)
        if tensor._device != spec.device:
            return self._departure(f"comp_node mismatch: {spec.device} vs {tensor._device}", now)
        if array.shape != spec.shape:
            return replace(self._departure("operator mismatch", now, may=True), frees=True)
        return None

    def differs_in_read(self, tensor: Tensor) -> Departure | None:
        """Is the value of `tensor` wanted, which the step that comes now does not read?"""
        step = self.section.steps[tensor._index]
        if self.entry.op is READ and self.entry.required == (step,):
            return None
        return self._departure("value unreadable", f"the value of step {step} was read")

    def differs_in_cut(self, op: Op) -> Departure | None:
        """Comes something else now than a cut of this kind?"""
        if self.entry.op is op:
            return None
        if op is END:
            return self._departure("mismature end", "the end of the function")
        return self._departure("operator mismatch", op.name)

    def _departure(self, mismatch: str, came: str, *, about: str = "", may: bool = False) -> Departure:
        entry, line = self.entry, caller()
        about = about or mismatch
        help = self._remedy_of_way(came, line) if about in _WAYS else remedy(about)
        text = (
            f"  step {self.step} recorded: {entry}  at {entry.source}\n"
            f"  now: {came}  at {line}\n"
            f"  remedy: {help}"
        )
        return Departure(TraceMismatchError(mismatch, text), may)

    def _remedy_of_way(self, came: str, line: str) -> str:
        entry, before = self.entry, self.record.entries[: self.step]
        read = next((e.source for e in reversed(before) if e.op is READ), None)
        here = ((entry.op.name, entry.source), (came, line))
        repeats = any((e.op.name, e.source) in here for e in before)
        return remedy_of_way(line, entry.source, read, repeats)
