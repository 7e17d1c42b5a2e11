"""Classes of users: which methods and descriptors they have, and what these lead to."""

from __future__ import annotations

import types
from types import FunctionType
from typing import Any

from ..source import Attribute, Item, Object, ObjectRef, Source
from . import known
from .epochs import Unchanged
from .protocols import Walk
from .pure import is_users_class as is_users

#: What a class holds that is called.
METHODS = (FunctionType, staticmethod, classmethod, property)
_SLOTS = (types.GetSetDescriptorType, types.MemberDescriptorType)


def facts(walk: Walk, source: Source, kind: type) -> None:
    """Guard all that `kind`, at `source`, consists of, and visit each class that it derives from.

    Methods are locations once they are named, but for those that Python or a library calls.
    """
    walk.guard(source, "meets", Unchanged(kind, _facts))
    is_of_library = any(known.is_heap(base) and not is_users(base) for base in kind.__mro__)
    for base in kind.__mro__:
        if is_users(base):
            if base is not kind:
                walk.visit(Object(ObjectRef(base)), base)
            for name, raw in list(vars(base).items()):
                if is_of_library or name.startswith("__") or not isinstance(raw, METHODS):
                    look(walk, base, name, raw)
    if type(kind) is not type:
        walk.visit(Object(ObjectRef(type(kind))), type(kind))


def _facts(kind: type) -> tuple[Any, ...]:
    return (*methods_of(kind), *kind.__mro__)


def look(walk: Walk, base: type, name: str, raw: Any) -> None:
    """Visit a method or a descriptor, which Python calls for operators, attributes and more."""
    if isinstance(raw, METHODS):  # which the list of methods tells
        walk.visit(Object(ObjectRef(raw)), raw)
    elif _is_called(raw):
        walk.visit(Item(Attribute(Object(ObjectRef(base)), "__dict__"), name), raw)


def methods_of(kind: type) -> tuple[Any, ...]:
    """Return the names and methods that users have given a class, and what takes the place of a method."""
    spaces = [vars(base) for base in kind.__mro__ if is_users(base)]
    names = {name for space in spaces for name, raw in space.items() if _is_called(raw)}
    return tuple(
        part for space in spaces for name, raw in space.items() if name in names for part in (name, raw)
    )


def _is_called(raw: Any) -> bool:
    """Return whether Python calls it where its name is asked for, or its value."""
    return isinstance(raw, METHODS) or (hasattr(type(raw), "__get__") and not isinstance(raw, _SLOTS))


def every_method(kind: type) -> tuple[Any, ...]:
    """Return its bases, and what these have for their objects to be called, a library's as well."""
    bases = [base for base in kind.__mro__ if known.is_heap(base)]
    methods = (raw for base in bases for raw in vars(base).values() if isinstance(raw, METHODS))
    return (*bases, *methods)


def native_of(value: Any) -> Any:
    """Return the number or text that an object of a derived class is."""
    for kind in (int, float, complex, str, bytes):
        if isinstance(value, kind):
            return kind.__str__(value) if kind is str else kind.__repr__(value)
    return None
