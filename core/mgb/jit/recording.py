"""The first call: run the ops, or only note them, and keep the sequence."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..apply import caller, evaluate
from ..errors import RecordOnlyError, SymbolicReadError, TraceError, UnknownInputError
from ..ir import Op, Spec, input_node
from ..tensor import CONSTANT, Tensor, place, wrap
from .record import (
    CUTS,
    END,
    EXCLUDE,
    READ,
    Binding,
    Entry,
    Expected,
    External,
    Literal,
    Outside,
    Pin,
    Record,
    Ref,
    external_ref,
)
from .session import CallSession
from .surroundings import State, attributes_of


class Recording(CallSession):
    """A session that writes a `Record`.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments of the call.
    symbolic : bool
        Note the ops and run none of them.
    capture_as_const : bool
        Tensors that are not arguments become constants.
    without_host : bool
        The body will not run again: refuse what it alone could supply.
    symbolic_shape : bool
        Shapes are Tensors in the body.
    """

    def __init__(
        self,
        leaves: Sequence[Any],
        *,
        symbolic: bool,
        capture_as_const: bool,
        without_host: bool,
        symbolic_shape: bool = False,
    ) -> None:
        super().__init__(Record())
        self.symbolic_shape, self._symbolic = symbolic_shape, symbolic
        self._capture_as_const, self._without_host = capture_as_const, without_host
        self._undone = self._saw_outside = False
        self._leaf_tensors = {id(t): n for n, t in enumerate(leaves) if isinstance(t, Tensor)}
        self._leaf_references = {id(t): weakref.ref(t) for t in leaves if isinstance(t, Tensor)}
        self._leaf_arrays = {id(t): t._data for t in leaves if isinstance(t, Tensor)}
        self._numbers: dict[tuple[int, int], int] = {}  # of two Tensors of one array, one may change
        self._made: dict[int, Any] = {}
        self._origins: dict[int, Callable[[], float]] = {}
        self._rebound: list[weakref.ref[Tensor]] = []
        self._own: dict[int, weakref.ref[Tensor]] = {}  # Tensors made in the body, by their ids
        self._originals: dict[int, tuple[Tensor, Any]] = {}  # of an alias: what it was made of
        self._raw: tuple[Op, tuple[Any, ...]] | None = None
        self._readable: set[int] = set()
        self._modules: dict[int, Any] = {}
        self._states: list[State] = []  # of the modules, as the body found them
        self._instance: Any = None  # what the body is a method of
        self._before: dict[int, tuple[Tensor, Any, Any]] = {}
        self._unknown: str | None = None  # where data that only the body can make was used first
        self._grads: dict[int, tuple[Tensor, Tensor | None, bool]] = {}  # found, and was it looked at?
        self._given_grads: set[int] = set()  # the ids of those that were given one, which may be the old one
        self._own_grads: list[weakref.ref[Tensor]] = []  # Tensors of the body that were given one
        self._watched: dict[int, weakref.ref[Tensor]] = {}
        self._returned: list[Any] = []
        #: The ids of arguments that the body could also find by another way.
        self.found_elsewhere: frozenset[int] = frozenset()

    # the Session protocol

    def shortcut(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Tensor | None:
        self._raw = (op, args)
        return None

    def step(self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any]) -> Tensor:
        index = len(self.record.entries)
        spec = self.record.step(op, self._refs(op, inputs), params).spec
        if self._symbolic:
            out = place(self, index, spec)
        else:
            out = wrap(evaluate(op, [t._data for t in inputs], params, spec.device), spec.device)
            out._session, out._index = self, index
        self._tensors.append(self._made_by_body(out))
        return out

    def _made_by_body(self, tensor: Tensor) -> weakref.ref[Tensor]:
        reference = self._own[id(tensor)] = weakref.ref(tensor)
        return reference

    def is_own(self, tensor: Tensor) -> bool:
        """Did the body make it? Something that was made outside of the trace since may have an id again."""
        reference = self._own.get(id(tensor))
        return reference is not None and reference() is tensor

    def read(self, tensor: Tensor) -> Any:
        if tensor._index in self.record.statics:
            return tensor._data if tensor._data is not None else self.record.static_value(tensor._index)
        if self._symbolic and tensor._data is None:
            if self._finished:
                raise self.unreadable(tensor)
            raise SymbolicReadError(
                "tensor invalid, can not infer value of this tensor under trace(symbolic=True) "
                f"({caller()}). You can try to use trace(symbolic=False) to avoid this issue."
            )
        if not self.paused and tensor._index not in self._readable:
            self._cut(READ, (tensor._index,))
        return tensor._data

    def seen(self, tensor: Tensor) -> None:
        if tensor._index != CONSTANT and id(tensor._data) not in self._made:
            self._saw_outside = True

    def adopt(self, alias: Tensor, original: Tensor) -> None:
        super().adopt(alias, original)
        self._made_by_body(alias)
        if original._session is None:
            self._originals[id(alias)] = (self._root(original), original._data)

    def rebound(self, tensor: Tensor, value: Tensor) -> None:
        super().rebound(tensor, value)
        if value._session is None:
            self._originals[id(tensor)] = (self._root(value), value._data)
        if not self.is_own(tensor):
            self._rebound.append(weakref.ref(tensor))
            self._remember(tensor)

    def created(self, tensor: Tensor) -> None:
        self._made_by_body(tensor)
        self._made[id(tensor._data)] = tensor._data

    def live(self, tensor: Tensor, source: Callable[[], float]) -> None:
        self._origins[id(tensor._data)] = source

    def entered(self, module: Any) -> None:
        if id(module) not in self._modules:
            self._modules[id(module)] = weakref.proxy(module) if module is self._instance else module
            self._states.append(State(module))

    def is_method_of(self, instance: Any) -> None:
        """Told what the body is a method of; the record does not keep that alive."""
        self._instance = instance
        if hasattr(instance, "forward"):
            self.entered(instance)
        else:
            self.record.instance = weakref.proxy(instance), attributes_of(instance)

    def touched_grad(self, tensor: Tensor, reads: bool) -> None:
        if not self.is_own(tensor):
            self._grads.setdefault(id(tensor), (tensor, tensor._grad, reads))
            if not reads:
                self._given_grads.add(id(tensor))
        elif not reads:
            self._own_grads.append(weakref.ref(tensor))

    def watched(self, tensor: Tensor) -> None:
        if not self.is_own(tensor):
            self._watched[id(tensor)] = weakref.ref(tensor)

    # cuts

    def _cut(self, op: Op, steps: tuple[int, ...]) -> None:
        self._readable.update(steps)
        self.record.cut(Entry(op, (), {}, None, caller(), steps))

    def pause(self) -> None:
        """Enter `exclude_from_trace`: everything alive gets its value."""
        if self._without_host:
            raise TraceError(
                "exclude_from_trace needs the Python body at every call; use trace(without_host=False)"
            )
        wanted = tuple(sorted({t._index for t in self.alive()}))
        if self._symbolic:
            self.evaluate(wanted)
        self.release()
        self._cut(EXCLUDE, wanted)
        self.paused = True

    def resume(self) -> None:
        """Leave `exclude_from_trace`."""
        self.paused = False

    # the end

    @property
    def reads(self) -> bool:
        """Does the body look at values, so that it must run at every call?"""
        return self._saw_outside or any(entry.op in CUTS for entry in self.record.entries)

    def check_known(self) -> None:
        """Refuse what only the body could supply, when it is not to run again."""
        if self._unknown is not None:
            raise UnknownInputError(
                f"have some unknown input tensors in trace result: the one used at {self._unknown} was made "
                "of data inside the function, which will not run again. Make it outside, pass it as an "
                "argument, or set `capture_as_const=True`"
            )

    def finish(self) -> Record:
        """Close the sequence: what is alive now leaves the program at every call."""
        alive = self.alive()
        self.record.bindings = [*self._value_bindings(), *self._grad_bindings()]
        self.record.returned = tuple(map(self._identity, self._returned))
        used = self._used(self._returned)
        self._returned.clear()
        self._expect_grads(used)
        self._pin(used)
        given = (tensor for reference in self._own_grads if (tensor := reference()) is not None)
        self.record.with_grads = frozenset([t._index for t in given if t._grad is not None])
        watched = ((key, r) for key, r in self._watched.items() if r() is not None)
        self.record.watched = [Outside(r, self._leaf_tensors.get(key)) for key, r in watched]
        if self._without_host or self._capture_as_const:
            self.record.note(list(self._modules.values()), self._states)
        self._cut(END, tuple(sorted({t._index for t in alive})))
        return self.record

    def returned(self, tensors: Iterable[Any]) -> None:
        """Told of the Tensors in the result, before `finish`."""
        self._returned += tensors

    def release(self) -> None:
        for tensor in self.alive():
            if tensor._data is not None:
                self.values[tensor._index] = tensor._data
        super().release()

    def _value_bindings(self) -> list[Binding]:
        owners = {}
        for number, external in enumerate(self.record.externals):
            owner = external.owner() if external.owner is not None else None
            if owner is not None:
                owners[id(owner)] = number
        found = {id(t): t for r in self._rebound if (t := r()) is not None}
        holders = self._holders()
        bindings = []
        for key, t in found.items():
            holder = holders.get(key, t)
            leaf, old, of_grad = self._leaf_tensors.get(id(holder)), owners.get(key), holder is not t
            bindings.append(Binding(self.ref(t), weakref.ref(holder), leaf, old, of_grad=of_grad))
        return bindings

    def _grad_bindings(self) -> list[Binding]:
        bindings = []
        for tensor, _, _ in self._grads.values():
            grad = tensor._grad
            if id(tensor) in self._given_grads:
                place = self._identity(grad)
                source = self.ref(grad) if grad is not None and isinstance(place, int) else place
                leaf = self._leaf_tensors.get(id(tensor))
                made = place if isinstance(place, int) else None
                bindings.append(Binding(source, weakref.ref(tensor), leaf, is_grad=True, made=made))
        return bindings

    def _identity(self, tensor: Tensor | None) -> int | Outside | None:
        """Which Tensor it is: a number, if the body made it, or where it stands outside."""
        if tensor is None:
            return None
        return id(tensor) if self.is_own(tensor) else self._place(tensor)

    def _place(self, tensor: Tensor) -> Outside:
        holder = self._holders().get(id(tensor), tensor)
        return Outside(weakref.ref(holder), self._leaf_tensors.get(id(holder)), holder is not tensor)

    def _holders(self) -> dict[int, Tensor]:
        """By the id of a gradient that was found: the Tensor that had it as its ``grad``."""
        found = ((tensor, grad) for tensor, grad, reads in self._grads.values() if reads)
        return {id(grad): tensor for tensor, grad in found if grad is not None}

    def _used(self, returned: Iterable[Any]) -> frozenset[int]:
        """The ids of the Tensors outside that the body took, gave a value or a ``grad``, or handed on."""
        owners = (e.owner() for e in self.record.externals if e.owner is not None)
        handed = (t._grad for key, (t, _, _) in self._grads.items() if key in self._given_grads)
        rebound = (reference() for reference in self._rebound)
        return frozenset([*map(id, (*owners, *handed, *rebound, *returned)), *self._grads])

    def _expect_grads(self, used: frozenset[int]) -> None:
        """Another call may find another ``grad``, or none, in the same Tensor."""
        same = list(self._leaf_tensors)
        for tensor, grad, reads in self._grads.values():
            if reads:
                leaf = self._leaf_tensors.get(id(tensor))
                is_used = grad is not None and id(grad) in used
                self.record.expected.append(Expected(weakref.ref(tensor), leaf, grad is None, is_used))
                same += [id(grad)] if is_used else []
        first: dict[int, int] = {}
        self.record.same = tuple([first.setdefault(key, place) for place, key in enumerate(same)])
        holders = self._holders()
        for external in self.record.externals:
            holder = holders.get(id(external.owner())) if external.owner is not None else None
            if holder is not None:
                external.owner, external.of_grad = weakref.ref(holder), True
                external.leaf = self._leaf_tensors.get(id(holder))

    def _pin(self, used: frozenset[int]) -> None:
        """What was found in one place may have been wanted from another."""
        holders = self._holders()
        for key, reference in self._leaf_references.items():
            if key in used and (key in self.found_elsewhere or key in holders):
                place = Outside(reference, self._leaf_tensors[key])
                self.record.pins.append(Pin(reference, place))
        for holder, grad, reads in self._grads.values():
            if reads and grad is not None and id(grad) in used:
                place = Outside(weakref.ref(holder), self._leaf_tensors.get(id(holder)), of_grad=True)
                self.record.pins.append(Pin(weakref.ref(grad), place))

    def _remember(self, tensor: Tensor) -> None:
        if tensor._session is None:
            self._before.setdefault(id(tensor), (tensor, tensor._data, tensor._tape))

    def undo(self) -> None:
        """Leave every Tensor outside as it was before the call: it was noted, not run."""
        self._undone = True
        rebound = {id(reference()) for reference in self._rebound}
        for tensor, data, tape in self._before.values():
            if id(tensor) not in rebound:  # another thread may have begun to watch it
                continue
            tensor._data, tensor._tape = data, tape
            tensor._session, tensor._index, tensor._spec = None, -1, None
        for tensor, grad, _ in self._grads.values():
            tensor._grad = grad
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
        raw: tuple[Any, ...] = ()
        if self._raw is not None and self._raw[0] is op and len(self._raw[1]) == len(inputs):
            raw = self._raw[1]
        self._raw = None
        refs = []
        for position, tensor in enumerate(inputs):
            ref = self.ref(tensor)
            if raw and isinstance(ref, Literal) and type(raw[position]) in (bool, int, float):
                ref.raw = raw[position]
            refs.append(ref)
        return tuple(refs)

    def ref(self, tensor: Tensor) -> Ref:
        """Where the value of `tensor` comes from."""
        if tensor._session is self:
            return tensor._index
        if tensor._index == CONSTANT:
            return Literal(tensor._data, device=tensor._device)
        self.check_foreign(tensor)
        array, tensor = tensor._data, self._root(tensor)
        number = self._numbers.get((id(tensor), id(array)))
        if number is not None:
            return external_ref(number)
        leaf = self._leaf_tensors.get(id(tensor))
        if leaf is not None and self._leaf_arrays[id(tensor)] is not array:
            leaf = None
        if self._capture_as_const and leaf is None:
            owner = None if id(array) in self._made else weakref.ref(tensor)
            return Literal(array, owner=owner, device=tensor._device)
        return external_ref(self._new_external(tensor, array, leaf))

    def _root(self, tensor: Tensor) -> Tensor:
        """The Tensor outside that `tensor` is an alias of; itself when it is none."""
        original, array = self._originals.get(id(tensor), (tensor, None))
        return original if array is tensor._data else tensor

    def _new_external(self, tensor: Tensor, array: Any, leaf: int | None) -> int:
        made_here = id(array) in self._made
        origin = self._origins.get(id(array))
        if made_here and origin is None and self._unknown is None:
            self._unknown = caller()
        owner = None if made_here else weakref.ref(tensor)
        self._remember(tensor)
        spec = Spec(array.shape, array.dtype, tensor.device)
        source = caller()
        self.record.externals.append(External(input_node(spec, source), leaf, owner, origin, source))
        self.fed.append(array)
        self._numbers[id(tensor), id(array)] = len(self.fed) - 1
        return len(self.fed) - 1
