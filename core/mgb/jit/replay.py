"""A later call: match each op against the record, and run segments when their values are wanted."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from .. import device as devices
from ..apply import caller, constant, evaluate
from ..apply import record as tell_tapes
from ..errors import TraceMismatchError
from ..ir import Op, Spec, input_node
from ..tensor import CONSTANT, Tensor, place, wrap
from .reasons import Difference, remedy
from .record import END, EXCLUDE, READ, Entry, External, Literal, Record, Ref, external_ref
from .session import CallSession
from .tree import flatten_once
from .variant import Variant
from .variants import Variants


class _OtherOps(Exception):
    """A call with other shapes does other ops than recorded."""


class Replay(CallSession):
    """A session that follows a `Variant`.

    When an input comes with another shape, the rest of the call grows a new record: specs, shape parameters
    and Python numbers are taken as they come. Where other ops follow from it, the call leaves its record and
    runs op by op from there on. Otherwise ops and wiring are as recorded, or the call is refused.

    Parameters
    ----------
    variant : Variant
    variants : Variants
        Others, which the call may turn out to be one of.
    regrow : callable
        Makes the Variant of a record that grows over the segments of `variant`.
    imperative : bool
        Match, and run each op eagerly.
    reshaped : bool
        Are the arguments of other shapes than any known? Parameters and Python numbers may follow from that.

    Attributes
    ----------
    explained : callable, optional
        Asked where other ops than recorded follow: has something changed that the recorded body read?
        Then the call leaves its record, without an error.
    grown : Difference or None
        Where the call parted with every record there is.
    left : bool
        Does the call run op by op?
    """

    grown: Difference | None = None
    explained: Callable[[Record], bool] | None = None
    _cursor = 0
    _segment = 0
    left = False
    _looked = False  # has the body seen a value? Then parameters may follow from it

    def __init__(
        self,
        variant: Variant,
        variants: Variants,
        regrow: Callable[[Record, Variant], Variant],
        imperative: bool,
        reshaped: bool,
    ) -> None:
        super().__init__(variant.record)
        self.variant = variant
        self._variants = variants
        self._regrow = regrow
        self._imperative, self.reshaped = imperative, reshaped
        self._kept = range(len(variant.record.entries)) if imperative or reshaped else variant.kept
        self._entries = variant.record.entries
        self._specs = variant.specs
        self._fed_as: dict[int, int] = {}  # from the id of an array to its number in `fed`
        self._unchanged: list[tuple[Any, ...]] = []  # arrays that no program may overwrite: see `owned_alone`

    # the Session protocol

    def shortcut(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Tensor | None:
        entry = self._entries[self._cursor]
        refs = entry.args
        if entry.op is not op or self.grown or len(args) != len(refs) or entry.params != params:
            return None
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
                        return None
                elif ref.__class__ is not int:
                    if ref.array is not a._data:  # type: ignore[union-attr]
                        return None
                elif ref >= 0 or (
                    (fed[-1 - ref] is not a._data or a._data is None)
                    and not self._feeds_as_recorded(-1 - ref, a)
                ):
                    return None
            elif ref.__class__ is int or a is None or not ref.same_scalar(a):  # type: ignore[union-attr]
                return None
        return self._taped_result(entry, args) if tracked else self._result(entry)

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
        try:
            return self._evaluated(op, inputs, params) if self.left else self._matched(op, inputs, params)
        except _OtherOps:
            self._leave()
            return self._evaluated(op, inputs, params)

    def _matched(self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any]) -> Tensor:
        entry = self._expect(op, inputs)
        new: dict[int, Spec] = {}  # of external inputs that have another shape than recorded
        for tensor, ref in zip(inputs, entry.args, strict=True):
            self._match(tensor, ref, entry, new)
        if not self.grown and (new or not _agrees(entry, inputs, params)):
            entry = self._part(entry, inputs, params, new)
        if self.grown:
            entry = self._grow(entry, inputs, params, new)
        return self._result(entry)

    def read(self, tensor: Tensor) -> Any:
        step = tensor._index
        if self.ended_early:
            return self.late(tensor)
        if step in self.record.statics:
            return self.record.static_value(step)
        if self._imperative or step in self.values:
            self._skip_read(step)
            return self.values[step]
        if self._finished or (self.paused and not self._may_leave):
            raise self.unreadable(tensor)
        entry = self._entries[self._cursor]
        try:
            if self.paused or entry.op is not READ or entry.required != (step,):
                self._mismatch("value unreadable", entry, f"the value of step {step} was read")
            self._run_to_cut()
        except _OtherOps:
            self._leave()
        if step not in self.values:
            raise self.unreadable(tensor)
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
        if self.left:
            return
        entry = self._entries[self._cursor]
        try:
            if entry.op is not EXCLUDE:
                self._mismatch("operator mismatch", entry, "exclude_from_trace")
            self._run_to_cut()
            self.release()
            self.paused = True
        except _OtherOps:
            self._leave()

    def resume(self) -> None:
        """Leave `exclude_from_trace`."""
        self.paused = self.left

    def finish(self, result: Any) -> None:
        """The body is done, with `result`: check that nothing is missing and run what has not run."""
        entry = self._entries[self._cursor]
        try:
            if entry.op is not END:
                self._mismatch("mismature end", entry, "the end of the function")
            if not self.left:
                self._check_returned(result, self.variant.kept)
                self._run_to_cut()
        except _OtherOps:
            self._leave()
        self.settle()

    def _check_returned(self, result: Any, kept: frozenset[int]) -> None:
        """Refuse to return a value that was dead at the end of the recorded call."""
        if isinstance(result, Tensor):
            if result._index not in kept and result._session is self:
                if result._index not in self.record.statics and not self._may_leave:
                    raise self.unreadable(result)
        elif result is not None:
            for leaf in flatten_once(result)[0]:
                if isinstance(leaf, Tensor):
                    self._check_returned(leaf, kept)

    def _run_to_cut(self) -> None:
        self._looked = True
        if self.grown:
            self.record.cut(self._entries[self._cursor])
        if not self._imperative:
            keeps = self._may_leave and self._entries[self._cursor].op is not END
            if keeps:
                self._unchanged.append(tuple(self.fed))
            self.run_segment(self.variant, self._segment, keeps)
        self._segment += 1
        self._cursor += 1

    def _skip_read(self, step: int) -> None:
        if self._finished:
            return
        entry = self._entries[self._cursor]
        if entry.op is READ and entry.required == (step,):
            self._run_to_cut()

    # matching

    def _expect(self, op: Op, inputs: Sequence[Tensor]) -> Entry:
        entry = self._entries[self._cursor]
        if entry.op is not op:
            reason = "too many instructions" if entry.op is END else "operator mismatch"
            promotes = op.name == "cast" and inputs[0]._session is not self  # as it does for another dtype
            self._mismatch(reason, entry, op.name, about="dtype mismatch" if promotes else reason)
        if len(inputs) != len(entry.args):
            self._mismatch("inputs size mismatch", entry, f"{op.name} of {len(inputs)} operands")
        return entry

    def _match(self, tensor: Tensor, ref: Ref, entry: Entry, new: dict[int, Spec]) -> None:
        if isinstance(ref, Literal):
            if tensor._session is self:
                self._mismatch_internal(tensor, entry)
            self.check_foreign(tensor)
        elif tensor._session is self:
            if ref < 0:
                self._mismatch_internal(tensor, entry)
            if tensor._index != ref:
                self._mismatch("input id mismatch", entry, f"the result of step {tensor._index}")
        elif tensor._index == CONSTANT and ref < 0 and self.record.externals[-1 - ref].converts is not None:
            self._feed(-1 - ref, tensor, entry, new)
        elif tensor._index == CONSTANT:
            self._mismatch("operator mismatch", entry, f"the constant {tensor._data}")
        else:
            self.check_foreign(tensor)
            if ref >= 0:
                self._mismatch("expect internal node, got external", entry, "a tensor from outside")
            self._feed(-1 - ref, tensor, entry, new)

    def _mismatch_internal(self, tensor: Tensor, entry: Entry) -> NoReturn:
        self._mismatch("expect external node, got internal", entry, f"the result of step {tensor._index}")

    def _feed(self, number: int, tensor: Tensor, entry: Entry, new: dict[int, Spec]) -> None:
        array = tensor._data
        if self.fed[number] is not None:
            known = self.fed[number]
            if known is not array and not (tensor._index == CONSTANT and Literal(known).matches(array)):
                self._mismatch("input id mismatch", entry, "another tensor than before in its place")
            return
        external = self.record.externals[number]
        recorded = external.node.spec
        if array.dtype != recorded.dtype or tensor._device != recorded.device:
            self._mismatch_type(external, tensor, entry, f"input {number}")
        self.fed[number] = array
        self._fed_as[id(array)] = number
        if array.shape != recorded.shape:
            new[number] = Spec(array.shape, array.dtype, tensor._device)

    def _mismatch_type(self, external: External, tensor: Tensor, entry: Entry, name: str) -> NoReturn:
        """Another dtype or device does not follow from other shapes, but another Tensor may."""
        recorded, dtype = external.node.spec, tensor._data.dtype
        reason = f"dtype mismatch: {recorded.dtype} vs {dtype}"
        if dtype == recorded.dtype:
            reason = f"comp_node mismatch: {recorded.device} vs {tensor._device}"
        same = external.leaf is not None or external.tensor() is tensor
        self._mismatch(reason, entry, name, always=same)

    def _result(self, entry: Entry) -> Tensor:
        index = self._cursor
        self._cursor = index + 1
        out = place(self, index, entry.node.spec)  # type: ignore[union-attr]
        if index in self._kept:
            self._tensors.append(weakref.ref(out))
            if self._imperative:
                self.values[index] = evaluate(entry.op, self.operands(entry.args), entry.params, out._device)
        return out

    @property
    def ended_early(self) -> bool:
        return self.left or super().ended_early

    @property
    def _may_leave(self) -> bool:
        """May other ops follow than recorded?"""
        return self.reshaped or self.grown is not None or self.explained is not None

    def _mismatch(
        self, reason: str, entry: Entry, came: str, *, always: bool = False, about: str | None = None
    ) -> NoReturn:
        if self.explained is not None and self.explained(self.record):
            raise _OtherOps
        if (self.reshaped or self.grown is not None) and not always:
            raise _OtherOps
        raise TraceMismatchError(
            reason,
            f"  step {self._cursor} recorded: {entry}  at {entry.source}\n"
            f"  now: {came}  at {caller()}\n"
            f"  remedy: {remedy(about or reason)}",
        )

    # other shapes

    def _leave(self) -> None:
        """Give what is kept its value, the rest when it is asked for; what comes now is evaluated at once.

        A step whose value no program gave stays unreadable if what it was made of has been replaced since.
        """
        self.values.update((s, self.record.static_value(s)) for s in self.record.statics if s < self._cursor)
        self.evaluate({t._index for t in self.alive()} - self.lost())
        self.release()
        self._cursor = len(self._entries) - 1  # the end, which is no op
        self.left = self.paused = True

    def _evaluated(self, op: Op, inputs: Sequence[Tensor], params: dict[str, Any]) -> Tensor:
        for tensor in inputs:
            if tensor._session is not self:
                self.check_foreign(tensor)
        arrays = [t._data if t._session is None else t._array() for t in inputs]
        device = params.get("device") or (inputs[0]._device if inputs else devices.default())
        return wrap(evaluate(op, arrays, params, device), device)

    def _part(
        self, entry: Entry, inputs: Sequence[Tensor], params: dict[str, Any], new: Mapping[int, Spec]
    ) -> Entry:
        """Leave the record at `entry`, for a variant that agrees so far, or else to grow a new one."""
        numbers = self._other_numbers(entry, inputs) if entry.params == params and not self.reshaped else ()
        if not new and not self.reshaped and not numbers:
            self._check_parting(entry, inputs, params)
        fed = {n: e.node.spec for n, e in enumerate(self.record.externals) if self.fed[n] is not None}
        found = self._variants.find(
            self.record, self._cursor, {**fed, **new}, lambda e: _agrees(e, inputs, params)
        )
        if found is not None:
            self.variant, self.record = found, found.record
            self._entries, self._specs = found.record.entries, found.specs
            self.fed += [None] * (len(self._specs) - len(self.fed))  # numbers that are inputs there
            entry = self._entries[self._cursor]
            for tensor, ref in zip(inputs, entry.args, strict=True):
                if tensor._index == CONSTANT and not isinstance(ref, Literal):
                    self._feed(-1 - ref, tensor, entry, {})
            return entry
        externals = tuple((self.record.externals[number], spec) for number, spec in new.items())
        self.grown = Difference(entry, params, externals, numbers)
        self.record = self.record.begun(self._cursor)
        self.variant = self._regrow(self.record, self.variant)
        return entry

    def _other_numbers(self, entry: Entry, inputs: Sequence[Tensor]) -> Sequence[tuple[Any, Any]]:
        """Those that were recorded for `entry` and those that came, if numbers alone differ, for a reason."""
        pairs = [(r, t) for t, r in zip(inputs, entry.args) if isinstance(r, Literal)]
        others = [(r, t) for r, t in pairs if not r.matches(t._data)]
        if not all(_is_number_like(r, t) for r, t in others):
            return ()
        if self.explained is None or not self.explained(self.record):
            return ()
        return [(r.raw, f"{t._data.item():.7g}") for r, t in others]

    def _check_parting(self, entry: Entry, inputs: Sequence[Tensor], params: dict[str, Any]) -> None:
        """Without other shapes constants must not differ, and parameters may only where a value was seen."""
        if entry.params == params:
            pairs = ((t, r) for t, r in zip(inputs, entry.args) if isinstance(r, Literal))
            other, was = next((t, r) for t, r in pairs if not r.matches(t._data))
            about = "arrays not equal" if was.array.ndim else None
            self._mismatch("tensors not equals", entry, str(Literal(other._data)), about=about)
        if not self._looked:
            self._mismatch("operator mismatch", entry, f"{entry.op.name} with {params}")

    def _grow(
        self, entry: Entry, inputs: Sequence[Tensor], params: dict[str, Any], new: Mapping[int, Spec]
    ) -> Entry:
        """Record what came in the place of `entry`."""
        for number, spec in new.items():
            old = self.record.externals[number]
            self.record.externals[number] = replace(old, node=input_node(spec, old.source))
        args = tuple([self._grown_ref(t, r, entry) for t, r in zip(inputs, entry.args, strict=True)])
        return self.record.step(entry.op, args, params)

    def _grown_ref(self, tensor: Tensor, ref: Ref, entry: Entry) -> Ref:
        """An operand of what came; a number that is another one becomes an input, unless shapes decide it."""
        if not isinstance(ref, Literal):
            return ref
        array, same = tensor._data, ref.matches(tensor._data)
        if same or self.explained is None or self.reshaped or not _is_number_like(ref, tensor):
            return Literal(array, ref.raw if same else None, device=tensor._device)
        node = input_node(Spec((), array.dtype, tensor._device), entry.source)
        self.record.externals.append(External(node, source=entry.source, converts=type(ref.raw)))
        self.fed.append(array)
        return external_ref(len(self.fed) - 1)


def _is_number_like(ref: Literal, tensor: Tensor) -> bool:
    """Is it another value of a Python number that is an operand?"""
    array = tensor._data
    return (
        ref.raw is not None
        and tensor._index == CONSTANT
        and array.dtype == ref.array.dtype
        and not array.ndim
    )


def _agrees(entry: Entry, inputs: Sequence[Tensor], params: dict[str, Any]) -> bool:
    """Has `entry` these parameters, and these constants, or inputs of their types, among its operands?"""
    if entry.params != params or entry.node is None:
        return False
    for tensor, ref, node in zip(inputs, entry.args, entry.node.inputs):
        if isinstance(ref, Literal):
            if not ref.matches(tensor._data):
                return False
        elif tensor._index == CONSTANT and tensor._data.dtype != node.spec.dtype:
            return False
    return True
