"""The effects of a recorded call on Tensors outside, and the guards that they need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from ..tensor import Tensor
from .entry import Ref
from .guard import Guard
from .provenance import Provenance
from .record import Binding, Record
from .source import Grad, Object, ObjectRef, Source, Sources
from .tensor_guards import CheckAliasing, CheckConstants
from .watch import Observer


def record_effects(
    record: Record,
    provenance: Provenance,
    leaves: Sequence[Any],
    ref: Callable[[Tensor], Ref],
    returned: Sequence[Any],
    aliased: Collection[int],
) -> None:
    """Add to `record` the effects of the body on Tensors outside, and the guards of their gradients.

    Parameters
    ----------
    record : Record
    provenance : Provenance
    leaves : sequence
        The flattened arguments.
    ref : callable
        Where the value of a Tensor comes from.
    returned : sequence
        The Tensors in the result, and None for other leaves.
    aliased : collection of int
        The ids of Tensors that the body also reached otherwise than as arguments or as a ``grad``.
    """
    owners = [external.tensor(leaves) for external in record.externals]
    numbers = {id(tensor): number for number, tensor in enumerate(owners) if tensor is not None}
    # `ref` may add inputs.
    record.bindings = [*_bind_values(provenance, ref, numbers), *_bind_grads(provenance, ref)]
    owners += [external.tensor(leaves) for external in record.externals[len(owners) :]]
    for external, owner in zip(record.externals, owners, strict=True):
        if id(owner) in provenance.grad_owners:
            external.source = Grad(provenance.source_of(provenance.grad_owners[id(owner)]))
    record.returned = tuple(map(provenance.identity, returned))
    used = _find_used(provenance, [*owners, *returned])
    pinned = list(_guard_identities(provenance, leaves, used.intersection(aliased)))
    record.guards.add(*_guard_grads(provenance), *pinned)
    record.outside = _find_changed(provenance)
    outside = _find_outside(record, provenance, owners)
    outside = outside.difference(id(guard.value.get()) for guard in pinned)
    if outside and provenance.arguments:
        record.guards.add(Guard(Sources(tuple(provenance.arguments.values())), "other than", outside))
    record.guards.add(*_guard_aliasing(record, provenance, used, outside))
    owned = {id(x.owner): x for x in record.constants() if x.owner is not None}
    if owned:
        found = [
            (Object(ObjectRef(t)), x) for x in owned.values() if x.owner and (t := x.owner()) is not None
        ]
        constants = CheckConstants([literal for _, literal in found])
        record.guards.add(Guard(Sources(tuple([source for source, _ in found])), "meets", constants))


def generalize_tensors(
    record: Record,
    provenance: Provenance,
    observer: Observer,
    returned: Sequence[Any],
    aliased: Collection[int],
    may_look: bool,
) -> None:
    """Let Tensors outside be others at each call, where the body only takes their values.

    Parameters are as for `record_effects`. Without `may_look`, only those that differed before may be others.
    """
    touched = [part for tensor, grad, _ in provenance.grads.values() for part in (tensor, grad)]
    touched += [*provenance.watched_outside(), *provenance.rebound_tensors(), *returned]
    owners = {id(external.tensor()) for external in record.externals if external.is_free_tensor}
    free = owners.difference(aliased, map(id, touched))
    used = owners.union(aliased, map(id, touched)) if may_look else observer.changing.tensors
    observer.changing.fix_tensors(but=free if may_look else (), used=used)
    for external in record.externals:
        if external.is_free_tensor and (path := observer.changing.path_to(external.tensor())) is not None:
            external.source = path


def _find_outside(record: Record, provenance: Provenance, owners: Sequence[Tensor | None]) -> frozenset[int]:
    """Return the ids of Tensors outside that must not be arguments of a later call.

    These are the Tensors that a tape of the body watches, and, if the body changes any, all that it uses.
    """
    found = provenance.watched_outside()
    if record.bindings:
        elsewhere = zip(record.externals, owners, strict=True)
        found += [t for e, t in elsewhere if e.is_free_tensor and not e.may_vary and t is not None]
        found += [tensor for tensor, _, _ in provenance.grads.values()]
        found += provenance.rebound_tensors()
    return frozenset(map(id, found)).difference(provenance.arguments, provenance.grad_owners)


def _find_changed(provenance: Provenance) -> frozenset[int]:
    """Return the ids of Tensors outside the arguments that the body changes or differentiates."""
    touched = (tensor for tensor, _, _ in provenance.grads.values())
    found = (*provenance.watched_outside(), *provenance.rebound_tensors(), *touched)
    return frozenset(map(id, found)).difference(provenance.arguments)


def _bind_values(
    provenance: Provenance, ref: Callable[[Tensor], Ref], numbers: Mapping[int, int]
) -> Iterator[Binding]:
    """Yield the new values of Tensors outside, among them gradients."""
    for tensor in provenance.rebound_tensors():
        yield Binding(ref(tensor), provenance.tensor_source(tensor), numbers.get(id(tensor)))


def _bind_grads(provenance: Provenance, ref: Callable[[Tensor], Ref]) -> Iterator[Binding]:
    """Yield the new ``grad`` of Tensors outside: Tensors or None."""
    for tensor in provenance.list_with_new_grad():
        grad, target = tensor._grad, provenance.source_of(tensor)
        which = provenance.identity(grad)
        if grad is not None and isinstance(which, int):
            yield Binding(ref(grad), target, is_grad=True, made=which)
        else:
            assert not isinstance(which, int)
            yield Binding(which, target, is_grad=True)


def _find_used(provenance: Provenance, tensors: Sequence[Any]) -> frozenset[int]:
    """Return the ids of `tensors`, of those whose value or ``grad`` the body set, and of these gradients."""
    touched = map(id, (*tensors, *provenance.rebound_tensors()))
    return frozenset([*touched, *provenance.new_grad_ids(), *provenance.grads])


def _guard_grads(provenance: Provenance) -> Iterator[Guard]:
    """Yield guards of whether a ``grad`` that the body read is None."""
    for tensor, grad, reads in provenance.grads.values():
        if reads:
            yield Guard(Grad(provenance.source_of(tensor)), "no Tensor" if grad is None else "a Tensor", None)


def _guard_aliasing(
    record: Record, provenance: Provenance, used: Collection[int], outside: Collection[int]
) -> Iterator[Guard]:
    """Yield the guard of which arguments and gradients are the same Tensors."""
    found: list[tuple[int, Source]] = list(provenance.arguments.items())
    for tensor, grad, reads in provenance.grads.values():
        if reads and grad is not None and id(grad) in used:
            found.append((id(grad), Grad(provenance.source_of(tensor))))
    if len(found) > len(provenance.arguments):
        first: dict[int, int] = {}
        same = [first.setdefault(key, index) for index, (key, _) in enumerate(found)]
        test = CheckAliasing(same, outside, apart=bool(record.bindings))
        yield Guard(Sources(tuple([source for _, source in found])), "meets", test)


def _guard_identities(
    provenance: Provenance, leaves: Sequence[Any], both: Collection[int]
) -> Iterator[Guard]:
    """Yield guards of the identity of Tensors that the body reached in two ways."""
    for key, argument in provenance.arguments.items():
        if key in both:
            yield Guard(argument, "is", ObjectRef(leaves[argument.index]))
    for holder, grad, reads in provenance.grads.values():
        if reads and grad is not None and (id(grad) in both or id(grad) in provenance.grads):
            yield Guard(Grad(provenance.source_of(holder)), "is", ObjectRef(grad))
