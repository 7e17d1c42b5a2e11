"""The states of scans: one number, or the several that an op's `State` says."""

from __future__ import annotations

from collections.abc import Sequence

from mgb.codegen import Stated, bodied, stated
from mgb.ir import Node

from ..folds import held, parts
from .body import Body, element
from .builder import Carried, Type
from .words import WORDS, computed, nothing, step_of

#: The numbers that a scan has made of some elements.
State = list[str]

_WORDS = frozenset(WORDS)


def begun(body: Body, scan: Node) -> State:
    """Return the state before the first element, of one that is not sequential."""
    if scan.op.state is None:
        return [nothing(body, scan, held(scan))]
    return [body.constant(number, held(scan)) for number in scan.op.state.begin]


def lifted(body: Body, scan: Node, values: Sequence[str]) -> State:
    """Return the state that one element makes alone."""
    return list(values) if scan.op.state is None else computed(body, _stated(scan).lift, values)


def joined(body: Body, scan: Node, before: Sequence[str], own: Sequence[str]) -> State:
    """Join two states, in this order whoever does it."""
    if scan.op.state is None:
        return [body.op(step_of(scan), (*before, *own), body.type(held(scan)))]
    return computed(body, _stated(scan).join, (*before, *own))


def stepped(body: Body, scan: Node, before: Sequence[str], own: Sequence[str]) -> tuple[State, str]:
    """Return what a sequential scan carries on, and its element."""
    *state, value = computed(body, bodied(scan, _WORDS), (*before, *own))
    return state, value


def result(body: Body, scan: Node, state: Sequence[str]) -> str:
    """Return the element of the scan."""
    (value,) = state if scan.op.state is None else computed(body, _stated(scan).result, state)
    return value


def factor(scan: Node, state: State) -> str:
    """Return the number of a state that is a product, of a scan that has one."""
    return state[0 if scan.op.state is None else scan.op.state.factor or 0]


def carried(scans: Sequence[Node], states: Sequence[str]) -> list[Carried]:
    """Return the numbers of several states with their types."""
    types = [Type(element(held(v))) for v in scans for _ in range(parts(v))]
    return list(zip(states, types, strict=True))


def apart(scans: Sequence[Node], numbers: Sequence[str]) -> dict[Node, State]:
    """Return the state of each scan, of their numbers one after the other."""
    rest = iter(numbers)
    return {v: [next(rest) for _ in range(parts(v))] for v in scans}


def _stated(scan: Node) -> Stated:
    return stated(scan, _WORDS)
