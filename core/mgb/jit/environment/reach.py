"""Which calls of mgb's come to no code of a user's: all that they reach is plain, or mgb's own."""

from __future__ import annotations

import functools
import weakref
from abc import ABC
from collections.abc import Iterable, Iterator
from types import (
    BuiltinFunctionType,
    FrameType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any

import numpy as np

from ...holding import attributes_of
from ...ir import Spec
from ...libraries import Rule
from ...scalars import SCALARS
from ...tensor import Parameter, Tensor
from ...trusted import is_library
from ..guard import PLAIN, is_plain
from ..source import is_static
from ..watch.known import is_empty
from . import known

#: Of these nothing is called that is a user's.
_QUIET = frozenset(
    {
        *PLAIN, *SCALARS, *known.IN_C, Spec, np.ufunc, GetSetDescriptorType, MemberDescriptorType, ModuleType,
        GenericAlias, type(vars(ABC)["_abc_impl"]),
    }
) - {BuiltinFunctionType, MethodWrapperType}  # fmt: skip


def calls_no_user(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], classes: dict[int, type]
) -> bool:
    """Is it one of mgb's that is called, and reaches nothing which has methods of the user's?

    What such a function calls is in its arguments, in its closure, or in what stands in these. Its module is
    mgb's, too.
    """
    of = function.__func__ if type(function) is MethodType else function
    thing = of if isinstance(of, (FunctionType, type)) else type(of)
    return known.top_of(thing) == "mgb" and reaches_no_user((*args, *kwargs.values(), function), classes)


def reaches_no_user(things: Iterable[Any], classes: dict[int, type]) -> bool:
    """Is there no object of a user's class, and no function of a user's, in `things`, however deep?

    Parameters
    ----------
    things : iterable
    classes : dict
        By their ids, those of which that is known; more are added.
    """
    waiting, seen = [*things], dict[int, Any]()
    while waiting:
        thing = waiting.pop()
        if type(thing) in _QUIET or id(thing) in classes or id(thing) in seen:
            continue
        inside = _inside(thing)
        if inside is None:
            return False
        seen[id(thing)] = thing
        waiting += inside
    classes.update({key: thing for key, thing in seen.items() if issubclass(type(thing), type)})
    return True


def _inside(thing: Any) -> Iterable[Any] | None:
    """What can be called by way of `thing`; None: who knows, or that is a user's."""
    kind: Any = type(thing)
    parts = _PARTS.get(kind)
    if parts is not None:
        return parts(thing)  # type: ignore[no-any-return]
    if issubclass(kind, type):
        return _of_class(thing)
    if is_plain(thing):
        return ()
    if kind not in _slots and not (is_library(kind.__module__) and known.is_heap(kind)):
        return None
    return (kind, *_held_by(thing, kind))


#: By classes of libraries.
_slots: dict[type, tuple[str, ...]] = {}


def _held_by(thing: Any, kind: Any) -> Iterator[Any]:
    """What stands in an object of a class that a library has written in Python."""
    if kind not in _slots:
        every = [item for base in kind.__mro__ for item in vars(base).items()]
        _slots[kind] = tuple([name for name, slot in every if type(slot) is MemberDescriptorType])
    yield from (getattr(thing, name, None) for name in _slots[kind])
    if kind.__dictoffset__:
        yield from (vars(thing)[name] for name in attributes_of(thing))
    for base in (dict, list, tuple, set):
        if issubclass(kind, base):
            yield from _PARTS[base](thing)


def _of_class(kind: Any) -> Iterable[Any] | None:
    """Of one of a library's: what mgb has written in it, where a user may have put something else."""
    if known.top_of(kind) == "mgb":
        return (type(kind), *kind.__bases__, *vars(kind).values())
    return () if is_library(kind.__module__) and is_static(kind) else None


def _of_function(function: Any) -> Iterable[Any] | None:
    if not known.is_trusted(function.__code__):
        return None
    cells = [cell.cell_contents for cell in function.__closure__ or () if not is_empty(cell)]
    return (*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())


#: By kinds of objects: what stands in them that may be called.
_PARTS: dict[Any, Any] = {
    **dict.fromkeys((Tensor, Parameter), lambda tensor: known.namespace(tensor).values()),
    **dict.fromkeys((list, tuple, set, frozenset), lambda held: held),
    **dict.fromkeys((dict, MappingProxyType), lambda held: (*held, *held.values())),
    np.ndarray: lambda array: None if array.dtype.hasobject else (),
    FunctionType: _of_function,
    MethodType: lambda method: (method.__self__, method.__func__),
    BuiltinFunctionType: lambda method: (method.__self__,),
    MethodWrapperType: lambda method: (method.__self__,),
    FrameType: lambda frame: (),  # one that a GradManager was opened in, which calls nothing of it
    Rule: lambda rule: (rule.rule, rule.infer),  # what it found beside is of libraries
    functools.partial: lambda made: (made.func, *made.args, *made.keywords.values()),
    functools._lru_cache_wrapper: lambda cached: (cached.__wrapped__,),
    property: lambda made: (made.fget, made.fset, made.fdel),
    staticmethod: lambda made: (made.__func__,),
    classmethod: lambda made: (made.__func__,),
    **dict.fromkeys((weakref.ref, weakref.KeyedRef), lambda held: (held(), held.__callback__)),
}
