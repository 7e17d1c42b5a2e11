"""Hooks of values: what operators, attributes and elements do to them; and how hooks are made."""

from __future__ import annotations

import collections
import functools
import operator
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from ...tensor import Tensor
from ...trusted import is_library
from ..guard import PLAIN
from ..measured import given
from ..source import Item
from . import attributes, c_calls, known, operands, reads
from .builtin_calls import SPECIAL
from .reach import reaches_no_user
from .watch import WATCHING, Watch

#: The hooks by their names in `transform`.
HOOKS: dict[str, Callable[..., Any]] = {"slice": slice, "itself": given}

#: Types of values of which there is nothing to know.
QUIET = frozenset({*PLAIN, Tensor, *known.FOLLOWED})


def see(do: Callable[..., Any], *args: Any) -> Any:
    """Have `do(watch, *args)` done by who watches this thread."""
    watch = WATCHING.watch
    return watch.see(do, *args) if watch is not None else None


def hook(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make it the hook of its name."""
    HOOKS[function.__name__] = function
    return function


def told(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a hook that is given a value, has the function look at it, and gives it back."""

    def decorate(look: Callable[..., None]) -> Callable[..., None]:
        def tell(value: Any, *args: Any) -> Any:
            if type(value) not in QUIET:
                see(look, value, *args)
            return value

        HOOKS[name] = tell
        return look

    return decorate


# values


@told("made")
def _make(watch: Watch, value: Any) -> None:
    """A display, a comprehension, an operator or a function made this."""
    if isinstance(value, (np.ndarray, np.generic)):
        watch.computes()
    if not isinstance(value, np.ndarray) or value.base is None:
        watch.make(value)


made = HOOKS["made"]


def reading(watch: Watch, read: Callable[..., Any], asked: Any, *args: Any) -> None:
    """What is read next may be a number that is followed: see `number`."""
    watch.changing.begin()
    read(watch, *args)
    watch.changing.expect(asked)


@hook
def number(value: Any) -> Any:
    """What was just read; what stands for it, if it is a number that is followed."""
    watch = WATCHING.watch
    return value if watch is None or watch.busy else watch.changing.number(value)


@hook
def stored(value: Any) -> Any:
    """It is stored next, where it may stay: no number in it is followed any more."""
    watch = WATCHING.watch
    return value if watch is None or watch.busy else operands.plain(value)


@hook
def attribute(thing: Any, asked: str) -> Any:
    """An attribute of this is read next; lengths of an array that the call was given are followed."""
    if type(thing) is np.ndarray and asked in ("shape", "size"):
        if (seen := operands.measured(thing)) is not thing:
            return seen
    if type(thing) not in QUIET or asked in known.NOTES:
        see(reading, attributes.attribute, asked, thing, asked)
    return thing


@hook
def item(thing: Any, key: Any) -> Any:
    """``thing[key]``"""
    key = stored(key)
    see(reading, reads.item, key, thing, key)
    watch = WATCHING.watch
    if type(thing) is Tensor and watch is not None and reaches_no_user((thing, key), watch.quiet):
        value = watch.net.without(operator.getitem, thing, key)
    else:
        value = thing[key]
    if type(value) not in QUIET:
        see(_got, thing, key, value)
    return number(value)


def _got(watch: Watch, thing: Any, key: Any, value: Any) -> None:
    if isinstance(key, slice):
        watch.make(value) if isinstance(value, (list, bytearray)) else None
    elif watch.is_made(thing):
        watch.found(None, value)


class _Place:
    """An attribute or element, which ``place[None]`` stands for where it is written, deleted, added to.

    What reads it, what sees that it is written, and what does that and deletes it comes first.
    """

    __slots__ = ("_delete", "_operation", "_read", "_see", "_set", "_where")

    def __init__(self, read: Any, see: Any, set: Any, delete: Any, *where: Any) -> None:
        self._read, self._see, self._set, self._delete = read, see, set, delete
        self._where, self._operation = where[:2], "".join(where[2:])

    def __getitem__(self, _: None) -> Any:
        return _in_place(self._operation, self._read(*self._where))

    def __setitem__(self, _: None, value: Any) -> None:
        thing, key = self._where
        key, watch = stored(key), WATCHING.watch
        if watch is None or not watch.follows(value):  # else a call may write another one there
            value = stored(value)
        see(self._see, thing, key, value)
        self._set(thing, key, made(value) if self._operation else value)

    def __delitem__(self, _: None) -> None:
        thing, key = self._where
        see(self._see, thing, key)
        self._delete(thing, stored(key))


def _field(thing: Any, asked: str) -> Any:
    return number(getattr(attribute(thing, asked), asked))


def _store_item(watch: Watch, thing: Any, key: Any, *value: Any) -> None:
    method = "__setitem__" if value else "__delitem__"
    if known.is_users(known.lookup(type(thing), method)[0]):
        return attributes.special(watch, thing, method)
    if not value:
        return watch.writing.wrote(thing, "an element")
    c_calls.stores(watch, thing, key, *value)
    return watch.writing.writes(thing, Item, key, "an element", *value)


def _store_attribute(watch: Watch, thing: Any, asked: str, *value: Any) -> None:
    watch.arm(thing)
    kind = type(thing)
    raw, _ = known.lookup(kind, asked)
    if known.is_heap(kind) and not is_library(kind.__module__):
        attributes.class_fact(watch, kind, "__setattr__")
        if raw is known.MISSING:
            attributes.lacks(watch, kind, asked)
    if known.is_users(known.lookup(kind, "__setattr__")[0]):
        return
    is_pythons = isinstance(raw, property) or isinstance(getattr(type(raw), "__set__", None), FunctionType)
    if is_pythons and (not isinstance(thing, Tensor) or known.is_users(getattr(raw, "fset", None))):
        attributes.class_fact(watch, kind, asked)
    else:
        SPECIAL[setattr](watch, thing, asked, *value)


HOOKS["element"] = functools.partial(_Place, item, _store_item, operator.setitem, operator.delitem)
HOOKS["field"] = functools.partial(_Place, _field, _store_attribute, setattr, delattr)


@hook
def contains(key: Any, thing: Any) -> bool:
    """``key in thing``"""
    see(reads.contains, key, thing)
    return key in thing


@hook
def operand(value: Any, *methods: str) -> Any:
    """An operator takes this next, which may call these methods of it; a Tensor may ask for lengths."""
    if type(value) not in QUIET:
        see(_operand, value, *methods)
    return operands.measured(value) if type(value) is np.ndarray else value


def _operand(watch: Watch, value: Any, *methods: str) -> None:
    if known.top_of(type(value)) == "decimal":
        watch.impure("computes with a Decimal, which a context decides")
    attributes.special(watch, value, *methods)
    reads.container(watch, value, reads.DEPTH)


#: What `+=` and such change in place.
_CHANGED = (list, dict, set, bytearray, collections.deque, np.ndarray)


@hook
def augmented(operation: str, thing: Any, value: Any, *variable: Any) -> Any:
    """``thing += value`` and such; a `variable` outside is written where another object comes of it."""
    value = stored(value) if isinstance(thing, _CHANGED) else value
    result = made(getattr(operator, operation)(_in_place(operation, thing), value))
    if variable and result is not thing:
        see(attributes.wrote, sys._getframe(1).f_globals, *variable)
    return stored(result) if variable else result


def _in_place(operation: str, thing: Any) -> Any:
    if type(thing) not in QUIET:
        see(_augmented, thing, operation)
    return thing


def _augmented(watch: Watch, thing: Any, operation: str) -> None:
    _operand(watch, thing, f"__{operation}__", f"__{operation[1:]}__")
    if isinstance(thing, _CHANGED):
        watch.writing.wrote(thing, "the contents")
