"""Items of dict arguments that a function reads; the others need no guard."""

from __future__ import annotations

import dis
from collections.abc import Sequence
from types import FunctionType
from typing import Any


def items_read(function: FunctionType) -> dict[str, set[Any]]:
    """Map parameters of which a function only reads items by constant keys to these keys."""
    steps, found = list(dis.get_instructions(function.__code__)), {}
    for name in _parameters(function):
        keys = [_key_at(steps, n) if _is_load(step, name) else None for n, step in enumerate(steps)]
        if all((key is not None) == _is_of(step, name) for key, step in zip(keys, steps, strict=True)):
            found[name] = {key[0] for key in keys if key is not None}
    return found


def _parameters(function: FunctionType) -> set[str]:
    """Return those that no other function and no namespace shows."""
    code = function.__code__
    if not {"locals", "vars", "eval", "exec", "dir"}.isdisjoint(code.co_names):
        return set()
    count = code.co_argcount + code.co_kwonlyargcount
    return set(code.co_varnames[:count]).difference(code.co_cellvars)


def _is_load(step: dis.Instruction, name: str) -> bool:
    return step.opname == "LOAD_FAST" and step.argval == name


def _key_at(steps: Sequence[dis.Instruction], index: int) -> tuple[Any] | None:
    """Return the key by which an item is taken of what is loaded at `index`."""
    after = steps[index + 1 : index + 3]
    if [step.opname for step in after] != ["LOAD_CONST", "BINARY_SUBSCR"]:
        return None
    return (after[0].argval,) if type(after[0].argval) in (str, int) else None


def _is_of(step: dis.Instruction, name: str) -> bool:
    """Return whether an instruction has to do with the variable `name`."""
    if "FAST" not in step.opname and step.opname not in ("LOAD_CLOSURE", "LOAD_DEREF"):
        return False
    return name == step.argval or (isinstance(step.argval, tuple) and name in step.argval)
