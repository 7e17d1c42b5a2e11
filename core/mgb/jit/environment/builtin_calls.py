"""Functions and objects of Python that do something of their own when they are called."""

from __future__ import annotations

import abc
import builtins
import collections
import functools
import logging
import operator
import sys
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType, UnionType
from typing import Any

import numpy as np

from ...scalars import fixed
from ...tensor import Tensor
from ..guard import is_plain
from ..source import Attribute, Call, Held, Object
from .attributes import attribute, class_fact, path, special
from .known import is_heap, is_librarys, is_note, is_trusted, is_trusted_holder, lookup
from .reads import DEPTH, advanced, container, item, iterated, length, tree
from .watch import Then, Watch


def _getattr(watch: Watch, thing: Any, name: Any, *rest: Any) -> None:
    if isinstance(name, str):
        attribute(watch, thing, name)


def _isinstance(watch: Watch, thing: Any, kind: Any) -> None:
    if not is_plain(thing):
        watch.kind(thing)
    for part in _classes_of(watch, kind):
        _subclass(watch, type(thing), part)


def _issubclass(watch: Watch, kind: Any, base: Any) -> None:
    if isinstance(kind, type) and is_heap(kind) and not watch.is_made(kind):
        watch.found(Attribute(Object(Held(kind)), "__bases__"), kind.__bases__)
        container(watch, kind.__bases__)
    for part in _classes_of(watch, base):
        _subclass(watch, kind, part)


def _classes_of(watch: Watch, given: Any) -> Iterator[Any]:
    """The classes that `isinstance` is given: tuples and unions of them are looked into."""
    if isinstance(given, tuple):
        container(watch, given)
    elif not isinstance(given, UnionType):
        yield given
        return
    for part in given if isinstance(given, tuple) else given.__args__:
        yield from _classes_of(watch, part)


def _subclass(watch: Watch, kind: Any, base: Any) -> None:
    """A class may be one of `base` because it was registered, or because a metaclass says so."""
    decides: Any = type(base)
    if is_heap(decides):
        for asked in ("__instancecheck__", "__subclasscheck__"):
            class_fact(watch, decides, asked)
    if is_heap(decides) or isinstance(base, abc.ABCMeta):
        watch.arm(decides)
        asked, owner = lookup(decides, "__instancecheck__")
        if isinstance(asked, FunctionType) and owner is not abc.ABCMeta and is_trusted(asked.__code__):
            watch.impure(f"asks whether something is a {base.__name__}, which {decides.__name__} decides")
        if base not in kind.__mro__:
            watch.guard(Call(Object(Held(abc.get_cache_token))), "same", abc.get_cache_token())


def text(watch: Watch, given: list[Any]) -> None:
    """A text is made of what is given; that of a holder has all that stands in it."""
    for holder in filter(is_trusted_holder, given):
        tree(watch, holder)
    for value in given:
        container(watch, value, DEPTH)
        kind: Any = type(value)
        if issubclass(kind, np.ndarray):
            watch.impure("makes a text of an array, which NumPy's print options decide")
        elif kind.__repr__ is object.__repr__ and kind.__str__ is object.__str__:
            watch.impure(f"makes a text of a {kind.__name__}, which says its address")


def _vars(watch: Watch, *args: Any) -> Then:
    if not args:
        return watch.make
    if watch.is_argument(args[0]):
        attribute(watch, args[0], "__dict__")
    source = watch.source_of(args[0])
    if source is not None and hasattr(args[0], "__dict__"):
        watch.found(Attribute(source, "__dict__"), vars(args[0]))
        container(watch, vars(args[0]))
    return None


def _globals(watch: Watch) -> Then:
    return lambda value: watch.found(Object(Held(value)), value)


def _setattr(watch: Watch, thing: Any, name: Any, *rest: Any) -> None:
    if not isinstance(thing, Tensor) or is_note(type(thing), name):
        watch.writing.writes(thing, Attribute, name, f"attribute {name}", *rest)
    watch.arm(thing)


def _handled(function: Any, watch: Watch) -> Then:
    """Which exception is handled; one that was not when the call began is the body's own."""
    return again(watch, function, ()) if sys.exception() is watch.handled else watch.make


def _count(watch: Watch, counter: Any, values: Any) -> None:
    watch.writing.wrote(counter, "an element")
    iterated(watch, values, DEPTH)


SPECIAL: dict[Any, Callable[..., Then]] = {
    getattr: _getattr,
    hasattr: _getattr,
    setattr: _setattr,
    delattr: _setattr,
    isinstance: _isinstance,
    issubclass: _issubclass,
    callable: lambda watch, thing: special(watch, thing, "__call__"),
    vars: _vars,
    locals: _vars,
    globals: _globals,
    next: lambda watch, iterator, *_: advanced(watch, iterator),
    len: length,
    sys.exception: functools.partial(_handled, sys.exception),
    sys.exc_info: functools.partial(_handled, sys.exc_info),
    id: lambda watch, _: watch.impure("asks for an id"),
    builtins.__build_class__: lambda watch, *_: watch.make,
    collections._count_elements: _count,  # type: ignore[attr-defined]
}


# objects that are called


def again(watch: Watch, function: Any, args: tuple[Any, ...]) -> Then:
    """What it gives now it would give again: calling it does nothing that this call has not done."""
    source = watch.source_of(function)
    return (lambda value: watch.found(Call.given(source, args), value)) if source is not None else None


def _kept(watch: Watch, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Then:
    """A function made by `lru_cache`: a guard that asks again gets a result as the body would."""
    args = list(map(fixed, args))
    if kwargs or not all(is_plain(arg) or is_librarys(arg) for arg in args):
        watch.impure(
            f"calls {function.__qualname__}, whose results lru_cache keeps by what is no plain value"
        )
        return None
    watch.calls(function.__wrapped__, args)
    return again(watch, function, tuple(args))


def logs(watch: Watch, function: Any, args: list[Any]) -> Then:
    """A message of a level that nobody wants does nothing, while that is so."""
    name = function.__name__
    logger = args[0] if args and isinstance(args[0], logging.Logger) else logging.root
    asked = Attribute(watch.source_of(logger) or Object(Held(logger)), "isEnabledFor")
    if name == "isEnabledFor" and logger in args and is_plain(args[1]):
        return lambda value: watch.found(Call.given(asked, (args[1],)), value)
    level = getattr(logging, name.upper(), None)
    plain = function in (getattr(logging.Logger, name, None), getattr(logging, name, None))
    wanted = not plain or not isinstance(level, int) or logger.isEnabledFor(level)
    if wanted or not (logger in args or logger.handlers):  # the module's own functions install a handler
        watch.impure(f"calls {function.__module__}.{name}", once=not wanted)
    else:
        watch.guard(Call.given(asked, (level,)), "same", False)
    return None


def _getter(watch: Watch, getter: Any, args: list[Any], _: dict[str, Any]) -> Then:
    """One of those of the module `operator`; without `args` it is called later, for what was read."""
    given = getter.__reduce__()[1]
    if not args:
        if not isinstance(getter, operator.itemgetter):
            watch.impure(f"has an {type(getter).__name__} called")
    elif isinstance(getter, operator.methodcaller):
        attribute(watch, args[0], given[0])
        return watch.calls(getattr(args[0], given[0]), list(given[1:]))
    else:
        for key in given:
            if isinstance(getter, operator.itemgetter):
                item(watch, args[0], key)
            else:
                path(watch, args[0], key)
    return None


def _partial(watch: Watch, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Then:
    container(watch, function, DEPTH)
    return watch.calls(function.func, [*function.args, *args], {**function.keywords, **kwargs})


OBJECTS: dict[type, Callable[[Watch, Any, list[Any], dict[str, Any]], Then]] = {
    functools.partial: _partial,
    functools._lru_cache_wrapper: _kept,
    weakref.ref: lambda watch, function, *_: again(watch, function, ()),
    **dict.fromkeys((operator.itemgetter, operator.attrgetter, operator.methodcaller), _getter),
}
