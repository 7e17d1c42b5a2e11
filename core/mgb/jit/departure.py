"""In what a call that is matched departs from its record, and what is said then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..apply import caller
from ..errors import TraceError, TraceMismatchError
from ..ir import Op
from ..tensor import CONSTANT, Tensor
from .entry import END, READ, Entry, Literal, Ref
from .reasons import of_constant, of_parameter, of_shape, remedy, remedy_of_way
from .session import CallSession
from .tree import flatten_once
from .variant import Variant

#: Mismatches that are another way through the body.
_WAYS = frozenset({"operator mismatch", "too many instructions", "mismature end"})


class Matched(CallSession):
    """A call that is matched: what it follows, and how far it has come.

    Attributes
    ----------
    entries : sequence of Entry
        What is followed, of which the one at `cursor` comes now.
    specs : sequence
        Shape, dtype and device of each input.
    looked : bool
        Has the body seen a value? Then parameters may follow from it.
    """

    variant: Variant
    entries: Sequence[Entry]
    specs: Sequence[tuple[Any, Any, str]]
    cursor = 0
    looked = False


@dataclass(frozen=True, slots=True)
class Departure:
    """The first thing in which a call differs from its record.

    Attributes
    ----------
    error : TraceError
        What it is refused with.
    reason : str
        What it differs in, in the user's terms.
    may : bool
        May a call do so whatever the body found outside?
    number : int or None
        Which operand it is, if it differs in a Python number, or the elements of an array, alone.
    """

    error: TraceError
    reason: str
    may: bool = False
    number: int | None = None


def differs_in_op(
    call: Matched, entry: Entry, op: Op, inputs: Sequence[Tensor], params: dict[str, Any]
) -> Departure | None:
    """In what an op differs from the step `entry`."""
    if entry.op is not op:
        mismatch = "too many instructions" if entry.op is END else "operator mismatch"
        promotes = op.name == "cast" and inputs[0]._session is not call  # as it does for another dtype
        return _departure(call, mismatch, op.name, about="dtype mismatch" if promotes else mismatch)
    if len(inputs) != len(entry.args):
        return _departure(call, "inputs size mismatch", f"{op.name} of {len(inputs)} operands")
    for tensor, ref in zip(inputs, entry.args, strict=True):
        if (departure := _differs_in_wiring(call, tensor, ref)) is not None:
            return departure
    if entry.params != params:
        reason, now = of_parameter(entry, params), f"{op.name} with {params}"
        return _departure(call, "operator mismatch", now, reason=reason, may=call.looked)
    for position, (tensor, ref) in enumerate(zip(inputs, entry.args, strict=True)):
        if isinstance(ref, Literal) and not ref.matches(tensor._data):
            return _differs_in_constant(call, entry, position, ref, tensor)
    return None


def _differs_in_wiring(call: Matched, tensor: Tensor, ref: Ref) -> Departure | None:
    """Does an operand come from elsewhere than `ref` says, or is it of another type?"""
    is_inside = not isinstance(ref, Literal) and ref >= 0
    if tensor._session is call:
        if tensor._index == ref:
            return None
        mismatch = "input id mismatch" if is_inside else "expect external node, got internal"
        return _departure(call, mismatch, f"the result of step {tensor._index}")
    if tensor._index != CONSTANT:
        call.check_foreign(tensor)
    elif is_inside or (isinstance(ref, int) and call.record.externals[-1 - ref].converts is None):
        return _departure(call, "operator mismatch", f"the constant {tensor._data}")
    if isinstance(ref, Literal):
        return None
    if is_inside:
        return _departure(call, "expect internal node, got external", "a tensor from outside")
    return _differs_in_input(call, -1 - ref, tensor)


def _differs_in_input(call: Matched, number: int, tensor: Tensor) -> Departure | None:
    """Is the value of an input another one than before in this call, or of another type than recorded?"""
    array, known, now = tensor._data, call.fed[number], f"input {number}"
    if known is not None:
        if known is array or (tensor._index == CONSTANT and Literal(known).matches(array)):
            return None
        return _departure(call, "input id mismatch", "another tensor than before in its place")
    shape, dtype, device = call.specs[number]
    if array.dtype != dtype:
        return _departure(call, f"dtype mismatch: {dtype} vs {array.dtype}", now)
    if tensor._device != device:
        return _departure(call, f"comp_node mismatch: {device} vs {tensor._device}", now)
    if array.shape != shape:
        reason = of_shape(call.record.externals[number], array.shape)
        return _departure(call, "operator mismatch", now, reason=reason, may=True)
    return None


def _differs_in_constant(
    call: Matched, entry: Entry, position: int, ref: Literal, tensor: Tensor
) -> Departure:
    now, reason = str(Literal(tensor._data)), of_constant(entry, ref, tensor._data)
    about = "arrays not equal" if ref.array.ndim else ""
    departure = _departure(call, "tensors not equals", now, reason=reason, about=about)
    array = tensor._data
    is_alike = array.dtype == ref.array.dtype and array.shape == ref.array.shape
    is_made = ref.raw is not None if not array.ndim else ref.owner is None  # of a number, or by Python
    if not (is_alike and is_made) or tensor._index != CONSTANT or call.cursor in call.record.statics:
        return departure
    return replace(departure, reason=reason + "; it is an input now", number=position)


def differs_in_read(call: Matched, entry: Entry, step: int) -> Departure | None:
    """Is the value of `step` wanted, which `entry` does not read?"""
    if step in call.values or (is_read(entry, step) and not call.paused):
        return None
    return _departure(call, "value unreadable", f"the value of step {step} was read")


def is_read(entry: Entry, step: int) -> bool:
    """Does it read the value of `step` alone?"""
    return entry.op is READ and entry.required == (step,)


def differs_in_cut(call: Matched, entry: Entry, op: Op, result: Any = None) -> Departure | None:
    """Is `entry` no cut of this kind, or was a value that is returned now dead when it was recorded?"""
    if entry.op is not op:
        if op is END:
            return _departure(call, "mismature end", "the end of the function")
        return _departure(call, "operator mismatch", op.name)
    if result is not None:
        for leaf in (result,) if isinstance(result, Tensor) else flatten_once(result)[0]:
            if isinstance(leaf, Tensor) and leaf._session is call:
                if leaf._index not in call.variant.live_out and leaf._index not in call.record.statics:
                    return Departure(call.unreadable(leaf), f"{call.entry(leaf._index)} is returned now")
    return None


def _remedy_of_way(call: Matched, entry: Entry, came: str, line: str) -> str:
    before = call.entries[: call.cursor]
    read = next((e.source for e in reversed(before) if e.op is READ), None)
    here = ((entry.op.name, entry.source), (came, line))
    repeats = any((e.op.name, e.source) in here for e in before)
    return remedy_of_way(line, entry.source, read, repeats)


def _departure(
    call: Matched, mismatch: str, came: str, *, about: str = "", reason: str = "", may: bool = False
) -> Departure:
    entry, line = call.entries[call.cursor], caller()
    about = about or mismatch
    help = _remedy_of_way(call, entry, came, line) if about in _WAYS else remedy(about)
    text = (
        f"  step {call.cursor} recorded: {entry}  at {entry.source}\n"
        f"  now: {came}  at {line}\n"
        f"  remedy: {help}"
    )
    reason = reason or f"{came} at {line} comes where {entry} at {entry.source} was recorded"
    return Departure(TraceMismatchError(mismatch, text), reason, may)
