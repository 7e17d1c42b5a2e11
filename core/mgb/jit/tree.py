"""Nested containers of values, taken apart and put together again."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from ..ir import Spec
from ..module import Module
from ..optimizer import Optimizer

#: What keeps the calls that it was given to: see `Kept`.
_HOLDING = (Module, Optimizer)

#: Builtin types whose equal values are the same in every way, and those that their texts tell apart.
_PLAIN = frozenset({str, bytes, int, bool, type(None), type})
_TOLD_BY_TEXT = (float, complex, Decimal, np.generic, range)


class Identity:
    """Stands for one object in a key, whatever that is equal to, and does not keep it alive."""

    __slots__ = ("_hash", "object")

    def __init__(self, value: Any) -> None:
        self.object = weakref.ref(value)
        self._hash = id(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Identity):
            return NotImplemented
        mine = self.object()
        return self is other or (mine is not None and mine is other.object())


@dataclass(frozen=True, slots=True)
class Structure:
    """How a container was nested; hashable, so that it can be part of a key.

    Attributes
    ----------
    kind : type or None
        list, tuple, a named tuple's class, dict or a subclass of it, a dataclass; None for a leaf.
    keys : tuple
        The keys of a mapping, in its own order, or the names of fields.
    children : tuple of Structure
    exact : tuple
        What tells the keys: 1, True and 1.0 are equal.
    factory : callable, optional
        That of a `defaultdict`.
    """

    kind: type | None
    keys: tuple[Any, ...] = field(default=(), compare=False)
    children: tuple[Structure, ...] = ()
    exact: tuple[Any, ...] = ()
    factory: Any = field(default=None, compare=False)

    def build(self, leaves: Iterator[Any]) -> Any:
        """The container again, with `leaves` in the order in which `flatten` gave them."""
        if self.kind is None:
            return next(leaves)
        parts = [child.build(leaves) for child in self.children]
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
    """The leaves of nested lists, tuples, dicts and dataclasses, and how to put them together again."""
    leaves: list[Any] = []
    return leaves, _flatten(value, leaves.append)


def exactly(value: Any) -> tuple[Any, ...]:
    """What is equal for values that Python code cannot tell apart.

    That is the value of arrays, numbers, texts, tuples and sets, equality for other hashable objects, and the
    identity of what has no hash. Modules and Optimizers are not kept alive by it.
    """
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if isinstance(value, _HOLDING):
        return kind, Identity(value)
    if isinstance(value, _TOLD_BY_TEXT):
        return kind, repr(value)  # 0.0 equals -0.0, and NaN nothing
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype, value.tobytes()
    if isinstance(value, slice):
        return exactly((kind, value.start, value.stop, value.step))
    if isinstance(value, tuple | frozenset | set):
        parts = map(exactly, value)
        return kind, tuple(parts) if isinstance(value, tuple) else frozenset(parts)
    if isinstance(value, bytearray):
        return kind, bytes(value)
    return kind, value if isinstance(value, Hashable) else id(value)


def _flatten(value: Any, emit: Callable[[Any], None]) -> Structure:
    kind = type(value)
    if isinstance(value, list | tuple):
        return Structure(kind, (), tuple([_flatten(v, emit) for v in value]))
    if isinstance(value, dict):
        keys = tuple(value)
        exact = keys if set(map(type, keys)) == {str} else tuple(map(exactly, keys))
        children = tuple([_flatten(v, emit) for v in value.values()])
        return Structure(kind, keys, children, exact, getattr(value, "default_factory", None))
    parts = fields_of(value)
    if parts is not None:
        names = tuple([name for name, _ in parts])
        return Structure(kind, names, tuple([_flatten(part, emit) for _, part in parts]), names)
    emit(value)
    return LEAF


def parts_of(value: Any) -> list[Any] | None:
    """What `flatten` finds in a container, one level deep; None: it is a leaf."""
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    parts = fields_of(value)
    return None if parts is None else [part for _, part in parts]


def put(value: Any, parts: Sequence[Any]) -> None:
    """Have a list, a dict or a dataclass hold `parts` in the places of those of `parts_of`."""
    if isinstance(value, list):
        for place, part in enumerate(parts):
            list.__setitem__(value, place, part)
    elif isinstance(value, dict):
        for key, part in zip(list(value), parts, strict=True):
            dict.__setitem__(value, key, part)
    else:
        for (name, _), part in zip(fields_of(value) or (), parts, strict=True):
            object.__setattr__(value, name, part)


def fields_of(value: Any) -> list[tuple[str, Any]] | None:
    """The fields of an instance of a dataclass, with their names; None: it is none, or what is called."""
    if not hasattr(type(value), "__dataclass_fields__") or isinstance(value, (*_HOLDING, Spec)):
        return None
    return [(field.name, getattr(value, field.name)) for field in fields(value) if hasattr(value, field.name)]


def _dataclass(kind: type, names: Sequence[str], parts: Sequence[Any]) -> Any:
    """An instance with these fields; what its class would compute of them is in them."""
    made: Any = object.__new__(kind)
    for name, part in zip(names, parts, strict=True):
        object.__setattr__(made, name, part)
    return made
