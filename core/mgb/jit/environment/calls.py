"""What a call may do: functions of a user are armed, others are pure, or an impurity."""

from __future__ import annotations

import inspect
import random
import types
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from ..guard import is_plain
from ..source import Attribute
from ..watch.classes import METHODS
from ..watch.known import is_empty
from . import known
from .attributes import class_fact, function_facts, special
from .builtin_calls import OBJECTS, SPECIAL, again, logs, text
from .c_calls import handed, in_c, maker, of_numpy, whole
from .known import (
    IN_C,
    added_classes,
    called_method,
    is_heap,
    is_trusted,
    is_trusted_holder,
    is_users,
    lookup,
    top_of,
)
from .reads import DEPTH, container, tree
from .watch import Then, Watch


def called(watch: Watch, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Then:
    """`function` is about to be called."""
    kind = type(function)
    if kind is MethodType:
        if isinstance(function.__self__, known.SEEDED) and watch.is_made(function.__self__):
            return maker(watch, [*args, *kwargs.values()])
        return called(watch, function.__func__, [function.__self__, *args], kwargs)
    if kind is FunctionType:
        return _python(watch, function, args, kwargs)
    if isinstance(function, type):
        return _class(watch, function, args, kwargs)
    if isinstance(function, IN_C):
        return in_c(watch, function, args, kwargs)
    for callable_kind, handler in OBJECTS.items():
        if isinstance(function, callable_kind):
            return handler(watch, function, args, kwargs)
    if top_of(kind) == "numpy":
        return of_numpy(watch, function, args, kwargs)
    return _instance(watch, function, args)


# functions in Python


def _python(watch: Watch, function: FunctionType, args: list[Any], kwargs: dict[str, Any]) -> Then:
    if not is_trusted(function.__code__):
        if not watch.is_made(function):
            function_facts(watch, function)
        watch.arm(function)
        is_generator = function.__code__.co_flags & 0x2A0  # or a coroutine
        return maker(watch, []) if is_generator else None
    if hasattr(function, "registry") and hasattr(function, "dispatch") and args:
        return _dispatched(watch, function, args, kwargs)
    if "registry" in function.__code__.co_freevars:
        watch.impure(f"calls {function.__name__} of a function by classes")
    return _trusted(watch, function, args, kwargs)


def _dispatched(watch: Watch, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Then:
    """A function made by `singledispatch`."""
    watch.part(function, Attribute, "registry", function.registry)
    container(watch, function.registry)
    if not is_plain(args[0]):
        watch.kind(args[0])
    return called(watch, function.dispatch(type(args[0])), args, kwargs)


def _trusted(watch: Watch, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Then:
    """A function of mgb or NumPy, or of Python's library, that is pure as far as it is not denied."""
    top, name = top_of(function), function.__name__
    if function in known.AGAIN:
        return again(watch, function, tuple(args))
    if function is inspect.signature and len(args) == 1 and not kwargs and _has_own_signature(watch, args[0]):
        return maker(watch, args)
    if top == "numpy":
        return of_numpy(watch, function, args, kwargs)
    every = [*args, *kwargs.values()]
    if top == "mgb":
        _of_mgb(watch, function, args)
    elif top == "logging":
        return logs(watch, function, args)
    elif top in known.DENIED_LIBRARY or function in known.DENIED or _is_impure_json(function, kwargs):
        watch.impure(f"calls {function.__module__}.{name}")
    of_mgb = known.is_of_mgb(function.__code__)
    if of_mgb:
        _may_call(watch, function)
    for value in every:
        container(watch, value, DEPTH, whole=top in ("copy", "dataclasses"))
        if is_trusted_holder(value):
            holder_facts(watch, value)
        elif isinstance(value, IN_C):
            handed(watch, value)
        elif of_mgb:
            _may_call(watch, value)
    return maker(watch, every)


def _has_own_signature(watch: Watch, function: Any) -> bool:
    """Is it a function whose parameters nothing but itself says? These have to stay."""
    if not isinstance(function, FunctionType) or function.__dict__:
        return False
    function_facts(watch, function)
    watch.part(function, Attribute, "__annotations__", function.__annotations__)
    container(watch, function.__annotations__, DEPTH)
    return True


def _is_impure_json(function: Any, kwargs: dict[str, Any]) -> bool:
    """Does it read or write a file, or does it have a class of the user's called?"""
    return top_of(function) == "json" and (function.__name__ in ("load", "dump") or "cls" in kwargs)


def _may_call(watch: Watch, value: Any, inside: frozenset[Any] = frozenset()) -> None:
    """A function of mgb may call the functions of a user that it is given, or that its closure holds.

    A closure may hold its own function: those that were come through are `inside`.
    """
    if isinstance(value, MethodType):
        _may_call(watch, value.__func__, inside)
    elif isinstance(value, FunctionType) and is_trusted(value.__code__):
        for cell in value.__closure__ or () if value not in inside else ():
            if not is_empty(cell):
                _may_call(watch, cell.cell_contents, inside | {value})
    elif isinstance(value, FunctionType):
        _python(watch, value, [], {})


#: What no call of a holder calls.
_UNCALLED = frozenset({"__init__", "reset_parameters", "_describe", "__repr__", "__setitem__", "__delitem__"})


def _of_mgb(watch: Watch, function: Any, args: list[Any]) -> None:
    name = function.__name__
    said = known.said_of(function.__module__, name)
    if said == "impure":
        watch.impure(f"calls mgb's {function.__qualname__}, which changes or reads what no guard tells")
    elif said == "changes" and args:
        watch.writing.wrote(args[0], f"what {name} changes")
    elif args and is_trusted_holder(args[0]):
        if name in ("__setattr__", "__delattr__"):
            SPECIAL[setattr](watch, *args)
        elif said != "tells":
            tree(watch, args[0])


def holder_facts(watch: Watch, holder: Any) -> None:
    """The class of a holder that is worked with has to be what it was; its functions are armed."""
    kind = type(holder)
    watch.arm(holder)
    if watch.is_made(kind) or not watch.once(kind):
        return
    for base in added_classes(kind):
        for name, value in vars(base).items():
            if isinstance(value, METHODS) and name not in _UNCALLED:
                class_fact(watch, kind, name)
    if callable(holder):
        class_fact(watch, kind, "__call__")


def _instance(watch: Watch, thing: Any, args: list[Any]) -> Then:
    """An object with a method `__call__`."""
    kind = type(thing)
    raw, _ = lookup(kind, "__call__")
    if thing is np.random.default_rng and _is_seed(watch, args):
        return maker(watch, args)
    if not isinstance(raw, FunctionType):
        watch.impure(f"calls {getattr(thing, '__qualname__', '')}, a {kind.__module__}.{kind.__qualname__}")
        return None
    special(watch, thing, "__call__")
    if is_trusted_holder(thing):
        holder_facts(watch, thing)
    given = [thing] if is_users(called_method(thing)) else [thing, *args]  # which is watched itself
    then = None if is_users(raw) else _trusted(watch, raw, given, {})
    return None if is_trusted_holder(thing) else then


# classes


def _class(watch: Watch, kind: type, args: list[Any], kwargs: dict[str, Any]) -> Then:
    every, top = [*args, *kwargs.values()], top_of(kind)
    if kind in known.PURE_WHEN_CALLED:
        return _builtin_class(watch, kind, every)
    if issubclass(kind, known.SEEDED) and _is_seed(watch, every):
        return maker(watch, every)
    if top == "numpy":
        return of_numpy(watch, kind, args, kwargs)
    if top == "mgb":
        if known.says(kind, "impure"):
            watch.impure(f"makes a {kind.__name__} of {kind.__module__}")
        for value in every:
            container(watch, value, DEPTH)
    elif is_heap(kind):
        if issubclass(kind, random.Random) and (not every or every[0] is None):
            watch.impure(f"makes a {kind.__name__} without a seed")
        _users_class(watch, kind, every)
    else:
        watch.impure(f"makes a {kind.__module__}.{kind.__qualname__}")
    return maker(watch, every)


def _is_seed(watch: Watch, given: list[Any]) -> bool:
    """Are random numbers made of a seed: of plain numbers, or of what was made of them?"""
    return bool(given) and all(
        watch.is_made(one) if isinstance(one, known.SEEDED) else one is not None and is_plain(one)
        for one in given
    )


def _builtin_class(watch: Watch, kind: type, every: list[Any]) -> Then:
    if kind is type and len(every) == 1:
        if is_heap(type(every[0])) or isinstance(every[0], known.CONTAINERS):
            watch.kind(every[0])
        return None
    if kind is str:
        text(watch, every)
    for value in every:
        whole(watch, value)
    return maker(watch, every)


def _users_class(watch: Watch, kind: type, every: list[Any]) -> None:
    watch.arm(kind)
    if isinstance(lookup(type(kind), "__call__")[0], FunctionType):
        class_fact(watch, type(kind), "__call__")
    for name in ("__init__", "__new__"):
        class_fact(watch, kind, name)
    initial, owner = lookup(kind, "__init__")
    if is_users(initial) and initial.__name__ != "__init__":
        watch.beginning.append(kind)
    if hasattr(kind, "__dataclass_fields__"):
        if isinstance(initial, FunctionType) and not watch.is_made(owner):
            function_facts(watch, initial)
        for field in kind.__dataclass_fields__.values():
            watch.arm(field.default_factory)
    is_tuple = kind.__flags__ & (1 << 26)
    if is_tuple or isinstance(lookup(kind, "__new__")[0], types.BuiltinFunctionType):
        for value in every if not isinstance(initial, FunctionType) else ():
            container(watch, value, DEPTH)


# functions and methods in C
