"""Whether two calls did the same, so that each shows what the other would have done with other arguments."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any

from ..tensor import Tensor
from .record import Binding, Entry, Expected, External, Literal, Outside, Pin, Record, Ref
from .surroundings import Contents, Variable


def alike(one: Record, other: Record) -> bool:
    """Do both records have the same steps, from the same places to the same places?

    What stands at a place, in an argument or a ``grad``, may differ. Where it does, the body of both calls
    has asked for what stands there, and not for a Tensor that it knew.
    """
    return (
        one.same == other.same
        and _all(_same_entry, one.entries, other.entries)
        and _all(_same_external, one.externals, other.externals)
        and _all(_same_binding, one.bindings, other.bindings)
        and _all(_same_expected, one.expected, other.expected)
        and _all(_same_module, one.modules, other.modules)
        and _all(Contents.are_those_of, one.contents, other.contents)
        and _same_instance(one.instance, other.instance)
        and _all(_same_variable, one.variables, other.variables)
        and one.trainers == other.trainers
        and _all(_same_source, one.returned, other.returned)
        and _all(_same_source, one.watched, other.watched)
        and _partition(one) == _partition(other)
    )


def still_pinned(pins: Sequence[Pin], other: Record) -> tuple[Pin, ...]:
    """Those of the `pins` of a record at whose places a record that is alike found the same Tensors."""
    found = {_place(pin.place): pin.tensor() for pin in other.pins}
    return tuple([pin for pin in pins if _is_at(pin, found.get(_place(pin.place)))])


def _is_at(pin: Pin, found: Tensor | None) -> bool:
    return found is not None and pin.tensor() is found


def _all(same: Any, ones: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(ones) == len(others) and all(map(same, ones, others))


def _place(place: External | Expected | Binding | Outside) -> tuple[Any, ...]:
    """What is equal for equal places; a Tensor that is gone stands nowhere."""
    owner = place.owner() if place.leaf is None and place.owner is not None else None
    gone = owner is None and place.leaf is None and place.owner is not None
    of_grad = not isinstance(place, Expected) and place.of_grad
    return place.leaf, object() if gone else id(owner), of_grad


def _same_entry(one: Entry, other: Entry) -> bool:
    return (
        one.op is other.op
        and one.required == other.required
        and one.params == other.params
        and _all(_same_ref, one.args, other.args)
        and (one.node is None or other.node is None or one.spec == other.spec)
    )


def _same_ref(one: Ref | None, other: Ref | None) -> bool:
    if isinstance(one, Literal):
        return isinstance(other, Literal) and one.matches(other.array)
    return one.__class__ is other.__class__ and one == other


def _same_external(one: External, other: External) -> bool:
    live = one.origin is not None
    if live or other.origin is not None or one.node.spec != other.node.spec:
        return live and other.origin is not None and one.node.spec == other.node.spec
    return _place(one) == _place(other)


def _same_source(one: Any, other: Any) -> bool:
    """Of what is handed on: a place outside, a Ref, None, or the number of a Tensor that the body made."""
    if isinstance(one, Outside):
        return isinstance(other, Outside) and _place(one) == _place(other)
    if isinstance(one, Literal):
        return _same_ref(one, other)
    return one.__class__ is other.__class__


def _same_binding(one: Binding, other: Binding) -> bool:
    numbers = isinstance(one.source, int) and isinstance(other.source, int)
    return (
        _place(one) == _place(other)
        and (one.is_grad, one.external) == (other.is_grad, other.external)
        and _same_source(one.source, other.source)
        and (not numbers or one.source == other.source)
    )


def _same_expected(one: Expected, other: Expected) -> bool:
    return (one.is_none, one.is_used) == (other.is_none, other.is_used) and _place(one) == _place(other)


def _same_module(one: tuple[Any, dict[str, Any]], other: tuple[Any, dict[str, Any]]) -> bool:
    (module, attributes), (its, others) = one, other
    return (
        module is its
        and attributes.keys() == others.keys()
        and all(map(is_, attributes.values(), others.values()))
    )


def _same_variable(one: Variable, other: Variable) -> bool:
    return one.holder is other.holder and one.name == other.name and one.value is other.value


def _same_instance(one: Any, other: Any) -> bool:
    return one is other or _same_module((None, one[1]), (None, other[1]))


def _partition(record: Record) -> list[int | None]:
    """Which of the Tensors that the body made is handed on where, numbered in order."""
    numbers: dict[int, int] = {}
    made = [b.made for b in record.bindings]
    made += [place if isinstance(place, int) else None for place in record.returned]
    return [None if key is None else numbers.setdefault(key, len(numbers)) for key in made]
