"""What calls do with numbers that are followed."""

from __future__ import annotations

import functools
import operator
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from ..binding import Bindable
from . import known
from .watch import Watch


def is_plain_class(function: Any) -> bool:
    """A user's class whose instances are made and then given to `__init__`, as `type` does it."""
    return (
        isinstance(function, type)
        and type(function).__call__ is type.__call__
        and known.is_heap(function)
        and known.is_users(known.lookup(function, "__init__")[0])
    )


def asked_by(function: Any, args: Any) -> Any:
    """The attribute or key that a call reads, which does nothing else; MISSING: it does."""
    if function is getattr and len(args) > 1:
        return args[1]
    is_get = type(function) is BuiltinFunctionType and isinstance(function.__self__, dict)
    return args[0] if is_get and function.__name__ in ("get", "__getitem__") and args else known.MISSING


#: Functions in C that ask numbers to compute or compare, as operators do, or do not look at them.
_BY_PROTOCOL = (
    abs, round, divmod, sum, min, max, sorted, any, all, isinstance, len, getattr, hasattr, iter, next,
    list, tuple, dict, zip, enumerate, reversed, map, filter,
    operator.add, operator.sub, operator.mul, operator.truediv, operator.neg,
)  # fmt: skip
#: What puts something into a list or dict that was made here.
_FILLING = frozenset({"append", "insert", "extend", "setdefault", "update"})


def takes(watch: Watch, function: Any) -> bool:
    """Does it ask a number for what it wants of it, and keeps none? Others are given plain ones."""
    if any(function is one for one in _BY_PROTOCOL):
        return True
    if isinstance(function, (MethodType, functools.partial, Bindable)):
        inner = {MethodType: "__func__", functools.partial: "func"}.get(type(function), "__wrapped__")
        return takes(watch, getattr(function, inner))
    if isinstance(function, FunctionType):
        return known.is_users(function) or known.is_elementwise(function)
    if isinstance(function, BuiltinFunctionType):
        owner = function.__self__
        return isinstance(owner, list | dict) and watch.is_made(owner) and function.__name__ in _FILLING
    if isinstance(function, type | np.ufunc):
        return isinstance(function, np.ufunc) or is_plain_class(function)
    return known.is_users(
        known.lookup(type(function), "forward" if known.is_module(function) else "__call__")[0]
    )
