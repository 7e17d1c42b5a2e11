"""What a recorded call leaves outside, and how that depends on the Tensors there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from ..tensor import Tensor
from .entry import Ref
from .guard import Guard
from .provenance import Provenance
from .record import Binding, Record
from .source import Grad, Held, Object, Source, Sources
from .tensor_guards import Constants, Same
from .watch import Observer


def note_effects(
    record: Record,
    provenance: Provenance,
    leaves: Sequence[Any],
    ref: Callable[[Tensor], Ref],
    returned: Sequence[Any],
    found_elsewhere: Collection[int],
) -> None:
    """Note in `record` the effects of the body on Tensors outside, and the guards of their gradients.

    Parameters
    ----------
    record : Record
    provenance : Provenance
    leaves : sequence
        The flattened arguments.
    ref : callable
        Where the value of a Tensor comes from.
    returned : sequence
        The Tensors in the result, and None for what is none.
    found_elsewhere : collection of int
        The ids of Tensors that the body also came by in another way than as arguments or as a ``grad``.
    """
    owners = [external.tensor(leaves) for external in record.externals]
    numbers = {id(tensor): number for number, tensor in enumerate(owners) if tensor is not None}
    record.bindings = [*_values(provenance, ref, numbers), *_grads(provenance, ref)]  # may have more inputs
    owners += [external.tensor(leaves) for external in record.externals[len(owners) :]]
    for external, owner in zip(record.externals, owners, strict=True):
        if id(owner) in provenance.holders:
            external.source = Grad(provenance.source_of(provenance.holders[id(owner)]))
    record.returned = tuple(map(provenance.identity, returned))
    used = _used(provenance, [*owners, *returned])
    pinned = list(_identities(provenance, leaves, used.intersection(found_elsewhere)))
    record.guards.add(*_guards_of_grads(provenance), *pinned)
    record.outside = _changed(provenance)
    outside = _outside(record, provenance, owners).difference(id(guard.value.get()) for guard in pinned)
    if outside and provenance.arguments:
        record.guards.add(Guard(Sources(tuple(provenance.arguments.values())), "other than", outside))
    record.guards.add(*_sameness(record, provenance, used, outside))
    owned = {id(x.owner): x for x in record.constants() if x.owner is not None}
    if owned:
        found = [(Object(Held(t)), x) for x in owned.values() if x.owner and (t := x.owner()) is not None]
        constants = Constants([literal for _, literal in found])
        record.guards.add(Guard(Sources(tuple([source for source, _ in found])), "meets", constants))


def look_for_tensors(
    record: Record,
    provenance: Provenance,
    observer: Observer,
    returned: Sequence[Any],
    found_elsewhere: Collection[int],
    may_look: bool,
) -> None:
    """Tensors outside that are others from call to call are looked for, if the body only takes their values.

    Parameters are as for `note_effects`, and `may_look` says whether any may be another one.
    """
    touched = [part for tensor, grad, _ in provenance.grads.values() for part in (tensor, grad)]
    touched += [*provenance.watched_outside(), *provenance.rebound_tensors(), *returned]
    owners = {id(external.tensor()) for external in record.externals if external.is_elsewhere}
    free = owners.difference(found_elsewhere, map(id, touched))
    used = owners.union(found_elsewhere, map(id, touched)) if may_look else observer.changing.tensors
    observer.changing.fix_tensors(but=free if may_look else (), used=used)
    for external in record.externals:
        if external.is_elsewhere and (path := observer.changing.path_to(external.tensor())) is not None:
            external.source = path


def _outside(record: Record, provenance: Provenance, owners: Sequence[Tensor | None]) -> frozenset[int]:
    """The ids of Tensors outside none of which may be an argument.

    These are those that a tape of the body watched, and those that the body found, where it changes some.
    """
    found = provenance.watched_outside()
    if record.bindings:
        elsewhere = zip(record.externals, owners, strict=True)
        found += [t for e, t in elsewhere if e.is_elsewhere and not e.is_looked_for and t is not None]
        found += [tensor for tensor, _, _ in provenance.grads.values()]
        found += provenance.rebound_tensors()
    return frozenset(map(id, found)).difference(provenance.arguments, provenance.holders)


def _changed(provenance: Provenance) -> frozenset[int]:
    """The ids of Tensors outside the arguments that the body works with otherwise than by taking values."""
    touched = (tensor for tensor, _, _ in provenance.grads.values())
    found = (*provenance.watched_outside(), *provenance.rebound_tensors(), *touched)
    return frozenset(map(id, found)).difference(provenance.arguments)


def _values(
    provenance: Provenance, ref: Callable[[Tensor], Ref], numbers: Mapping[int, int]
) -> Iterator[Binding]:
    """New values of Tensors outside, the gradients that were found among them."""
    for tensor in provenance.rebound_tensors():
        yield Binding(ref(tensor), provenance.tensor_source(tensor), numbers.get(id(tensor)))


def _grads(provenance: Provenance, ref: Callable[[Tensor], Ref]) -> Iterator[Binding]:
    """Tensors, or None, that became the ``grad`` of a Tensor outside."""
    for tensor in provenance.given():
        grad, target = tensor._grad, provenance.source_of(tensor)
        which = provenance.identity(grad)
        if grad is not None and isinstance(which, int):
            yield Binding(ref(grad), target, is_grad=True, made=which)
        else:
            assert not isinstance(which, int)
            yield Binding(which, target, is_grad=True)


def _used(provenance: Provenance, tensors: Sequence[Any]) -> frozenset[int]:
    """The ids of `tensors` and of those that the body gave a value or a ``grad``, or gave as one."""
    touched = map(id, (*tensors, *provenance.rebound_tensors()))
    return frozenset([*touched, *provenance.given_grads(), *provenance.grads])


def _guards_of_grads(provenance: Provenance) -> Iterator[Guard]:
    """Another call may find another ``grad``, or none, in the same Tensor."""
    for tensor, grad, reads in provenance.grads.values():
        if reads:
            yield Guard(Grad(provenance.source_of(tensor)), "no Tensor" if grad is None else "a Tensor", None)


def _sameness(
    record: Record, provenance: Provenance, used: Collection[int], outside: Collection[int]
) -> Iterator[Guard]:
    """Which of the arguments and of the gradients that are used are the same Tensors."""
    found: list[tuple[int, Source]] = list(provenance.arguments.items())
    for tensor, grad, reads in provenance.grads.values():
        if reads and grad is not None and id(grad) in used:
            found.append((id(grad), Grad(provenance.source_of(tensor))))
    if len(found) > len(provenance.arguments):
        first: dict[int, int] = {}
        same = [first.setdefault(key, index) for index, (key, _) in enumerate(found)]
        test = Same(same, outside, apart=bool(record.bindings))
        yield Guard(Sources(tuple([source for _, source in found])), "meets", test)


def _identities(provenance: Provenance, leaves: Sequence[Any], both: Collection[int]) -> Iterator[Guard]:
    """What the body came by in two ways is the same Tensor at each call."""
    for key, argument in provenance.arguments.items():
        if key in both:
            yield Guard(argument, "is", Held(leaves[argument.index]))
    for holder, grad, reads in provenance.grads.values():
        if reads and grad is not None and (id(grad) in both or id(grad) in provenance.grads):
            yield Guard(Grad(provenance.source_of(holder)), "is", Held(grad))
