"""Records of the same ops that differ in Python numbers alone: one with inputs for these serves both."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from ..ir import Node, Spec, input_node
from .record import Entry, External, Literal, Record, Ref, external_ref

#: Operands: the step, and which one of it.
Places = Collection[tuple[int, int]]


def is_same_step(one: Entry, other: Entry) -> bool:
    """Have two steps the same op, wiring, parameters and constants?"""
    return one is other or (_is_same_op(one, other) and all(map(_is_same, one.args, other.args)))


def _is_same_op(one: Entry, other: Entry) -> bool:
    same = one.op is other.op and one.params == other.params and one.required == other.required
    return same and len(one.args) == len(other.args)


def _is_same(one: Ref, other: Ref) -> bool:
    if isinstance(one, Literal) or isinstance(other, Literal):
        return isinstance(one, Literal) and isinstance(other, Literal) and one.matches(other.array)
    return one == other


def numbers_between(one: Record, other: Record) -> Places | None:
    """The operands that are inputs in one of two records of the same ops, or other numbers than in the other.

    Returns
    -------
    collection of (int, int) or None
        None: the records differ in something else.
    """
    if len(one.entries) != len(other.entries):
        return None
    places: set[tuple[int, int]] = set()
    inputs: dict[int, int] = {}
    for step, (mine, its) in enumerate(zip(one.entries, other.entries, strict=True)):
        if not _is_same_op(mine, its):
            return None
        for position, (a, b) in enumerate(zip(mine.args, its.args, strict=True)):
            if isinstance(a, Literal) and isinstance(b, Literal) and a.matches(b.array):
                continue
            if (number := _number(one, a)) is not None and number == _number(other, b):
                places.add((step, position))
            elif not _is_input(a) or not _is_input(b):
                if not _is_same(a, b):
                    return None
            elif inputs.setdefault(a, b) != b or one.node(a).spec != other.node(b).spec:  # type: ignore[arg-type]
                return None
    return None if any(step in one.statics for step, _ in places) else places


def _is_input(ref: Ref) -> bool:
    return isinstance(ref, int) and ref < 0


def _number(record: Record, ref: Ref) -> tuple[Any, Any] | None:
    """The type of a Python number and the dtype in which an op takes it; None: it is no number."""
    if isinstance(ref, Literal):
        is_number = ref.raw is not None and ref.size is None and not ref.array.ndim
        return (type(ref.raw), ref.array.dtype) if is_number else None
    external = record.externals[-1 - ref] if ref < 0 else None
    if external is None or not isinstance(external.converts, type):
        return None
    return external.converts, external.node.spec.dtype


def with_inputs(record: Record, places: Places) -> Record:
    """`record` with inputs for the numbers at `places`; inputs are in the order of their first use."""
    new = replace(record, entries=[], externals=[], captured={}, ends=None, sized=None, lengths=())
    moved: dict[Ref, Ref] = {}

    def added(external: External) -> Ref:
        new.externals.append(external)
        return external_ref(len(new.externals) - 1)

    def at(ref: Any) -> Any:
        if _is_input(ref) and ref not in moved:
            moved[ref] = added(record.externals[-1 - ref])
        return moved[ref] if _is_input(ref) else ref

    for step, entry in enumerate(record.entries):
        args = tuple(
            [
                added(_input_for(ref, entry))
                if (step, position) in places and isinstance(ref, Literal)
                else at(ref)
                for position, ref in enumerate(entry.args)
            ]
        )
        node = entry.node
        if node is not None and node.inputs:
            node = Node(node.op, tuple(map(new.node, args)), node.params, node.spec, node.source)
        new.entries.append(replace(entry, args=args, node=node))
    for number in range(len(record.externals)):
        at(external_ref(number))
    new.bindings = [
        b if b.external is None else replace(b, external=-1 - at(external_ref(b.external)))
        for b in record.bindings
    ]
    return new


def _input_for(literal: Literal, entry: Entry) -> External:
    node = input_node(Spec((), literal.array.dtype, literal.device), entry.source)
    return External(node, source=entry.source, converts=type(literal.raw))
