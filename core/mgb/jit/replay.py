"""A later call: match each op against the record, and run segments when their values are wanted."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .. import dtypes
from ..apply import caller, constant, evaluate
from ..apply import record as tell_tapes
from ..errors import TraceError, TraceMismatchError
from ..ir import Op, Spec, input_node
from ..tensor import CONSTANT, Tensor, place, wrap
from .merging import is_same_step
from .reasons import of_constant, of_parameter, of_shape, remedy
from .record import CUTS, END, EXCLUDE, READ, Binding, Entry, External, Literal, Record, Ref, external_ref
from .session import CallSession
from .source import Held, Object
from .tree import flatten_once
from .variant import Variant

#: Of a call that keeps track of every Tensor: the steps it keeps track of.
_EVERY = range(1 << 62)

#: What a call that has departed is matched against: no op is like it.
_NO_ENTRIES = [Entry(END, (), {}, None, "")]


@dataclass(frozen=True, slots=True)
class _Departure:
    """The first thing in which a call differs from its record.

    Attributes
    ----------
    error : TraceError
        What it is refused with.
    reason : str
        Why it is recorded from there on, in the user's terms.
    may : bool
        May a call differ in this whatever the body found outside?
    """

    error: TraceError
    reason: str
    may: bool = False


class Replay(CallSession):
    """A session that follows a `Variant`.

    A call that departs from it goes over to another one that agrees with all so far. Where there is none,
    what has been computed so far stands, and the rest is run op by op and recorded, if the call may differ:
    in parameters after the body has seen a value, in the shape of a Tensor outside, or because what the body
    found outside is not as it was. Else it is refused.

    Parameters
    ----------
    variant : Variant
    others : iterator of Variant
        Those that the call may turn out to be one of.
    explained : callable or None
        Has something changed that the body of a record found outside?
    imperative : bool
        Match, and run each op eagerly.
    watches : bool
        Keep track of every Tensor, so that what is recorded of a call that departs is whole.

    Attributes
    ----------
    departure : _Departure or None
        Where the call parted with every variant there is; `record` goes on from there.
    """

    departure: _Departure | None = None
    _cursor = 0
    _segment = 0
    _looked = False  # has the body seen a value? Then parameters may follow from it
    _given: tuple[Op, tuple[Any, ...]] | None = None  # what the op to come was called with

    def __init__(
        self,
        variant: Variant,
        others: Iterator[Variant],
        explained: Callable[[Record], bool] | None,
        imperative: bool,
        watches: bool,
    ) -> None:
        super().__init__(variant.record)
        self.variant = variant
        self._others = others
        self._explained = explained
        self._imperative = imperative
        self._kept = _EVERY if imperative or watches else variant.kept
        self._entries = variant.record.entries
        self._specs = variant.specs
        self._fed_as: dict[int, int] = {}  # from the id of an array to its number in `fed`
        self._unchanged: list[tuple[Any, ...]] = []  # arrays that no program may overwrite: see `owned_alone`

    # the Session protocol

    def shortcut(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Tensor | None:
        entry = self._entries[self._cursor]
        refs = entry.args
        if entry.op is op and len(args) == len(refs) and entry.params == params:
            fed = self.fed
            tracked = False
            position = 0
            for a in args:
                ref = refs[position]
                position += 1  # noqa: SIM113 - `zip` and `enumerate` take a tenth of the time of an op
                if isinstance(a, Tensor):
                    if a._tape:
                        tracked = True
                    if a._session is self:
                        if a._index != ref:
                            break
                    elif ref.__class__ is not int:
                        if ref.array is not a._data:  # type: ignore[union-attr]
                            break
                    elif ref >= 0 or (
                        (fed[-1 - ref] is not a._data or a._data is None)
                        and not self._feeds_as_recorded(-1 - ref, a)
                    ):
                        break
                elif ref.__class__ is int or a is None or not ref.same_scalar(a):  # type: ignore[union-attr]
                    break
            else:
                return self._taped_result(entry, args) if tracked else self._result(entry)
        self._given = op, args
        return None

    def _taped_result(self, entry: Entry, args: tuple[Any, ...]) -> Tensor | None:
        """The result of `entry`, of which gradient tapes are told; None when they want the body instead."""
        op = entry.op
        if not op.differentiable:
            return self._result(entry)
        if op.grad is None and op.body is not None:
            return None
        device = entry.spec.device
        inputs = [
            a if isinstance(a, Tensor) else constant(ref.array, device)  # type: ignore[union-attr]
            for a, ref in zip(args, entry.args)
        ]
        out = self._result(entry)
        tell_tapes(op, inputs, out, entry.params)
        return out

    def _feeds_as_recorded(self, number: int, tensor: Tensor) -> bool:
        """Take `tensor` as an input that was not fed yet, if it looks as recorded."""
        if self.fed[number] is not None or tensor._session is not None or tensor._index == CONSTANT:
            return False
        array = tensor._data
        shape, dtype, device = self._specs[number]
        if array.shape != shape or array.dtype != dtype or tensor._device != device:
            return False
        self.fed[number] = array
        self._fed_as[id(array)] = number
        return True

    def step(self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any]) -> Tensor:
        given, self._given = self._given, None  # which keeps nothing alive
        if not self.left and self._follows(lambda entry: self._differs(entry, op, inputs, params)):
            entry = self._entries[self._cursor]
            for tensor, ref in zip(inputs, entry.args, strict=True):
                if ref.__class__ is int and ref < 0:
                    self._feed(-1 - ref, tensor)
            return self._result(entry)
        called_with = given[1] if given is not None and given[0] is op else ()
        return self._recorded(op, inputs, params, called_with)

    def read(self, tensor: Tensor) -> Any:
        if self._finished or self._failed:
            return self.late(tensor)
        step = tensor._index
        if step in self.record.statics:
            return self.record.static_value(step)
        if self.left or not self._follows(lambda entry: self._differs_in_read(entry, step)):
            return self._read_after(tensor)
        if self._is_read(self._entries[self._cursor], step):
            self._run_to_cut()
        return self.values[step]

    def seen(self, tensor: Tensor) -> None:
        if tensor._index != CONSTANT:
            self._looked = True

    def adopt(self, alias: Tensor, original: Tensor) -> None:
        if alias._index in self._kept:
            super().adopt(alias, original)

    def outside(self, tensor: Tensor) -> Any:
        number = self._fed_as.get(id(tensor._data))  # with another reference it could not be updated in place
        return tensor._data if number is None else external_ref(number)

    # cuts

    def pause(self) -> None:
        """Enter `exclude_from_trace`: everything that was alive here when recorded gets its value."""
        if not self.left and self._follows(lambda entry: self._differs_in_cut(entry, EXCLUDE)):
            self._run_to_cut()
            self.release()
        else:
            self._exclude()
        self.paused = True

    def resume(self) -> None:
        """Leave `exclude_from_trace`."""
        self.paused = False

    def finish(self, result: Any) -> None:
        """The body is done, with `result`: check that nothing is missing and run what has not run."""
        if not self.left and self._follows(lambda entry: self._differs_in_end(entry, result)):
            self._run_to_cut()
        else:
            self._end()
        self.settle()

    def _run_to_cut(self) -> None:
        self._looked = True
        if not self._imperative:
            keeps = self._explained is not None and self._entries[self._cursor].op is not END
            if keeps:
                self._unchanged.append(tuple(self.fed))
            self.run_segment(self.variant, self._segment, keeps)
        self._segment += 1
        self._cursor += 1

    # matching

    def _differs(
        self, entry: Entry, op: Op, inputs: Sequence[Tensor], params: dict[str, Any]
    ) -> _Departure | None:
        """In what an op differs from the step `entry`."""
        if entry.op is not op:
            reason = "too many instructions" if entry.op is END else "operator mismatch"
            promotes = op.name == "cast" and inputs[0]._session is not self  # as it does for another dtype
            return self._departure(reason, entry, op.name, about="dtype mismatch" if promotes else reason)
        if len(inputs) != len(entry.args):
            return self._departure("inputs size mismatch", entry, f"{op.name} of {len(inputs)} operands")
        for tensor, ref in zip(inputs, entry.args, strict=True):
            if (departure := self._differs_in_wiring(tensor, ref, entry)) is not None:
                return departure
        if entry.params != params:
            reason, now = of_parameter(entry, params), f"{op.name} with {params}"
            return self._departure("operator mismatch", entry, now, because=reason, may=self._looked)
        for tensor, ref in zip(inputs, entry.args, strict=True):
            if isinstance(ref, Literal) and not ref.matches(tensor._data):
                about = "arrays not equal" if ref.array.ndim else None
                now, because = str(Literal(tensor._data)), of_constant(entry, ref, tensor._data)
                return self._departure("tensors not equals", entry, now, about=about, because=because)
        return None

    def _differs_in_wiring(self, tensor: Tensor, ref: Ref, entry: Entry) -> _Departure | None:
        """Does an operand come from elsewhere than `ref` says, or is it of another type?"""
        is_own, is_constant = tensor._session is self, tensor._index == CONSTANT
        if is_own and (isinstance(ref, Literal) or ref < 0):
            now = f"the result of step {tensor._index}"
            return self._departure("expect external node, got internal", entry, now)
        if is_own:
            if tensor._index == ref:
                return None
            return self._departure("input id mismatch", entry, f"the result of step {tensor._index}")
        if is_constant and not isinstance(ref, Literal):
            if ref >= 0 or self.record.externals[-1 - ref].converts is None:
                return self._departure("operator mismatch", entry, f"the constant {tensor._data}")
        else:
            self.check_foreign(tensor)
        if isinstance(ref, Literal):
            return None
        if ref >= 0:
            return self._departure("expect internal node, got external", entry, "a tensor from outside")
        return self._differs_in_input(-1 - ref, tensor, entry)

    def _differs_in_input(self, number: int, tensor: Tensor, entry: Entry) -> _Departure | None:
        """Is the value of an input another one than before in this call, or of another type than recorded?"""
        array, known, external = tensor._data, self.fed[number], self.record.externals[number]
        if known is not None:
            if known is array or (tensor._index == CONSTANT and Literal(known).matches(array)):
                return None
            return self._departure("input id mismatch", entry, "another tensor than before in its place")
        recorded = external.node.spec
        now = f"input {number}"
        if array.dtype != recorded.dtype:
            return self._departure(f"dtype mismatch: {recorded.dtype} vs {array.dtype}", entry, now)
        if tensor._device != recorded.device:
            return self._departure(f"comp_node mismatch: {recorded.device} vs {tensor._device}", entry, now)
        if array.shape != recorded.shape:
            because = of_shape(external, array.shape)
            return self._departure("operator mismatch", entry, now, because=because, may=True)
        return None

    def _differs_in_read(self, entry: Entry, step: int) -> _Departure | None:
        if step in self.values or (self._is_read(entry, step) and not self.paused):
            return None
        return self._departure("value unreadable", entry, f"the value of step {step} was read")

    @staticmethod
    def _is_read(entry: Entry, step: int) -> bool:
        return entry.op is READ and entry.required == (step,)

    def _differs_in_cut(self, entry: Entry, op: Op) -> _Departure | None:
        if entry.op is op:
            return None
        reason, now = (
            ("mismature end", "the end of the function") if op is END else ("operator mismatch", op.name)
        )
        return self._departure(reason, entry, now)

    def _differs_in_end(self, entry: Entry, result: Any) -> _Departure | None:
        """Is there more, or is a value returned that was dead at the end of the recorded call?"""
        departure = self._differs_in_cut(entry, END)
        for leaf in flatten_once(result)[0] if departure is None and result is not None else ():
            if isinstance(leaf, Tensor) and leaf._session is self:
                if leaf._index not in self.variant.kept and leaf._index not in self.record.statics:
                    return _Departure(
                        self.unreadable(leaf), f"the result of {self.entry(leaf._index)} is returned now"
                    )
        return departure

    def _feed(self, number: int, tensor: Tensor) -> None:
        if self.fed[number] is None:
            self.fed[number] = tensor._data
            self._fed_as[id(tensor._data)] = number

    def _result(self, entry: Entry) -> Tensor:
        index = self._cursor
        self._cursor = index + 1
        out = place(self, index, entry.node.spec)  # type: ignore[union-attr]
        if index in self._kept:
            self._tensors.append(weakref.ref(out))
            if self._imperative:
                self.values[index] = evaluate(entry.op, self.operands(entry.args), entry.params, out._device)
        return out

    def _departure(
        self,
        mismatch: str,
        entry: Entry,
        came: str,
        *,
        about: str | None = None,
        because: str | None = None,
        may: bool = False,
    ) -> _Departure:
        text = (
            f"  step {self._cursor} recorded: {entry}  at {entry.source}\n"
            f"  now: {came}  at {caller()}\n"
            f"  remedy: {remedy(about or mismatch)}"
        )
        reason = because or f"{came} at {caller()} comes where {entry} at {entry.source} was recorded"
        return _Departure(TraceMismatchError(mismatch, text), reason, may)

    # departing

    @property
    def left(self) -> bool:
        """Is the call recorded from here on?"""
        return self.departure is not None

    @property
    def ended_early(self) -> bool:
        return self.left or super().ended_early

    def _follows(self, differs: Callable[[Entry], _Departure | None]) -> bool:
        """Does the call follow its variant, or another one, in what comes now? Else it departs."""
        departure = differs(self._entries[self._cursor])
        if departure is None:
            return True
        first = self.variant
        for other in self._others:
            if self._agrees(other):
                self._take(other)
                if differs(self._entries[self._cursor]) is None:
                    return True
        self._take(first)
        if not departure.may and (self._explained is None or not self._explained(self.record)):
            raise departure.error
        self._depart(departure)
        return False

    def _agrees(self, other: Variant) -> bool:
        """Has the call done what `other` says, and can the values be had that are wanted there later?"""
        steps, record = self._cursor, other.record
        count = self.record.inputs_before(steps)
        return (
            len(record.entries) > steps
            and other.specs[:count] == self._specs[:count]
            and all(map(is_same_step, self._entries[:steps], record.entries))
            and self.lost().isdisjoint(self._missing(other))
        )

    def _missing(self, variant: Variant) -> list[int]:
        """The steps whose values `variant` wants later, and that no program of this call has given."""
        return [s for part in variant.segments[: self._segment] for s in part.outputs if s not in self.values]

    def _take(self, variant: Variant) -> None:
        """Follow `variant` from here on."""
        self._restart(self.record.inputs_before(self._cursor), variant.record)
        self.variant, self._entries, self._specs = variant, variant.record.entries, variant.specs
        self._kept = self._kept if self._kept is _EVERY else variant.kept
        self.evaluate(self._missing(variant))

    def _restart(self, count: int, record: Record) -> None:
        """Go on with `record`; what was fed are its first inputs, `count` of them."""
        self.record = record
        self.fed = [*self.fed[:count], *[None] * (len(record.externals) - count)]
        self._fed_as = {array: number for array, number in self._fed_as.items() if number < count}

    def _depart(self, departure: _Departure) -> None:
        """Record what comes now: what is alive has its value, the rest gets it when it is asked for.

        A step whose value no program gave stays unreadable if what it was made of has been replaced since.
        """
        for step in self.record.statics:
            if step < self._cursor:
                self.values[step] = self.record.static_value(step)
        alive, lost = self.alive(), self.lost()
        self.evaluate({t._index for t in alive} - lost)
        for tensor in alive:
            tensor._data = self.values.get(tensor._index)
        self._restart(self.record.inputs_before(self._cursor), self.record.begun(self._cursor))
        self._entries, self._cursor, self._kept = _NO_ENTRIES, 0, _EVERY
        self.departure = departure
        if self.paused:
            self._exclude(self.record.entries.pop().required)

    def _recorded(
        self, op: Op, inputs: Sequence[Tensor], params: dict[str, Any], given: Sequence[Any]
    ) -> Tensor:
        """The result of an op after the departure, which was called with `given`."""
        raws = given if len(given) == len(inputs) else [None] * len(inputs)
        args = tuple([self._ref(tensor, raw) for tensor, raw in zip(inputs, raws)])
        entry = self.record.step(op, args, params)
        arrays = [t._data if t._data is not None else self.value(t) for t in inputs]
        out = wrap(evaluate(op, arrays, params, entry.spec.device), entry.spec.device)
        out._session, out._index = self, len(self.record.entries) - 1
        self._tensors.append(weakref.ref(out))
        return out

    def _ref(self, tensor: Tensor, raw: Any) -> Ref:
        """Where an operand comes from, of which `raw` is the Python number, if it is one."""
        if tensor._session is self:
            return tensor._index
        array, device = tensor._data, tensor._device
        if tensor._index == CONSTANT:
            return Literal(array, raw if type(raw) in dtypes.WEAK else None, device=device)
        self.check_foreign(tensor)
        number = self._fed_as.get(id(tensor._data))
        if number is None:
            array, line = tensor._data, caller()
            number = self._fed_as[id(array)] = len(self.fed)
            self.record.externals.append(
                External(input_node(Spec(array.shape, array.dtype, device), line), source=line)
            )
            self.fed.append(array)
        return external_ref(number)

    def _read_after(self, tensor: Tensor) -> Any:
        """The value of a Tensor that is read after the departure."""
        if tensor._session is not self:  # it got its value by that
            return tensor._data
        if self.paused:
            return self.late(tensor)
        step = tensor._index
        if not any(step in entry.required for entry in self.record.entries if entry.op in CUTS):
            self._cut(READ, (step,))
        return self.value(tensor)

    def _exclude(self, known: Sequence[int] = ()) -> None:
        self._cut(EXCLUDE, (*known, *(t._index for t in self.alive())))
        self.release()

    def _end(self) -> None:
        self._cut(END, [t._index for t in self.alive()])
        for reference, old in self._replaced:
            tensor = reference()
            if tensor is not None and tensor._session is self and isinstance(old, int) and old < 0:
                binding = Binding(tensor._index, Object(Held(tensor)), -1 - old)
                self.record.bindings.append(binding)

    def _cut(self, op: Op, steps: Sequence[int]) -> None:
        self.record.cut(Entry(op, (), {}, None, caller(), tuple(sorted(set(steps)))))
