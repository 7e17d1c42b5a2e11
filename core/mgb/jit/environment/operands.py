"""What calls are given in which lengths are followed: to each callee what it can take."""

from __future__ import annotations

import builtins
import functools
import itertools
import math
import operator
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from ...sizes import Size, settled
from ...tensor import ACTIVE
from .known import is_heap, is_library, is_library_code, is_trusted

#: Builtins that compute with what they are given, or only hand it on; by id, for some callables have no hash.
_FOLLOWING = {
    id(function): function
    for function in (
        *(getattr(builtins, name) for name in (
            "abs all any dict divmod enumerate filter frozenset isinstance iter len list map max min next "
            "range reversed set slice sorted sum tuple type zip"
        ).split()),
        math.prod, functools.reduce, functools.partial,
        *(value for name, value in vars(operator).items() if callable(value) and name[:1] != "_"),
        *(value for value in vars(itertools).values() if isinstance(value, type)),
    )
}  # fmt: skip
#: Whose methods only hold what they are given.
_HOLDERS = (list, dict, set, tuple)


def measured(value: Any) -> Any:
    """`value` as code that asks for lengths is given it."""
    session = ACTIVE.get()
    return value if session is None else session.measured(value)


def given_to(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments for a call of `function`: for code that knows no sizes they are integers."""
    if str(getattr(function, "__module__", None)).partition(".")[0] == "mgb":
        rule: Callable[[Any], Any] = measured
    elif _follows(function):
        return args, kwargs
    else:
        rule = _fixed
    return tuple(map(rule, args)), {name: rule(value) for name, value in kwargs.items()}


def _fixed(value: Any) -> Any:
    return settled(value, Size.fixed, 3) if type(value) in (Size, *_HOLDERS) else value


def _follows(function: Any) -> bool:
    """May it be given sizes?"""
    if isinstance(function, functools.partial):
        return _follows(function.func)
    if isinstance(function, MethodType):
        return _follows(function.__func__)
    if isinstance(function, FunctionType):
        return not (is_trusted(function.__code__) or is_library_code(function.__code__))
    if isinstance(function, type):
        return id(function) in _FOLLOWING or (is_heap(function) and not is_library(function.__module__))
    if is_heap(type(function)):
        return True
    return id(function) in _FOLLOWING or isinstance(getattr(function, "__self__", None), _HOLDERS)
