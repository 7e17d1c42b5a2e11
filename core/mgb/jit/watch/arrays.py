"""Which arrays among the arguments a function only hands to mgb, so that what they hold need not stay.

It gives them to a function of mgb's, or has an operator take them, once. Afterwards it is asked whether an op
has taken them, and whether another function has got them, as that of an operator of a user's.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from types import CodeType, FunctionType, ModuleType
from typing import Any

from . import pure
from .known import top_of

#: Attributes of an array that the key of a call tells.
_IN_KEYS = frozenset({"shape", "dtype", "ndim", "size", "nbytes", "itemsize"})
_CALLS = frozenset({"PRECALL"} if "PRECALL" in dis.opmap else {"CALL", "CALL_KW"})
#: What only puts something on the stack.
_PUSHING = frozenset(
    "LOAD_FAST LOAD_CONST LOAD_GLOBAL LOAD_NAME LOAD_DEREF LOAD_FAST_LOAD_FAST PUSH_NULL KW_NAMES".split()
)

#: What takes from the stack, and puts one result there, or a method and what it is called of.
_EXPRESSIONS = ("LOAD_ATTR", "LOAD_METHOD", "BINARY_", "UNARY_", "COMPARE_OP", "BUILD_", "CALL", "PRECALL")


def handed_over(function: FunctionType) -> frozenset[str]:
    """The parameters that once a function of mgb's or an operator takes, before any jump, and nothing else.

    Each of them may be replaced by what that gives, and used then.
    """
    steps = _beginning_of(function.__code__)
    return frozenset(name for name in _parameters(function) if _is_handed_over(name, function, steps))


def items_read(function: FunctionType) -> dict[str, dict[Any, bool]]:
    """Of parameters of which a function only reads items by keys in its code: these keys.

    With each of them is said whether what stands there is handed over, as for `handed_over`.
    """
    steps, begins = list(dis.get_instructions(function.__code__)), _beginning_of(function.__code__)
    found = {}
    for name in _parameters(function):
        keys = [_key_at(steps, n) if _is_load(step, name) else None for n, step in enumerate(steps)]
        if all((key is not None) == _is_of(step, name) for key, step in zip(keys, steps, strict=True)):
            asked = [key[0] for key in keys if key is not None]
            given = {key: len([*_given(name, function, begins, (key,))]) for key in set(asked)}
            found[name] = {key: asked.count(key) == given[key] == 1 for key in given}
    return found


def _parameters(function: FunctionType) -> set[str]:
    """Those that no other function and no namespace shows."""
    code = function.__code__
    if not {"locals", "vars", "eval", "exec", "dir"}.isdisjoint(code.co_names):
        return set()
    count = code.co_argcount + code.co_kwonlyargcount
    return set(code.co_varnames[:count]).difference(code.co_cellvars)


def _is_load(step: dis.Instruction, name: str) -> bool:
    return step.opname == "LOAD_FAST" and step.argval == name


def _key_at(steps: Sequence[dis.Instruction], place: int) -> tuple[Any] | None:
    """The key by which an item is taken of what is loaded at `place`."""
    after = steps[place + 1 : place + 3]
    if [step.opname for step in after] != ["LOAD_CONST", "BINARY_SUBSCR"]:
        return None
    return (after[0].argval,) if type(after[0].argval) in (str, int) else None


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
        if _is_load(step, name) and then.opname == "LOAD_ATTR":
            if then.argval in _IN_KEYS:
                yield step.offset


def _given(
    name: str, function: FunctionType, steps: Sequence[dis.Instruction], key: tuple[Any] | None = None
) -> Iterator[int]:
    """The places where it, or the item by `key`, is an argument of a call of a function or class of mgb's."""
    for place, step in enumerate(steps):
        if step.opname == "LOAD_GLOBAL":
            value, end = _named(step.argval, function.__globals__, steps, place)
            if _is_mgbs(value):
                yield from _arguments(name, steps, end, key)
        elif key is None and _is_load(step, name) and _is_operand(steps[place + 1 :]):
            yield place


def _is_operand(steps: Sequence[dis.Instruction]) -> bool:
    """Does an operator take what was just loaded, and not write it?"""
    above = 0  # what lies on it
    for step in steps:
        if step.opname == "BINARY_OP" and above < 2:
            return above == 0 or not step.argrepr.endswith("=")
        if step.opname not in _PUSHING and (above == 0 or not step.opname.startswith(_EXPRESSIONS)):
            return False
        above += dis.stack_effect(step.opcode, step.arg)
        if above < (0 if step.opname in _PUSHING else 1):
            return False
    return False


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


def _arguments(
    name: str, steps: Sequence[dis.Instruction], start: int, key: tuple[Any] | None
) -> Iterator[int]:
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
        begin = place if key is None else place - 2
        is_whole = key is None or (step.opname == "BINARY_SUBSCR" and _key_at(steps, begin) == key)
        if begin >= start and is_whole and _is_load(steps[begin], name):
            waiting[depth] = begin
