"""Record the first call: run the ops, or only note them, and keep the sequence."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from ..errors import SymbolicReadError
from ..ir import Op, Spec, dtypes
from ..ir.scalars import SCALARS, Scalar, Size, mapped, plain
from ..ir.sizes import but_lengths
from ..tensor import ACTIVE, Tensor, handling, place, wrap
from ..tensor.apply import apply_in, caller, evaluate
from ..tensor.holding import Holder
from .arguments import numbers_in
from .effects import generalize_tensors, record_effects
from .entry import CUTS, END, EXCLUDE, READ, Literal, Ref
from .guard import Guards
from .holder_state import HolderState
from .inputs import Inputs
from .owned_tensors import OwnedTensors
from .policy import Policy
from .provenance import Provenance
from .record import LiveValue, Record
from .session import CallSession
from .source import Grad
from .tree import flatten_once
from .watch import Observer, is_unobserved, unwatched


class Recording(CallSession):
    """A session that writes a `Record`.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments of the call.
    policy : Policy
    names : sequence of str
        The names of the arguments, in messages.
    observer : Observer, optional
        Observes what the body reads and writes outside, so that later calls can skip it.
    instance : object, optional
        The instance of a method; the record does not keep it alive.
    owned_tensors : OwnedTensors, optional
        The Tensors in the arguments, which count as arguments.
    """

    def __init__(
        self,
        leaves: Sequence[Any],
        policy: Policy,
        *,
        names: Sequence[str] = (),
        observer: Observer | None = None,
        instance: Any = None,
        owned_tensors: OwnedTensors | None = None,
    ) -> None:
        guards = observer.guards if observer is not None else Guards()
        record = Record(guards=guards, is_observed=observer is not None, numbers=numbers_in(leaves))
        super().__init__(record, policy, Provenance(leaves, names))
        self.record.follows = observer.changing.follows if observer is not None else frozenset()
        self.leaves, self.observer = leaves, observer
        self.symbolic_shape, self.mesh = policy.symbolic_shape, policy.mesh
        if observer is not None:
            observer.makes = self.provenance.is_own
        self.inputs = Inputs(leaves, policy, self.record, self.fed, self.provenance, observer, owned_tensors)
        if policy.follows:
            self.spec_of = self._spec_of
        self._saw_outside = False
        self._raw: tuple[Op, list[Any]] | None = None  # the numbers among the operands of the next op
        self._instance = instance
        #: The holders that the body used, with their state before.
        self._holders: dict[int, HolderState] = {}
        self._returned: list[Any] = []
        for holder in (instance, *(owned_tensors.holders if owned_tensors is not None else ())):
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
        """Apply an op that runs no code of the user, while its call hooks are disabled."""
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
            params = plain(params) if params and self.inputs.lengths is not None else params
            out = wrap(evaluate(op, [t._data for t in inputs], params, spec.device), spec.device)
            out._session, out._index = self, index
        reference = self.provenance.own[id(out)] = weakref.ref(out)
        self._tensors.append(reference)
        return out

    def _spec_of(self, tensor: Tensor) -> Spec:
        """Return the type of `tensor`, with symbolic lengths."""
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
            return self.compute_late(tensor)
        if handling():
            return self.peek(tensor)
        if tensor._index in self.record.statics:
            if self.inputs.lengths is not None:
                self.inputs.lengths.fix()
            return tensor._data if tensor._data is not None else self.record.static_value(tensor._index)
        if self.policy.make_error is not None and not self._finished:
            raise self.policy.make_error(f"wants the value of {self.entry(tensor._index)}")
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
        if not self.inputs.guard_read(tensor):
            return
        if self.policy.make_error is not None:
            raise self.policy.make_error("wants the value of a tensor from outside")
        self._saw_outside = True
        self.must_run("reads the value of a Tensor")

    def touched_grad(self, tensor: Tensor, reads: bool) -> None:
        is_new = self.provenance.touch_grad(tensor, reads)
        if is_new and self.observer is not None and tensor._grad is not None:
            self.observer.meets(Grad(self.provenance.source_of(tensor)), tensor._grad)

    def watched(self, tensor: Tensor) -> None:
        self.provenance.watch(tensor)

    def created(self, tensor: Tensor, data: Any) -> None:
        self.inputs.created(tensor, data)

    def live(self, tensor: Tensor, source: Callable[[], float]) -> None:
        self.inputs.live(tensor, source)

    def follows(self, tensor: Tensor, number: Scalar) -> bool:
        return self.inputs.follows(tensor, number)

    def entered(self, holder: Any) -> None:
        known = self._holders.get(id(holder))
        if known is None or known.holder.get() is not holder:  # an id can be reused
            free = self.observer.changing.attributes(holder) if self.observer is not None else ()
            self._holders[id(holder)] = unwatched(HolderState, holder, free)
            if self.observer is not None:
                self.observer.enters(holder)

    def must_run(self, reason: str, once: bool = False) -> None:
        """Report a reason why the body must run at each call, or raise it where the body must not run."""
        if self.observer is not None:
            self.observer.impure(reason, once=once)

    @property
    def is_pure(self) -> bool:
        """Check whether the body was observed and need not run again."""
        return self.policy.skips and self.observer is not None and not self.observer.impurities

    # cuts

    def pause(self) -> None:
        """Enter `exclude_from_trace`: give every living Tensor its value."""
        self.must_run("leaves the trace by exclude_from_trace")
        needed = {t._index for t in self.alive()}
        if not self.policy.runs:
            self.evaluate(needed)
        self.release()
        self.cut(EXCLUDE, needed)
        self.paused = True

    def resume(self) -> None:
        """Leave `exclude_from_trace`."""
        self.paused = False

    # the end

    @property
    def reads(self) -> bool:
        """Check whether the body reads values."""
        return self._saw_outside or any(entry.op in CUTS for entry in self.record.entries)

    def finish(self) -> Record:
        """Close the sequence. The values that are alive now leave the program at every call."""
        alive, record = self.alive(), self.record
        elsewhere = self._find_aliased()
        if self.observer is not None and self.observer.changing.tensors:
            may_look = self.policy.gives
            generalize_tensors(record, self.provenance, self.observer, self._returned, elsewhere, may_look)
        record_effects(record, self.provenance, self.leaves, self.ref, self._returned, elsewhere)
        handed = (*self._returned, *(tensor._grad for tensor in self.provenance.list_with_new_grad()))
        if any(t is not None and t._grad is not None and self.provenance.is_own(t) for t in handed):
            self.must_run("leaves a Tensor that it makes with a grad")
        self._returned.clear()
        self._guard_environment()
        self.cut(END, {t._index for t in alive})
        if self.inputs.lengths is not None:
            self.spec_of = None
            self.inputs.lengths.end(record)
        return record

    def _guard_environment(self) -> None:
        """Guard what the body read outside, and the state of the holders that it used."""
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
        """Release everything outside, so that what nobody else references is collected."""
        self.leaves, self._instance = (), None
        self.provenance.forget()
        self.inputs.forget()
        self._holders.clear()
        if self.observer is not None:
            self.observer.forget()

    def _find_aliased(self) -> frozenset[int]:
        """Return the ids of Tensors that the body reached otherwise than as arguments."""
        if self.observer is None:
            return frozenset()
        found = [guard.value.get() for guard in self.observer.guards if guard.test == "is"]
        for decided in self._holders.values():
            holder = decided.holder.get()
            found += () if holder is None else (part for _, part in holder.__parts__())
        return frozenset([id(value) for value in found if issubclass(type(value), Tensor)])  # asks no proxy

    def _find_written(self) -> set[int]:
        """Return the ids of the values that the body wrote outside."""
        effects = self.observer.writing.effects if self.observer is not None else []
        return {id(leaf) for effect in effects for leaf in flatten_once(effect.value)[0]}

    def find_moved(self, tensor: Tensor) -> LiveValue | None:
        """Return the path of a Tensor that the body only assigns elsewhere, if another one may be there."""
        if self.observer is None or self.provenance.is_own(tensor) or id(tensor) not in self._find_written():
            return None
        path = self.observer.changing.path_to(tensor)
        return None if path is None else LiveValue(path)

    def note_returned(self, tensors: Iterable[Any]) -> None:
        """Store the Tensors in the result, before `finish`."""
        self._returned += tensors

    def replace_own_tensors(self, result: Any) -> Any:
        """Return the result with new Tensors in place of those that the body made."""
        leaves, structure = flatten_once(result)
        given = self.provenance.new_grad_ids() | self._find_written()
        new: dict[int, Any] = {}
        for leaf in leaves:
            if isinstance(leaf, Tensor) and self.provenance.is_own(leaf) and id(leaf) not in given:
                new[id(leaf)] = wrap(leaf._data, leaf._device)
            elif type(leaf) in SCALARS:
                new[id(leaf)] = leaf.value
        return structure.build(iter([new.get(id(leaf), plain(leaf)) for leaf in leaves]))

    def check_changes(self) -> None:
        """Require the body to run if it changes what decides what its holders do."""
        if self.record.changes is not None and self.is_pure:
            self.must_run(f"changes what it works with: {self.record.changes}", once=True)

    def check_escapes(self) -> None:
        """Require the body to run if Tensors that it made are still referenced elsewhere."""
        if (where := self.record.gone()) is not None:
            self.must_run(f"takes the Tensor used at {where} from where it leaves none or another one")
        if escaped := self.provenance.escaped(self._find_written()):
            steps = [tensor._index for tensor in escaped if tensor._session is self]
            where = (self.entry(min(steps)) if steps else self.record.entries[-1]).source
            self.must_run(f"keeps a Tensor that it makes at {where}", once=True)  # a cache does so at first

    def compute_alive(self) -> None:
        """Compute every Tensor that is alive after a call that was only noted, as if the body had run."""
        due = self.find_due(self.reached)
        for step in (*sorted(due), *(t._index for t in filter(self.provenance.is_own, self.alive()))):
            with suppress(Exception):  # the op raises where its result is needed, as in eager code
                self.evaluate((step,))

    def undo(self) -> None:
        """Restore every Tensor outside: the call was noted, not run."""
        self._undone = True
        for tensor, data, tape in self.provenance.changed():
            tensor._data, tensor._tape = data, tape
            tensor._session, tensor._index, tensor._spec = None, -1, None
        for tensor, grad in self.grads_before():
            tensor._grad = grad
        if self.observer is not None:
            self.observer.undo()
        self.finish_values()

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
        """Return the `Ref` of the value of `tensor`."""
        if tensor._session is self:
            return tensor._index
        if tensor._session is not None:
            self.check_foreign(tensor)
        return self.inputs.ref(tensor)
