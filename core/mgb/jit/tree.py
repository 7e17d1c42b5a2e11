"""Nested containers of values, taken apart and put together again."""

from __future__ import annotations

from abc import ABC
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from decimal import Decimal
from enum import Enum
from types import FunctionType, SimpleNamespace
from typing import Any, Generic, Protocol

import numpy as np

from ..errors import TraceInputError, TraceOutputError
from ..holding import Holder
from ..ir import Spec
from ..sizes import elements, native, pairs
from ..trusted import is_library
from .source import Identity

#: How an object is told apart that is equal to itself alone.
_OF_OBJECTS: Any = (object.__hash__, object.__eq__)

#: Flags of classes: one made at run time, and one that cannot be changed.
_HEAP, _IMMUTABLE = 1 << 9, 1 << 8

#: Classes whose objects have nothing of them.
_EMPTY = (object, ABC, Generic, Protocol)

#: Builtin types whose equal values are the same in every way, and those that their texts tell apart.
_PLAIN = frozenset({str, bytes, int, bool, type(None), type})
_TOLD_BY_TEXT = (int, float, complex, str, bytes, Decimal, np.generic, range)


class Again:
    """The kind of a container that stands in a place before, too: `Structure.exact` has its number."""


@dataclass(frozen=True, slots=True)
class Structure:
    """How a container was nested; hashable, so that it can be part of a key.

    Attributes
    ----------
    kind : type or None
        list, tuple, a named tuple's class, dict or a subclass of it, a dataclass, `Again`; None for a leaf.
    keys : tuple
        The keys of a mapping, in its own order, or the names of fields.
    children : tuple of Structure
    exact : tuple
        What tells the keys: 1, True and 1.0 are equal; and the names of what else it has as attributes.
    factory : callable, optional
        That of a `defaultdict`.
    """

    kind: type | None
    keys: tuple[Any, ...] = field(default=(), compare=False)
    children: tuple[Structure, ...] = ()
    exact: tuple[Any, ...] = ()
    factory: Any = field(default=None, compare=False)

    def build(self, leaves: Iterator[Any], before: list[Any] | None = None) -> Any:
        """The container again, with `leaves` in the order in which `flatten` gave them.

        The containers that were built `before` are numbered by their ends.
        """
        if self.kind is None:
            return next(leaves)
        before = [] if before is None else before
        if self.kind is Again:
            return before[self.exact[0]]
        before.append(made := self._of([child.build(leaves, before) for child in self.children]))
        return made

    def _of(self, parts: list[Any]) -> Any:
        assert self.kind is not None
        if is_dataclass(self.kind):
            return _dataclass(self.kind, self.keys, parts)
        if issubclass(self.kind, dict):
            factory = () if self.factory is None else (self.factory,)
            made: Any = self.kind(*factory)
            for key, part in zip(self.keys, parts, strict=True):
                made[key] = part
            return made
        if issubclass(self.kind, tuple) and hasattr(self.kind, "_fields"):
            return self.kind(*parts)
        return self.kind(parts)  # type: ignore[call-arg]


LEAF = Structure(None)


def flatten(value: Any) -> tuple[list[Any], Structure]:
    """The leaves of nested lists, tuples, dicts and dataclasses, and how to put them together again.

    Raises
    ------
    TraceInputError
        It has no end.
    """
    leaves: list[Any] = []
    containers: list[int] = []

    def visit(part: Any, emit: Callable[[Any], None], visit: Any) -> Structure:
        structure = _flatten(part, emit, visit)
        if structure is not LEAF and structure.kind is not tuple:
            containers.append(id(part))
        return structure

    try:
        structure = visit(value, leaves.append, visit)
        if len(containers) > len(set(containers)):
            structure = replace(structure, exact=(*structure.exact, *map(containers.index, containers)))
        return leaves, structure
    except RecursionError:
        raise TraceInputError(
            "an argument holds itself, or is nested too deep: arguments are taken apart into the Tensors and "
            "other values in them; give it in an object, which is looked into only where the body does"
        ) from None


def flatten_once(value: Any) -> tuple[list[Any], Structure]:
    """The same of a result: a container that stands in several places will be one there again.

    Raises
    ------
    TraceOutputError
        It has no end.
    """
    leaves: list[Any] = []
    seen: dict[int, tuple[int, Any]] = {}

    def visit(part: Any, emit: Callable[[Any], None], visit: Any) -> Structure:
        if id(part) in seen:
            return Structure(Again, exact=(seen[id(part)][0],))
        structure = _flatten(part, emit, visit)
        if structure is not LEAF:
            seen[id(part)] = len(seen), part
        return structure

    try:
        return leaves, visit(value, leaves.append, visit)
    except RecursionError:
        raise TraceOutputError(
            "the result of a traced function holds itself, or is nested too deep: results are put together "
            "anew at each call; return its parts"
        ) from None


def is_itself(value: Any) -> bool:
    """Is it known by its identity, and held weakly?"""
    kind = type(value)
    is_one = (kind.__hash__, kind.__eq__) == _OF_OBJECTS or isinstance(value, Holder)
    return is_one and kind.__weakrefoffset__ != 0


def is_looked_into(value: Any) -> bool:
    """Is it a function, or an object of a class, of a user's, of which only what a body reads has to stay?

    Containers, numbers and texts are known by what is in them, and classes of Python's library may hide it.
    """
    kind = type(value)
    if kind is SimpleNamespace:
        return True
    if kind is FunctionType:
        return not is_library(value.__module__)
    return kind.__flags__ & _HEAP != 0 and not isinstance(value, Enum) and all(map(_is_users, kind.__mro__))


def _is_users(kind: type) -> bool:
    """Is it a class of a user's in Python, or one that holds nothing?"""
    if kind in _EMPTY:
        return True
    return kind.__flags__ & (_HEAP | _IMMUTABLE) == _HEAP and not is_library(kind.__module__)


def exactly(value: Any) -> tuple[Any, ...]:
    """What is equal for values that Python code cannot tell apart.

    That is the value of arrays, numbers, texts, tuples and sets, equality for other hashable objects, and the
    identity of what has no hash. What is equal to itself alone is not kept alive by it.
    """
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if is_itself(value):
        return kind, Identity(value)
    if issubclass(kind, _TOLD_BY_TEXT):  # 0.0 equals -0.0, and NaN nothing
        return kind, native(kind).__repr__(value)
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype, value.tobytes()
    if isinstance(value, slice):
        return exactly((kind, value.start, value.stop, value.step))
    if isinstance(value, tuple | frozenset | set):
        parts = map(exactly, value)
        return kind, tuple(parts) if isinstance(value, tuple) else frozenset(parts)
    if isinstance(value, bytearray):
        return kind, bytes(value)
    if kind is memoryview:
        return kind, value.format, value.shape, value.tobytes()
    return kind, value if _has_hash(value) else id(value)


def _has_hash(value: Any) -> bool:
    """Has it a hash? A class may have one, and its objects none: as a frozen dataclass that holds a list."""
    if not isinstance(value, Hashable):
        return False
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _flatten(value: Any, emit: Callable[[Any], None], visit: Any) -> Structure:
    """How `value` is nested, by `visit` of what stands in it, and with its leaves emitted."""
    kind = type(value)
    if isinstance(value, list | tuple):
        own = () if kind is list or kind is tuple else own_names(value)
        return Structure(kind, (), tuple([visit(v, emit, visit) for v in elements(value)]), own)
    if isinstance(value, dict):
        inside = pairs(value)
        keys = tuple([key for key, _ in inside])
        exact: tuple[Any, ...] = keys if set(map(type, keys)) == {str} else tuple(map(exactly, keys))
        exact = exact if kind is dict else (*exact, own_names(value))
        children = tuple([visit(v, emit, visit) for _, v in inside])
        factory = value.default_factory if isinstance(value, defaultdict) else None
        return Structure(kind, keys, children, exact, factory)
    parts = fields_of(value)
    if parts is not None:
        names = tuple([name for name, _ in parts])
        children = tuple([visit(part, emit, visit) for _, part in parts])
        return Structure(kind, names, children, (names, own_names(value)))
    emit(value)
    return LEAF


def own_names(value: Any) -> tuple[str, ...]:
    """The names of the attributes of a container of a user's class that are none of its parts."""
    own = getattr(value, "__dict__", None)
    fields = getattr(type(value), "__dataclass_fields__", ())
    return (
        tuple(sorted((name for name in own if name not in fields), key=str)) if isinstance(own, dict) else ()
    )


def parts_of(value: Any) -> list[Any] | None:
    """What `flatten` finds in a container, one level deep; None: it is a leaf."""
    if isinstance(value, list | tuple | dict):
        return elements(value)
    parts = fields_of(value)
    return None if parts is None else [part for _, part in parts]


def put(value: Any, parts: Sequence[Any]) -> None:
    """Have a list, a dict or a dataclass hold `parts` in the places of those of `parts_of`."""
    if isinstance(value, list):
        for index, part in enumerate(parts):
            list.__setitem__(value, index, part)
    elif isinstance(value, dict):
        for (key, _), part in zip(pairs(value), parts, strict=True):
            dict.__setitem__(value, key, part)
    else:
        for (name, _), part in zip(fields_of(value) or (), parts, strict=True):
            object.__setattr__(value, name, part)


def fields_of(value: Any) -> list[tuple[str, Any]] | None:
    """The fields of an instance of a dataclass, with their names; None: it is none, or what is called."""
    if not hasattr(type(value), "__dataclass_fields__") or isinstance(value, (Holder, Spec)):
        return None
    return [(field.name, getattr(value, field.name)) for field in fields(value) if hasattr(value, field.name)]


def _dataclass(kind: type, names: Sequence[str], parts: Sequence[Any]) -> Any:
    """An instance with these fields; what its class would compute of them is in them."""
    made: Any = object.__new__(kind)
    for name, part in zip(names, parts, strict=True):
        object.__setattr__(made, name, part)
    return made
