"""What calls are given while numbers and lengths are followed: to each callee what it can take."""

from __future__ import annotations

import array
import builtins
import collections
import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinFunctionType, FunctionType, GeneratorType, MethodType
from typing import Any

import numpy as np

from ...scalars import SCALARS, Scalar
from ...sizes import but_lengths, settled
from ...tensor import ACTIVE, Tensor
from ...trusted import is_library
from ..binding import Bindable
from . import known
from .watch import Watch

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
#: What holds what it is given, and the methods that put it there.
_HOLDERS = (list, dict, set, tuple)
_FILLING = frozenset({"add", "append", "insert", "extend", "setdefault", "update"})
#: Iterators that compute what they give when they are asked for it.
_LAZY = frozenset({map, filter, zip, enumerate, GeneratorType, itertools.chain, itertools.starmap})
#: Classes whose objects are made of all that an iterator gives.
_CONSUMING = (bytes, bytearray, array.array, collections.deque, collections.OrderedDict, collections.Counter)


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


def measured(value: Any) -> Any:
    """`value` as code that asks for lengths is given it."""
    session = ACTIVE.get()
    return value if session is None else session.measured(value)


def plain(value: Any, rule: Callable[[Scalar], Any] = but_lengths) -> Any:
    """`value` with `rule(number)` for what is followed, in containers too."""
    kind = type(value)  # what it says of its class may be code of a user's
    holds = kind in SCALARS or issubclass(kind, (*_HOLDERS, slice))
    return settled(value, rule, 4) if holds else value


def _consumes(callee: Any) -> bool:
    """Does it go through an iterator that it is given, and keep none?"""
    if any(callee is kind for kind in _CONSUMING) or getattr(callee, "__name__", "") in ("join", "fromkeys"):
        return True
    return known.top_of(callee) in ("numpy", "math", "statistics")


def _fixed(watch: Watch, consumes: bool, value: Any) -> Any:
    """`value` with plain numbers; an iterator gives such to what `consumes` it, others get it itself."""
    if type(value) not in _LAZY or not consumes:
        return plain(value, Scalar.fixed)
    watch.make(each := _each(watch, value))
    return each


def _each(watch: Watch, values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        yield _fixed(watch, True, value)


def given_to(
    watch: Watch, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments for a call of `function`: plain numbers for code that asks them for nothing."""
    callee = _callee(function)
    rule: Callable[[Any], Any] = functools.partial(_fixed, watch, _consumes(callee))
    if _is_operator(callee) and any(issubclass(type(value), Tensor) for value in args):
        rule = measured
    elif _takes(watch, callee) and all(_takes(watch, part) for part in _called_by(callee, args, kwargs)):
        return args, kwargs
    elif _fills(callee):  # one outside, whose lengths are made plain when the call ends
        rule = plain
    elif known.top_of(callee) == "mgb":
        rule = measured if known.says(callee, "elementwise") else lambda value: measured(plain(value))
    return tuple(map(rule, args)), {name: rule(value) for name, value in kwargs.items()}


def _callee(function: Any) -> Any:
    """The function or class that runs when `function` is called."""
    for kind, inner in ((MethodType, "__func__"), (functools.partial, "func"), (Bindable, "__wrapped__")):
        if isinstance(function, kind):
            return _callee(getattr(function, inner))
    if isinstance(function, (FunctionType, type, np.ufunc, *known.IN_C)):
        return function
    return known.called_method(function)


def _called_by(callee: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The functions and classes that a function in C calls with what it is given."""
    is_one = id(callee) in known.CALLING or getattr(callee, "__module__", None) == "itertools"
    given = (*args, *kwargs.values()) if is_one else ()
    return [_callee(value) for value in given if callable(value) and not issubclass(type(value), Tensor)]


def _is_operator(callee: Any) -> bool:
    return isinstance(callee, np.ufunc) or callee is divmod or known.top_of(callee) == "_operator"


def _takes(watch: Watch, callee: Any) -> bool:
    """Does it ask numbers for what it wants of them, and keeps none where it stays?"""
    if isinstance(callee, FunctionType):
        return known.is_users(callee) and not known.is_library_code(callee.__code__)
    if isinstance(callee, type) and known.is_heap(callee):
        return not is_library(callee.__module__)
    if isinstance(getattr(callee, "__self__", None), _HOLDERS):
        return not _fills(callee) or watch.is_made(callee.__self__)
    return id(callee) in _BY_PROTOCOL


def _fills(callee: Any) -> bool:
    """Does it put what it is given into a container?"""
    return isinstance(getattr(callee, "__self__", None), _HOLDERS) and callee.__name__ in _FILLING
