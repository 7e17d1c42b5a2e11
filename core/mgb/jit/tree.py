"""Flatten nested containers of values, and rebuild them."""

from __future__ import annotations

import operator
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
from ..ir import Spec
from ..ir.sizes import elements, native, pairs, tuple_like
from ..runtime.trusted import is_library
from ..tensor.holding import Holder
from .source import Identity, is_static

#: The hash and equality of objects that are equal to themselves alone.
_OF_OBJECTS: Any = (object.__hash__, object.__eq__)

#: Flags of classes: made at run time, and immutable.
_HEAP, _IMMUTABLE = 1 << 9, 1 << 8

#: Base classes without attributes.
_EMPTY = (object, ABC, Generic, Protocol)

#: Builtin types whose equal values are interchangeable, and those whose `repr` is the key.
_PLAIN = frozenset({str, bytes, int, bool, type(None), type})
_TOLD_BY_TEXT = (int, float, complex, str, bytes, Decimal, np.generic, range)


class BackReference:
    """The kind of a container that occurred before in the same value; `Structure.exact` has its number."""


@dataclass(frozen=True, slots=True)
class Structure:
    """The nesting of a container. It is hashable, so that it can be part of a key.

    Attributes
    ----------
    kind : type or None
        list, tuple, a named tuple's class, dict or a subclass of it, a dataclass, or `BackReference`; None
        for a leaf.
    keys : tuple
        The keys of a mapping, in its own order, or the names of fields.
    children : tuple of Structure
    exact : tuple
        An exact key of `keys`, as 1 == True == 1.0, and the names of further attributes.
    factory : callable, optional
        The factory of a `defaultdict`.
    """

    kind: type | None
    keys: tuple[Any, ...] = field(default=(), compare=False)
    children: tuple[Structure, ...] = ()
    exact: tuple[Any, ...] = ()
    factory: Any = field(default=None, compare=False)

    def build(self, leaves: Iterator[Any], before: list[Any] | None = None) -> Any:
        """Rebuild the container, with `leaves` in the order of `flatten`.

        The containers that were built `before` are numbered by their ends.
        """
        if self.kind is None:
            return next(leaves)
        before = [] if before is None else before
        if self.kind is BackReference:
            return before[self.exact[0]]
        before.append(made := self._of([child.build(leaves, before) for child in self.children]))
        return made

    def open(self, value: Any, leaves: list[Any]) -> bool:
        """Append the leaves of lists, tuples and dicts of texts; return whether `value` is nothing else.

        That is faster than `flatten`. Of empty ones it does not tell whether one occurs twice.
        """
        if self.kind is None:
            leaves.append(value)
            return True
        kind: Any = self.kind
        count = len(self.children)
        if type(value) is not kind or kind not in (list, tuple, dict) or not 0 < count == len(value):
            return False
        if kind is dict and (tuple(value) != self.keys or {*map(type, value)} != {str}):
            return False
        parts = value.values() if kind is dict else value
        if self.children.count(LEAF) == count:
            leaves += parts
            return True
        return all(child.open(part, leaves) for child, part in zip(self.children, parts, strict=True))

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
    """Return the leaves of nested lists, tuples, dicts and dataclasses, and the structure that rebuilds them.

    Raises
    ------
    TraceInputError
        It contains itself.
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
    """Flatten a result: a container that occurs several times is one object again when it is rebuilt.

    Raises
    ------
    TraceOutputError
        It contains itself.
    """
    leaves: list[Any] = []
    seen: dict[int, tuple[int, Any]] = {}

    def visit(part: Any, emit: Callable[[Any], None], visit: Any) -> Structure:
        if id(part) in seen:
            return Structure(BackReference, exact=(seen[id(part)][0],))
        structure = _flatten(part, emit, visit)
        if structure is not LEAF:
            seen[id(part)] = len(seen), part
        return structure

    try:
        return leaves, visit(value, leaves.append, visit)
    except RecursionError:
        raise TraceOutputError(
            "the result of a traced function holds itself, or is nested too deep: results are put together "
            "again at each call; return its parts"
        ) from None


def is_known_by_identity(value: Any) -> bool:
    """Check whether keys hold it by identity, and weakly."""
    kind = type(value)
    is_one = (kind.__hash__, kind.__eq__) == _OF_OBJECTS or isinstance(value, Holder)
    return is_one and kind.__weakrefoffset__ != 0


def is_known_by_reads(value: Any) -> bool:
    """Check whether it is a user's function or object, of which only what the body reads is guarded.

    Containers, numbers and strings have keys of their contents; classes of the standard library may hide
    theirs.
    """
    kind = type(value)
    if kind is SimpleNamespace:
        return True
    if kind is FunctionType:
        return not is_library(value.__module__)
    return kind.__flags__ & _HEAP != 0 and not isinstance(value, Enum) and all(map(_is_users, kind.__mro__))


def _is_users(kind: type) -> bool:
    """Check whether it is a class that a user wrote in Python, or one without attributes."""
    if kind in _EMPTY:
        return True
    if kind.__flags__ & (_HEAP | _IMMUTABLE) != _HEAP:
        return False
    return not (is_library(kind.__module__) and is_static(kind))


def exact_key(value: Any) -> tuple[Any, ...]:
    """Return a key that is equal for values that Python code cannot tell apart.

    That is the value of arrays, numbers, strings, tuples and sets, the object itself if it is hashable, and
    its identity otherwise. The key holds no reference to an object that is equal to itself alone.
    """
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if is_known_by_identity(value):
        return kind, Identity(value)
    if issubclass(kind, _TOLD_BY_TEXT):  # 0.0 equals -0.0, and NaN nothing
        return kind, native(kind).__repr__(value)
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype, value.tobytes()
    if isinstance(value, slice):
        return exact_key((kind, value.start, value.stop, value.step))
    if isinstance(value, tuple | frozenset | set):
        parts = map(exact_key, value)
        return kind, tuple(parts) if isinstance(value, tuple) else frozenset(parts)
    if isinstance(value, bytearray):
        return kind, bytes(value)
    if kind is memoryview:
        return kind, value.format, value.shape, value.tobytes()
    return kind, value if _has_hash(value) else id(value)


def _has_hash(value: Any) -> bool:
    """Check whether `value` is hashable. A class may have a hash and an object none: a tuple with a list."""
    if not isinstance(value, Hashable):
        return False
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _flatten(value: Any, emit: Callable[[Any], None], visit: Any) -> Structure:
    """Return the structure of `value`, by `visit` of its parts, and emit its leaves."""
    kind = type(value)
    if isinstance(value, list | tuple):
        own = () if kind is list or kind is tuple else own_names(value)
        return Structure(kind, (), tuple([visit(v, emit, visit) for v in elements(value)]), own)
    if isinstance(value, dict):
        inside = pairs(value)
        keys = tuple([key for key, _ in inside])
        exact: tuple[Any, ...] = keys if set(map(type, keys)) == {str} else tuple(map(exact_key, keys))
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
    """Return the names of the attributes of a container of a user's class that are not its parts."""
    own = getattr(value, "__dict__", None)
    fields = getattr(type(value), "__dataclass_fields__", ())
    return (
        tuple(sorted((name for name in own if name not in fields), key=str)) if isinstance(own, dict) else ()
    )


def parts_of(value: Any) -> list[Any] | None:
    """Return what `flatten` finds in a container, one level deep; None for a leaf."""
    if isinstance(value, list | tuple | dict):
        return elements(value)
    parts = fields_of(value)
    return None if parts is None else [part for _, part in parts]


def map_parts(function: Callable[[Any], Any], value: Any, parts: Sequence[Any]) -> Any:
    """Apply `function` to the `parts` of a container, in place; of a tuple, return another one."""
    new = list(map(function, parts))
    if all(map(operator.is_, new, parts)):
        return value
    if isinstance(value, tuple):
        return tuple_like(value, new)
    put(value, new)
    return value


def put(value: Any, parts: Sequence[Any]) -> None:
    """Replace the parts of a list, a dict or a dataclass, in the order of `parts_of`."""
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
    """Return the fields of an instance of a dataclass, with their names; None if it is something else."""
    if not hasattr(type(value), "__dataclass_fields__") or isinstance(value, (Holder, Spec)):
        return None
    return [(field.name, getattr(value, field.name)) for field in fields(value) if hasattr(value, field.name)]


def _dataclass(kind: type, names: Sequence[str], parts: Sequence[Any]) -> Any:
    """Return an instance with these fields, without calling its class."""
    made: Any = object.__new__(kind)
    for name, part in zip(names, parts, strict=True):
        object.__setattr__(made, name, part)
    return made
