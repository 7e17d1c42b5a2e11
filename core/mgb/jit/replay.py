"""A later call: match each op against the record, and run segments when their values are wanted."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import dtypes
from ..apply import caller, constant, evaluate
from ..apply import record as tell_tapes
from ..ir import Op, Spec, input_node
from ..tensor import CONSTANT, Tensor, handling, place
from .arguments import numbers_in
from .departure import Departure, Matched, differs_in_cut, differs_in_op, differs_in_read, is_read
from .entry import END, EXCLUDE, READ, Entry, Literal, Ref, cut_at, external_ref
from .record import Binding, External, Record
from .source import Held, Object
from .tree import flatten, is_looked_into
from .variant import Variant
from .variants import Variants

#: Of a call that keeps track of every Tensor: the steps it keeps track of.
_EVERY = range(1 << 62)

#: What a call that has departed is matched against: no op is like it.
_NO_ENTRIES = [cut_at(END, "")]


class Replay(Matched):
    """A session that follows a `Variant`.

    A call that departs from it goes over to another one that agrees with all so far. Where there is none,
    what has been computed stands, and the rest is run op by op and recorded, if the call may differ: in
    parameters after the body has seen a value, in the shape of a Tensor outside, or because what the body
    found outside is not as it was. In that case another number becomes an input. Else the call is refused.

    Parameters
    ----------
    variant : Variant
    variants : Variants
        What is known of such calls: it may turn out to be another one of these.
    call : tuple
        What is given to `Variants.of`.
    explains : bool
        May what the body found outside explain that it does other ops?
    imperative : bool
        Match, and run each op eagerly.

    Attributes
    ----------
    left : bool
        Has the call departed? Then `record` is its own.
    is_whole : bool
        Was every Tensor kept track of until then, so that its `record` says which are alive? One that was not
        gets its value when it is asked for.
    replaced : Variant or None
        What `variant` serves instead of, as a number became an input.
    reason : str or None
        Why there is another variant after the call than before.
    """

    left = False
    is_whole = False
    replaced: Variant | None = None
    reason: str | None = None
    _others: Iterator[Variant] | None = None  # those that were not tried yet
    _segment = 0
    _given: tuple[Op, tuple[Any, ...]] | None = None  # what the op to come was called with
    _unchanged: tuple[Any, ...] = ()  # holds arrays that no program may overwrite: see `owned_alone`

    def __init__(
        self,
        variant: Variant,
        variants: Variants,
        call: tuple[Any, Any, Any],
        explains: bool,
        imperative: bool,
    ) -> None:
        super().__init__(variant.record)
        self.variant, self._variants, self._call = variant, variants, call
        self._explains = explains
        self._imperative = imperative
        self._live_out = _EVERY if imperative or variants.departs else variant.live_out
        self.entries, self.specs = variant.record.entries, variant.specs
        self._fed_as: dict[int, int] = {}  # from the id of an array to its number in `fed`

    # the Session protocol

    def shortcut(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Tensor | None:
        entry = self.entries[self.cursor]
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
        if op.under_tape is not None:
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
        shape, dtype, device = self.specs[number]
        if array.shape != shape or array.dtype != dtype or tensor._device != device:
            return False
        self.fed[number] = array
        self._fed_as[id(array)] = number
        return True

    def step(self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any]) -> Tensor:
        given, self._given = self._given, None  # which keeps nothing alive
        if self._follows(differs_in_op, op, inputs, params):
            entry = self.entries[self.cursor]
            for tensor, ref in zip(inputs, entry.args, strict=True):
                if ref.__class__ is int and ref < 0:
                    self.fed[-1 - ref] = tensor._data if self.fed[-1 - ref] is None else self.fed[-1 - ref]
                    self._fed_as[id(self.fed[-1 - ref])] = -1 - ref
            return self._result(entry)
        raws = given[1] if given is not None and given[0] is op else ()
        return self._recorded(op, inputs, params, raws)

    def read(self, tensor: Tensor) -> Any:
        if self._finished or self._failed:
            return self.late(tensor)
        if handling():
            return self.peek(tensor)
        step = tensor._index
        if step in self.record.statics:
            return self.record.static_value(step)
        if self._follows(differs_in_read, step):
            if is_read(self.entries[self.cursor], step):
                self._run_to_cut()
            return self.values[step]
        if self.paused:
            return tensor._data if tensor._session is None else self.late(tensor)
        if not self.record.is_cut_out(step):
            self.cut(READ, (step,))
        return self.value(tensor)

    def seen(self, tensor: Tensor) -> None:
        if tensor._index != CONSTANT:
            self.looked = True

    def adopt(self, alias: Tensor, original: Tensor) -> None:
        if alias._index in self._live_out:
            super().adopt(alias, original)

    def outside(self, tensor: Tensor) -> Any:
        number = self._fed_as.get(id(tensor._data))  # with another reference it could not be updated in place
        return tensor._data if number is None else external_ref(number)

    # cuts

    def pause(self) -> None:
        """Enter `exclude_from_trace`: everything that was alive here when recorded gets its value."""
        if self._follows(differs_in_cut, EXCLUDE):
            self._run_to_cut()
        else:
            self.cut(EXCLUDE, self._alive_steps())
        self.release()
        self.paused = True

    def resume(self) -> None:
        """Leave `exclude_from_trace`."""
        self.paused = False

    def finish(self, result: Any) -> None:
        """The body is done, with `result`: check that nothing is missing and run what has not run."""
        if self._follows(differs_in_cut, END, result):
            self._run_to_cut()
        else:
            self.cut(END, self._alive_steps())
            for reference, old in self._replaced:
                tensor = reference()
                if tensor is not None and tensor._session is self and isinstance(old, int) and old < 0:
                    self.record.bindings.append(Binding(tensor._index, Object(Held(tensor)), -1 - old))
        self.settle()

    def _run_to_cut(self) -> None:
        self.looked = True
        if not self._imperative:
            keeps = self._explains and self.entries[self.cursor].op is not END
            if keeps:
                self._unchanged = (*self._unchanged, tuple(self.fed))
            self.run_segment(self.variant, self._segment, keeps)
        self._segment += 1
        self.cursor += 1

    # matching

    def _result(self, entry: Entry) -> Tensor:
        index = self.cursor
        self.cursor = index + 1
        out = place(self, index, entry.spec)
        if index in self._live_out:
            self._tensors.append(weakref.ref(out))
            if self._imperative:
                self.values[index] = evaluate(entry.op, self.operands(entry.args), entry.params, out._device)
        return out

    # departing

    @property
    def reached(self) -> int:
        return 0 if self.left else self.cursor

    @property
    def ended_early(self) -> bool:
        return self.left or super().ended_early

    def _follows(self, differs: Callable[..., Departure | None], *given: Any) -> bool:
        """Does the call follow its variant, or another one, in what comes now? Else it departs."""
        if self.left:
            return False
        departure = differs(self, self.entries[self.cursor], *given)
        if departure is None:
            return True
        first, self._others = self.variant, self._others or self._variants.of(*self._call)
        for other in self._others:
            if self._may_come(other, differs, given) and self._agrees(other):
                self._take(other)
                if differs(self, self.entries[self.cursor], *given) is None:
                    return True
        self._take(first)
        explained = self._explains and self._is_explained()
        if not explained and not departure.may:
            raise departure.error
        self.reason = self.reason or departure.reason
        if not explained or departure.number is None:
            self._depart()
            return False
        self.replaced = self.replaced or first
        self._take(first.with_input(self.cursor, departure.number))
        return self._follows(differs, *given)

    def _is_explained(self) -> bool:
        """Is something else outside, or another number among the arguments, than the recorded body found?"""
        record = self.record
        leaves, arrangement = flatten(self._call[1:])
        return (
            not record.is_observed  # since tapes of the caller looked on
            or any(map(is_looked_into, leaves))  # what stands in them may stand elsewhere
            or record.is_unknown
            or arrangement != record.arrangement
            or numbers_in(leaves) != record.numbers
            or record.guards.why(leaves) is not None
        )

    def _may_come(self, other: Variant, differs: Callable[..., Departure | None], given: Any) -> bool:
        """Has `other` here an op with these parameters? The rest takes longer to ask for."""
        entries = other.record.entries
        if differs is not differs_in_op or len(entries) <= self.cursor:
            return True
        op, _, params = given
        return entries[self.cursor].op is op and entries[self.cursor].params == params

    def _agrees(self, other: Variant) -> bool:
        """Has the call done what `other` says, and can the values be had that are wanted there later?"""
        steps, entries = self.cursor, other.record.entries
        return (
            len(entries) > steps
            and all(map(Entry.is_like, self.entries[:steps], entries))
            and all(other.specs[number] == self.specs[number] for number in self._used())
            and self.lost().isdisjoint(self._missing(other))
        )

    def _used(self) -> set[int]:
        """The inputs of the steps so far."""
        entries = self.record.entries[: self.cursor]
        return {-1 - ref for entry in entries for ref in entry.args if isinstance(ref, int) and ref < 0}

    def _missing(self, variant: Variant) -> list[int]:
        """The steps whose values `variant` wants later, and that no program of this call has given."""
        return [s for part in variant.segments[: self._segment] for s in part.outputs if s not in self.values]

    def _take(self, variant: Variant) -> None:
        """Follow `variant` from here on."""
        self._go_on(variant.record)
        self.variant, self.entries, self.specs = variant, variant.record.entries, variant.specs
        self._live_out = self._live_out if self._live_out is _EVERY else variant.live_out
        self.evaluate(self._missing(variant))

    def _go_on(self, record: Record) -> None:
        """Go on with a record that begins with the same steps: their inputs are fed, and no others."""
        used = self._used()
        self.record = record
        self.fed = [self.fed[n] if n in used else None for n in range(len(record.externals))]
        self._fed_as = {id(self.fed[number]): number for number in used}

    def _depart(self) -> None:
        """Record what comes now: what is alive has its value, the rest gets it when it is asked for.

        A step whose value no program gave stays unreadable if what it was made of has been replaced since.
        """
        self.is_whole = self._live_out is _EVERY
        self.evaluate(self._alive_steps().union(self.due(self.cursor)) - self.lost())
        for tensor in self.alive():
            tensor._data = self.values.get(tensor._index)
        self._go_on(self.record.begun(self.cursor))
        self.entries, self.cursor, self._live_out, self.left = _NO_ENTRIES, 0, _EVERY, True
        if self.paused:
            self.cut(EXCLUDE, self._alive_steps().union(self.record.entries.pop().required))
            self.release()

    def _alive_steps(self) -> set[int]:
        return {tensor._index for tensor in self.alive()}

    def _recorded(
        self, op: Op, inputs: Sequence[Tensor], params: dict[str, Any], given: Sequence[Any]
    ) -> Tensor:
        """The result of an op after the departure, which was called with `given`."""
        raws = given if len(given) == len(inputs) else [None] * len(inputs)
        entry = self.record.step(op, tuple(map(self._ref, inputs, raws)), params)
        return self.ran(entry, [t._data if t._data is not None else self.value(t) for t in inputs])

    def _ref(self, tensor: Tensor, raw: Any) -> Ref:
        """Where an operand comes from, of which `raw` is the Python number, if it is one."""
        if tensor._session is self:
            return tensor._index
        device = tensor._device
        if tensor._index == CONSTANT:
            return Literal(tensor._data, raw if type(raw) in dtypes.WEAK else None, device=device)
        self.check_foreign(tensor)
        array, line = tensor._data, caller()
        if id(array) not in self._fed_as:
            self._fed_as[id(array)] = len(self.fed)
            self.fed.append(array)
            node = input_node(Spec(array.shape, array.dtype, device), line)
            self.record.externals.append(External(node))
        return external_ref(self._fed_as[id(array)])
