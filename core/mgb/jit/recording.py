"""The first call: run the ops, or only note them, and keep the sequence."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from .. import dtypes
from ..apply import apply_in, caller, evaluate
from ..errors import RecordOnlyError, SymbolicReadError, TraceError
from ..holding import Holder
from ..ir import Op, Spec
from ..scalars import SCALARS, Scalar, Size, mapped, plain
from ..sizes import but_lengths
from ..tensor import ACTIVE, Tensor, handling, place, wrap
from .arguments import numbers_in
from .effects import look_for_tensors, note_effects
from .entry import CUTS, END, EXCLUDE, READ, Literal, Ref
from .guard import Guards, is_plain
from .held_tensors import HeldTensors
from .holder_guards import Decided
from .inputs import Inputs
from .policy import Policy
from .provenance import Provenance
from .record import Given, Live, Record
from .session import CallSession
from .source import Argument, Grad
from .tree import flatten_once
from .watch import Observer, is_unobserved, unwatched

#: What nobody can change.
_CONSTANT = (bool, int, float, complex, str, bytes, type(None), type, np.generic, np.dtype)


class Recording(CallSession):
    """A session that writes a `Record`.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments of the call.
    policy : Policy
    names : sequence of str
        Of the arguments, in messages.
    observer : Observer, optional
        Watches what the body reads and writes outside, so that it need not run again.
    instance : object, optional
        What the body is a method of; the record does not keep it alive.
    held_tensors : HeldTensors, optional
        What is in the arguments counts as an argument.
    """

    def __init__(
        self,
        leaves: Sequence[Any],
        policy: Policy,
        *,
        names: Sequence[str] = (),
        observer: Observer | None = None,
        instance: Any = None,
        held_tensors: HeldTensors | None = None,
    ) -> None:
        guards = observer.guards if observer is not None else Guards()
        super().__init__(Record(guards=guards, is_observed=observer is not None, numbers=numbers_in(leaves)))
        self.record.follows = observer.changing.follows if observer is not None else frozenset()
        self.leaves, self.policy, self.observer = leaves, policy, observer
        self.symbolic_shape, self.mesh = policy.symbolic_shape, policy.mesh
        self.provenance = Provenance(leaves, names)
        if observer is not None:
            observer.makes = self.provenance.is_own
        self.inputs = Inputs(leaves, policy, self.record, self.fed, self.provenance, observer, held_tensors)
        if policy.follows:
            self.spec_of = self._spec_of
        self._undone = self._saw_outside = False
        self._raw: tuple[Op, list[Any]] | None = None  # the numbers among the operands of the op to come
        self._instance = instance
        #: With what they were when the body found them.
        self._holders: dict[int, Decided] = {}
        self._returned: list[Any] = []
        for holder in (instance, *(held_tensors.holders if held_tensors is not None else ())):
            if isinstance(holder, Holder):
                self.entered(holder)

    # the Session protocol

    def shortcut(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Tensor | None:
        if self.observer is None:
            return self._apply_unobserved(op, args, params, False)
        return self.observer.net.without(self._apply_unobserved, op, args, params, True)

    def _apply_unobserved(
        self, op: Op, args: tuple[Any, ...], params: dict[str, Any], is_observed: bool
    ) -> Tensor | None:
        """The result, where a body is watched and `op` runs no code of a user's."""
        raw = [a.value if type(a) is Size else a if type(a) in dtypes.WEAK else None for a in args]
        self._raw = op, raw
        return apply_in(ACTIVE.get(), op, args, params) if is_observed and is_unobserved(op, args) else None

    def step(self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any]) -> Tensor:
        if self.observer is None:
            return self._step(op, inputs, params)
        return self.observer.net.without(self._step, op, inputs, params)

    def _step(self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any]) -> Tensor:
        index = len(self.record.entries)
        params = mapped(but_lengths, params) if params else params
        spec = self.record.step(op, self._refs(op, inputs), params).spec
        if not self.policy.runs:
            out = place(self, index, spec)
        else:
            params = plain(params) if params and self.inputs.followed is not None else params
            out = wrap(evaluate(op, [t._data for t in inputs], params, spec.device), spec.device)
            out._session, out._index = self, index
        reference = self.provenance.own[id(out)] = weakref.ref(out)
        self._tensors.append(reference)
        return out

    def _spec_of(self, tensor: Tensor) -> Spec:
        """The type of `tensor`, with the lengths that are followed."""
        if tensor._session is self:
            return self.record.entries[tensor._index].spec
        if tensor._session is not None:
            assert tensor._spec is not None
            return tensor._spec
        return self.inputs.spec_of(tensor)

    def measured(self, value: Any) -> Any:
        return self.inputs.measured(value)

    def read(self, tensor: Tensor) -> Any:
        if self.ended_early:
            return self.late(tensor)
        if handling():
            return self.peek(tensor)
        if tensor._index in self.record.statics:
            if self.inputs.followed is not None:
                self.inputs.followed.fix()
            return tensor._data if tensor._data is not None else self.record.static_value(tensor._index)
        if self.policy.refused is not None and not self._finished:
            raise self.policy.refused(f"wants the value of {self.entry(tensor._index)}")
        if not self.policy.runs and tensor._data is None:
            if self._finished:
                raise self.unreadable(tensor)
            raise SymbolicReadError(
                "tensor invalid, can not infer value of this tensor under trace(symbolic=True): it is "
                f"{self.entry(tensor._index)}, read at {caller()}. You can try to use trace(symbolic=False) "
                "to avoid this issue, or an array of mgb.numpy, which takes Tensors, instead of NumPy's."
            )
        if not self.paused and not self.record.is_cut_out(tensor._index):
            self.must_run(f"reads the value of {self.entry(tensor._index)}")
            self.cut(READ, (tensor._index,))
        return tensor._data

    def shapes_follow(self, tensor: Tensor) -> None:
        if self.policy.gives and not self.policy.runs and tensor._data is None and not self.paused:
            self.evaluate((tensor._index,))
            tensor._data = self.values[tensor._index]

    def seen(self, tensor: Tensor) -> None:
        if not self.inputs.is_seen(tensor):
            return
        if self.policy.refused is not None:
            raise self.policy.refused("wants the value of a tensor from outside")
        self._saw_outside = True
        self.must_run("reads the value of a Tensor")

    def adopt(self, alias: Tensor, original: Tensor) -> None:
        super().adopt(alias, original)
        self.provenance.adopts(alias, original)

    def rebound(self, tensor: Tensor, value: Tensor) -> None:
        super().rebound(tensor, value)
        self.provenance.rebinds(tensor, value)

    def touched_grad(self, tensor: Tensor, reads: bool) -> None:
        is_new = self.provenance.touches_grad(tensor, reads)
        if is_new and self.observer is not None and tensor._grad is not None:
            self.observer.meets(Grad(self.provenance.source_of(tensor)), tensor._grad)

    def grads_before(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        return ((tensor, grad) for tensor, grad, _ in self.provenance.grads.values())

    def watched(self, tensor: Tensor) -> None:
        self.provenance.watches(tensor)

    def created(self, tensor: Tensor, data: Any) -> None:
        self.inputs.created(tensor, data)

    def live(self, tensor: Tensor, source: Callable[[], float]) -> None:
        self.inputs.live(tensor, source)

    def follows(self, tensor: Tensor, number: Scalar) -> bool:
        return self.inputs.follows(tensor, number)

    def entered(self, holder: Any) -> None:
        known = self._holders.get(id(holder))
        if known is None or known.holder.get() is not holder:  # another one had its id
            free = self.observer.changing.attributes(holder) if self.observer is not None else ()
            self._holders[id(holder)] = unwatched(Decided, holder, free)
            if self.observer is not None:
                self.observer.enters(holder)

    def must_run(self, reason: str, once: bool = False) -> None:
        """Told why the body has to run at each call; where it must not, this raises an error."""
        if self.observer is not None:
            self.observer.impure(reason, once=once)

    @property
    def reached(self) -> int:
        return 0 if self.policy.runs else len(self.record.entries)

    @property
    def is_pure(self) -> bool:
        """Was the body watched, and need it not run again?"""
        return self.policy.skips and self.observer is not None and not self.observer.impurities

    # cuts

    def pause(self) -> None:
        """Enter `exclude_from_trace`: everything alive gets its value."""
        self.must_run("leaves the trace by exclude_from_trace")
        wanted = {t._index for t in self.alive()}
        if not self.policy.runs:
            self.evaluate(wanted)
        self.release()
        self.cut(EXCLUDE, wanted)
        self.paused = True

    def resume(self) -> None:
        """Leave `exclude_from_trace`."""
        self.paused = False

    # the end

    @property
    def reads(self) -> bool:
        """Does the body look at values?"""
        return self._saw_outside or any(entry.op in CUTS for entry in self.record.entries)

    def finish(self) -> Record:
        """Close the sequence: what is alive now leaves the program at every call."""
        alive, record = self.alive(), self.record
        elsewhere = self._also_found()
        if self.observer is not None and self.observer.changing.tensors:
            may_look = self.policy.gives
            look_for_tensors(record, self.provenance, self.observer, self._returned, elsewhere, may_look)
        note_effects(record, self.provenance, self.leaves, self.ref, self._returned, elsewhere)
        handed = (*self._returned, *(tensor._grad for tensor in self.provenance.given()))
        if any(t is not None and t._grad is not None and self.provenance.is_own(t) for t in handed):
            self.must_run("leaves a Tensor that it makes with a grad")
        self._returned.clear()
        self._guard_environment()
        self.cut(END, {t._index for t in alive})
        if self.inputs.followed is not None:
            self.spec_of = None
            self.inputs.followed.end(record)
        return record

    def _guard_environment(self) -> None:
        """What the body read outside has to stay, and what worked in it has to work as it does now."""
        record, observer = self.record, self.observer
        for before in self._holders.values():
            if before.holder.is_gone():
                continue
            holder = before.holder.get()
            record.holders.append((before.holder, before.parts() if self.policy.freezes else []))
            if observer is None or not observer.is_made(holder):
                record.changes = record.changes or before.guards.why(())
                free = observer.changing.attributes(holder) if observer is not None else ()
                record.guards.add(*before.now(holder, free).guards)

    def forget(self) -> None:
        """Hold nothing from outside any more: what nobody else holds goes."""
        self.leaves, self._instance = (), None
        self.provenance.forget()
        self.inputs.forget()
        self._holders.clear()
        if self.observer is not None:
            self.observer.forget()

    def _also_found(self) -> frozenset[int]:
        """The ids of Tensors that the body met in variables, objects, or what it called or worked with."""
        if self.observer is None:
            return frozenset()
        found = [guard.value.get() for guard in self.observer.guards if guard.test == "is"]
        for decided in self._holders.values():
            holder = decided.holder.get()
            found += () if holder is None else (part for _, part in holder.__parts__())
        return frozenset([id(value) for value in found if issubclass(type(value), Tensor)])  # asks no proxy

    def with_effects(self, result: Any) -> Any:
        """`result`, or what the call gives and what it writes outside."""
        effects = self.observer.writing.effects if self.observer is not None else []
        self.record.writes = tuple([(effect.place, effect.appends) for effect in effects])
        return (result, *(effect.value for effect in effects)) if effects else result

    def _written(self) -> set[int]:
        """The ids of what the body puts outside."""
        effects = self.observer.writing.effects if self.observer is not None else []
        return {id(leaf) for effect in effects for leaf in flatten_once(effect.value)[0]}

    def moved(self, tensor: Tensor) -> Live | None:
        """Where a Tensor stands that the body only puts elsewhere, if another one may stand there."""
        if self.observer is None or self.provenance.is_own(tensor) or id(tensor) not in self._written():
            return None
        path = self.observer.changing.path_to(tensor)
        return None if path is None else Live(path)

    def returned(self, tensors: Iterable[Any]) -> None:
        """Told of the Tensors in the result, before `finish`."""
        self._returned += tensors

    def given(self, value: Any) -> Given | Live | None:
        """What is no Tensor in the result, at each call that skips the body."""
        if not is_plain(value):
            for number, leaf in enumerate(self.leaves):
                if leaf is value:
                    return Live(Argument(number))
        if type(value) is Size:
            return Given(value.value, size=value)
        if isinstance(value, _CONSTANT) or self.observer is None:
            return Given(value)
        if isinstance(value, np.ndarray) and self.observer.known(value) is None:
            return Given(Given(value).copy(), copied=True)
        if not self.observer.is_made(value):
            return Given(value)
        self.must_run(f"returns an object that it makes, a {type(value).__name__}")
        return None

    def check_kind(self, tensor: Tensor) -> None:
        """A Tensor in the result that the body makes is one of no other class at later calls."""
        if type(tensor) is not Tensor and self.provenance.is_own(tensor):
            self.must_run(f"returns a {type(tensor).__name__} that it makes")

    def handed_out(self, result: Any) -> Any:
        """The result with new Tensors in place of those that the body made, which nothing holds then."""
        leaves, structure = flatten_once(result)
        given = self.provenance.given_grads() | self._written()
        new: dict[int, Any] = {}
        for leaf in leaves:
            if isinstance(leaf, Tensor) and self.provenance.is_own(leaf) and id(leaf) not in given:
                new[id(leaf)] = wrap(leaf._data, leaf._device)
            elif type(leaf) in SCALARS:
                new[id(leaf)] = leaf.value
        return structure.build(iter([new.get(id(leaf), plain(leaf)) for leaf in leaves]))

    def check_changes(self) -> None:
        """What the body changes in Modules makes it do something else at the next call."""
        if self.record.changes is not None and self.is_pure:
            self.must_run(f"changes what it works with: {self.record.changes}", once=True)

    def check_kept(self) -> None:
        """Tensors that the body keeps elsewhere than in its result, and those that it let go of."""
        if (where := self.record.gone()) is not None:
            self.must_run(f"takes the Tensor used at {where} from where it leaves none or another one")
        if kept := self.provenance.escaped(self._written()):
            steps = [tensor._index for tensor in kept if tensor._session is self]
            where = (self.entry(min(steps)) if steps else self.record.entries[-1]).source
            self.must_run(f"keeps a Tensor that it makes at {where}", once=True)  # as a cache does at first

    def release(self) -> None:
        for tensor in self.alive():
            if tensor._data is not None:
                self.values[tensor._index] = tensor._data
        super().release()

    def compute_living(self) -> None:
        """Give all that Python has of a call that was only noted its value, as if the body had run."""
        due = self.due(self.reached)
        for step in (*sorted(due), *(t._index for t in filter(self.provenance.is_own, self.alive()))):
            with suppress(Exception):  # that op raises where it is wanted, as it does in eager code
                self.evaluate((step,))

    def undo(self) -> None:
        """Leave every Tensor outside as it was before the call: it was noted, not run."""
        self._undone = True
        for tensor, data, tape in self.provenance.changed():
            tensor._data, tensor._tape = data, tape
            tensor._session, tensor._index, tensor._spec = None, -1, None
        for tensor, grad in self.grads_before():
            tensor._grad = grad
        if self.observer is not None:
            self.observer.undo()
        self.settle()

    def unreadable(self, tensor: Tensor) -> TraceError:
        if self._undone:
            return RecordOnlyError(
                f"the result of step {tensor._index} ({self.entry(tensor._index)}) has no value: the call "
                "was only recorded, as by trace(record_only=True); trace without that option to run it"
            )
        return super().unreadable(tensor)

    # operands

    def _refs(self, op: Op, inputs: tuple[Tensor, ...]) -> tuple[Ref, ...]:
        raw: list[Any] = []
        if self._raw is not None and self._raw[0] is op and len(self._raw[1]) == len(inputs):
            raw = self._raw[1]
        self._raw = None
        refs = []
        for position, tensor in enumerate(inputs):
            ref = self.ref(tensor)
            if raw and isinstance(ref, Literal) and raw[position] is not None:
                ref.raw = raw[position]
            refs.append(ref)
        return tuple(refs)

    def ref(self, tensor: Tensor) -> Ref:
        """Where the value of `tensor` comes from."""
        if tensor._session is self:
            return tensor._index
        if tensor._session is not None:
            self.check_foreign(tensor)
        return self.inputs.ref(tensor)
