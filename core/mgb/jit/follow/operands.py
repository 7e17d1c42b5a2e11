"""The operands of calls with symbolic numbers and lengths: each callee gets what it supports."""

from __future__ import annotations

import array
import builtins
import collections
import functools
import itertools
import math
import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from types import (
    BuiltinFunctionType,
    FunctionType,
    GeneratorType,
    MethodDescriptorType,
    MethodType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np

from ...ir.scalars import SCALARS, Scalar
from ...ir.sizes import but_lengths, settled
from ...runtime.trusted import PACKAGE, is_library, is_plugins, is_python
from ...tensor import Tensor
from ...tensor.holding import Holder
from .. import array_proxy as arrays
from ..binding import Bindable
from ..source import MISSING, lookup, namespace
from ..symbolic_array import SymbolicArray, given
from ..watch import known

#: What runs when it is called.
_CALLEES = (FunctionType, type, np.ufunc, *known.IN_C)

#: Functions in C that ask numbers to compute or compare, as operators do, or only hand them on; by id, for
#: some callables have no hash.
_BY_PROTOCOL = {
    id(function): function
    for function in (
        *(getattr(builtins, name) for name in (
            "abs all any dict divmod enumerate filter frozenset isinstance iter len list map "
            "max min next range reversed round set slice sorted sum tuple zip"
        ).split()),
        math.prod, functools.reduce, functools.partial,
        *(value for name, value in vars(operator).items() if callable(value) and name[:1] != "_"),
        *(value for value in vars(itertools).values() if isinstance(value, type)),
    )
}  # fmt: skip
#: Those that read or write an attribute of what they are given first, which may be what they are given last.
_OF_ATTRIBUTES = {id(function): function for function in (getattr, setattr, object.__setattr__)}
#: Functions in C that call functions which they are given.
_CALLING = {
    id(function): function
    for function in (map, filter, sorted, min, max, functools.reduce, functools.partial)
}
#: What holds what it is given.
_HOLDERS = (list, dict, set, tuple)
#: Iterators that compute what they give when they are asked for it.
_LAZY = frozenset({map, filter, zip, enumerate, GeneratorType, itertools.chain, itertools.starmap})
#: Classes whose objects are made of all that an iterator gives.
_CONSUMING = (bytes, bytearray, array.array, collections.deque, collections.OrderedDict, collections.Counter)

Measure = Callable[[Any], Any]


def is_users(function: Any) -> bool:
    """Return whether it is a function in Python, and none of mgb, NumPy, a plugin or Python's library."""
    if type(function) is not FunctionType or not known.is_users(function):
        return False
    file = function.__code__.co_filename
    return not (is_python(file) or is_plugins(file))


def is_plain_class(kind: Any) -> bool:
    """Return a user's class whose instances are made and then given to `__init__`, as `type` does it."""
    return (
        issubclass(type(kind), type)
        and type(kind).__call__ is type.__call__
        and known.is_heap(kind)
        and lookup(kind, "__new__")[0] is object.__new__
        and is_users(lookup(kind, "__init__")[0])
    )


def given_to(
    measured: Measure, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments for a call of `function`: plain numbers for code that asks them for nothing.

    Parameters
    ----------
    measured : callable
        Gives a value as code of mgb's is given it, with the lengths that are followed.
    function : callable
    args : tuple
    kwargs : dict
    """
    callee = callee_of(function)
    rule: Callable[[Any], Any] = functools.partial(_fixed, _consumes(callee))
    if _asks_tensors(function, callee) and any(issubclass(type(value), Tensor) for value in args):
        rule = measured
    elif _takes(callee, args) and all(_takes(part, ()) for part in _called_by(callee, args, kwargs)):
        return args, kwargs
    elif known.top_of(callee) == "mgb":
        computes = known.said_of(callee.__module__, callee.__name__) in ("computes", "elementwise")
        rule = measured if computes else lambda value: measured(_plain(value, but_lengths))
    return tuple(map(rule, args)), {name: rule(value) for name, value in kwargs.items()}


def profiled(function: Any, args: tuple[Any, ...]) -> Any:
    """Return a function in C as a profiler is given it, methods bound; MISSING where it would not be."""
    if type(function) not in _PROFILED:
        return MISSING
    if type(function) in (MethodDescriptorType, WrapperDescriptorType) and args:
        first = given(args[0])
        if issubclass(type(first), function.__objclass__):
            return function.__get__(first, type(first))
    return function


#: Whose calls are reported; before Python 3.12 those that operators are made of are not.
_PROFILED = known.IN_C if hasattr(sys, "monitoring") else (BuiltinFunctionType, MethodDescriptorType)


def callee_of(function: Any) -> Any:
    """Return the function or class that runs when `function` is called; MISSING: who knows."""
    for kind, inner in ((MethodType, "__func__"), (functools.partial, "func"), (Bindable, "__wrapped__")):
        if issubclass(type(function), kind):  # what it says of its class may be code of a user's
            return callee_of(getattr(function, inner))
    if issubclass(type(function), _CALLEES):
        return function
    method = _called_method(function)
    return method if issubclass(type(method), _CALLEES) else MISSING


def _called_method(thing: Any) -> Any:
    """Return the function that is given the arguments of a call of `thing`, maybe by one of mgb."""
    kind: Any = type(thing)
    name = getattr(kind, "__calls__", "__call__") if Holder in kind.__mro__ else "__call__"
    return MISSING if name in namespace(thing) else lookup(kind, name)[0]


def _plain(value: Any, rule: Callable[[Scalar], Any]) -> Any:
    """Return `value` with `rule(number)` for what is followed, in containers too; of a view the array."""
    kind = type(value)  # what it says of its class may be code of a user's
    holds = kind in SCALARS or issubclass(kind, (*_HOLDERS, slice))
    return settled(value, rule, 4) if holds else value


def _consumes(callee: Any) -> bool:
    """Return whether it goes through an iterator that it is given, and keeps none."""
    if any(callee is kind for kind in _CONSUMING) or getattr(callee, "__name__", "") in ("join", "fromkeys"):
        return True
    return known.top_of(callee) in ("numpy", "math", "statistics")


def _fixed(consumes: bool, value: Any) -> Any:
    """Return `value` with plain numbers; an iterator gives them to what `consumes` it."""
    if type(value) in _LAZY and consumes:
        return _each(value)
    return _plain(arrays.fixed(given(value)), Scalar.fixed)


def _each(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        yield _fixed(True, value)


def _called_by(callee: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return the functions and classes that a function in C calls with what it is given."""
    is_one = id(callee) in _CALLING or getattr(callee, "__module__", None) == "itertools"
    handed = (*args, *kwargs.values()) if is_one else ()
    return [callee_of(value) for value in handed if callable(value) and not issubclass(type(value), Tensor)]


def _asks_tensors(function: Any, callee: Any) -> bool:
    """Return whether a call is a Tensor's to compute if one is among the operands: operators, and NumPy's."""
    return callee is divmod or known.top_of(callee) == "_operator" or known.top_of(function) == "numpy"


def _takes(callee: Any, args: tuple[Any, ...]) -> bool:
    """Return whether it asks numbers for what it wants of them. What it writes is undone at the end."""
    if type(callee) is FunctionType:
        return is_users(callee)
    if issubclass(type(callee), type) and known.is_heap(callee):
        return not is_library(callee.__module__)
    if isinstance(getattr(callee, "__self__", None), _HOLDERS):
        return True
    if callee is pow:  # with a modulus it asks the first operand alone
        return len(args) == 2
    if id(callee) in _OF_ATTRIBUTES:
        return bool(args) and type(args[0]) not in SCALARS and type(args[0]) is not SymbolicArray
    return id(callee) in _BY_PROTOCOL


def is_of_mgb(function: Any) -> bool:
    """Return whether it is a function in Python of mgb's own."""
    return type(function) is FunctionType and function.__code__.co_filename.startswith(PACKAGE)
