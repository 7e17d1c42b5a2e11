"""Which arrays among the arguments a function only hands to mgb, so that what they hold need not stay."""

from __future__ import annotations

import dis
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ..environment.known import top_of
from . import pure

#: Attributes of an array that the key of a call tells.
_IN_KEYS = frozenset({"shape", "dtype", "ndim", "size", "nbytes", "itemsize"})
_CALLS = frozenset({"PRECALL"} if "PRECALL" in dis.opmap else {"CALL", "CALL_KW"})
#: What only puts something on the stack.
_PUSHING = frozenset(
    "LOAD_FAST LOAD_CONST LOAD_GLOBAL LOAD_NAME LOAD_DEREF LOAD_FAST_LOAD_FAST PUSH_NULL KW_NAMES".split()
)


def handed_over(function: FunctionType) -> frozenset[str]:
    """The parameters that are once given to a function of mgb's, before any jump, and not used otherwise.

    Each of them may be replaced by what that gives, and used then.
    """
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    names = set(code.co_varnames[:count]).difference(code.co_cellvars)
    steps = _beginning_of(code)
    return frozenset(name for name in names if _is_handed_over(name, function, steps))


def _beginning_of(code: CodeType) -> list[dis.Instruction]:
    """What runs once, in order, before anything else does."""
    bytecode = dis.Bytecode(code)
    tries: Sequence[Any] = getattr(bytecode, "exception_entries", ())
    limit = min((entry.start for entry in tries), default=1 << 30)
    steps: list[dis.Instruction] = []
    for step in bytecode:
        is_jump = step.opcode in dis.hasjrel or step.opcode in dis.hasjabs
        if is_jump or step.is_jump_target or step.offset >= limit:
            break
        steps.append(step)
    return steps


def _is_handed_over(name: str, function: FunctionType, steps: list[dis.Instruction]) -> bool:
    every = [step for step in dis.get_instructions(function.__code__) if _is_of(step, name)]
    given = sorted(set(_given(name, function, steps)))
    if len(given) != 1:
        return False
    stored = [n for n, step in enumerate(steps) if step.opname == "STORE_FAST" and step.argval == name]
    end = steps[stored[0]].offset if stored and stored[0] > given[0] else 1 << 30
    harmless = {steps[given[0]].offset, *_asked(name, steps)}
    return all(step.offset in harmless or step.offset >= end for step in every)


def _is_of(step: dis.Instruction, name: str) -> bool:
    """Does an instruction have to do with the variable `name`?"""
    if "FAST" not in step.opname and step.opname not in ("LOAD_CLOSURE", "LOAD_DEREF"):
        return False
    return name == step.argval or (isinstance(step.argval, tuple) and name in step.argval)


def _asked(name: str, steps: Sequence[dis.Instruction]) -> Iterator[int]:
    """Where it is loaded for what the key of a call tells of it."""
    for step, then in pairwise(steps):
        if step.opname == "LOAD_FAST" and step.argval == name and then.opname == "LOAD_ATTR":
            if then.argval in _IN_KEYS:
                yield step.offset


def _given(name: str, function: FunctionType, steps: Sequence[dis.Instruction]) -> Iterator[int]:
    """The places where it is an argument of a call of a function or class of mgb's."""
    for place, step in enumerate(steps):
        if step.opname == "LOAD_GLOBAL":
            value, end = _named(step.argval, function.__globals__, steps, place)
            if _is_mgbs(value):
                yield from _arguments(name, steps, end)


def _named(
    name: str, space: Mapping[str, Any], steps: Sequence[dis.Instruction], place: int
) -> tuple[Any, int]:
    """What stands in a variable and the attributes of modules that follow, and where these end."""
    value, place = space.get(name), place + 1
    while isinstance(value, ModuleType) and place < len(steps):
        if steps[place].opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            break
        value, place = vars(value).get(steps[place].argval), place + 1
    return value, place


def _is_mgbs(value: Any) -> bool:
    if isinstance(value, FunctionType):
        return top_of(value) == "mgb" and pure.is_of_library(value)
    return isinstance(value, type) and top_of(value) == "mgb" and pure.is_library(value.__module__)


def _arguments(name: str, steps: Sequence[dis.Instruction], start: int) -> Iterator[int]:
    """Where `name` is loaded as an argument itself of the function that was loaded before `start`."""
    depth, waiting = 0, dict[int, int]()
    for place, step in enumerate(steps[start:], start):
        if step.opname in _CALLS and step.arg == depth - (step.opname == "CALL_KW"):
            yield from waiting.values()
            return
        depth += dis.stack_effect(step.opcode, step.arg)
        kept = depth + 1 if step.opname in _PUSHING else depth  # what others do to the stack ends here
        waiting = {at: where for at, where in waiting.items() if at < kept}
        if depth < 0:
            return
        if step.opname == "LOAD_FAST" and step.argval == name:
            waiting[depth] = place
