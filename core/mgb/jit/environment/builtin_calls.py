"""Builtin functions that do something of their own when they are called."""

from __future__ import annotations

import abc
import builtins
import collections
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from ..guard import is_plain
from ..source import Attribute, Call, Held, Object
from .attributes import attribute, class_fact
from .known import is_heap, is_trusted, lookup
from .reads import DEPTH, advanced, container, iterated, length
from .watch import Watch

#: What is done with the result of a call: a function that is given it, or None.
Then = Callable[[Any], Any] | None


def _getattr(watch: Watch, thing: Any, name: Any, *rest: Any) -> None:
    if isinstance(name, str):
        attribute(watch, thing, name)


def _isinstance(watch: Watch, thing: Any, kind: Any) -> None:
    if not is_plain(thing):
        watch.kind(thing)
    for part in kind if isinstance(kind, tuple) else (kind,):
        _subclass(watch, type(thing), part)


def _issubclass(watch: Watch, kind: Any, base: Any) -> None:
    if isinstance(kind, type) and is_heap(kind) and not watch.is_made(kind):
        watch.found(Attribute(Object(Held(kind)), "__bases__"), kind.__bases__)
        container(watch, kind.__bases__)
    for part in base if isinstance(base, tuple) else (base,):
        _subclass(watch, kind, part)


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
    """A text is made of what is given."""
    if any(isinstance(value, np.ndarray) for value in given):
        watch.impure("makes a text of an array, which NumPy's print options decide")


def _vars(watch: Watch, *args: Any) -> Then:
    if not args:
        return watch.make
    source = watch.source_of(args[0])
    if source is not None and hasattr(args[0], "__dict__"):
        watch.found(Attribute(source, "__dict__"), vars(args[0]))
        container(watch, vars(args[0]))
    return None


def _globals(watch: Watch) -> Then:
    return lambda value: watch.found(Object(Held(value)), value)


def _setattr(watch: Watch, thing: Any, name: Any, *rest: Any) -> None:
    what = f"attribute {name}"
    watch.writes(thing, Attribute, name, what, *rest) if rest else watch.wrote(thing, what)
    watch.arm(thing)


def _count(watch: Watch, counter: Any, values: Any) -> None:
    watch.wrote(counter, "an element")
    iterated(watch, values, DEPTH)


SPECIAL: dict[Any, Callable[..., Then]] = {
    getattr: _getattr,
    hasattr: _getattr,
    setattr: _setattr,
    delattr: _setattr,
    isinstance: _isinstance,
    issubclass: _issubclass,
    callable: Watch.kind,
    vars: _vars,
    locals: _vars,
    globals: _globals,
    next: lambda watch, iterator, *_: advanced(watch, iterator),
    len: length,
    id: lambda watch, _: watch.impure("asks for an id"),
    builtins.__build_class__: lambda watch, *_: watch.make,
    collections._count_elements: _count,  # type: ignore[attr-defined]
}
