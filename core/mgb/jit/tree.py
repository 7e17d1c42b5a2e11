"""Nested containers of values, taken apart and put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Structure:
    """How a container was nested; hashable, so that it can be part of a key.

    Attributes
    ----------
    kind : type or None
        list, tuple, a named tuple's class, dict or a subclass of it; None for a leaf.
    keys : tuple
        The keys of a mapping, in its own order.
    children : tuple of Structure
    """

    kind: type | None
    keys: tuple[Any, ...] = ()
    children: tuple[Structure, ...] = ()

    def build(self, leaves: Iterator[Any]) -> Any:
        """The container again, with `leaves` in the order in which `flatten` gave them."""
        if self.kind is None:
            return next(leaves)
        parts = [child.build(leaves) for child in self.children]
        if issubclass(self.kind, Mapping):
            pairs = zip(self.keys, parts, strict=True)
            return dict(pairs) if self.kind is dict else self.kind(pairs)  # type: ignore[call-arg]
        if issubclass(self.kind, tuple) and hasattr(self.kind, "_fields"):
            return self.kind(*parts)
        return self.kind(parts)  # type: ignore[call-arg]


LEAF = Structure(None)


def flatten(value: Any) -> tuple[list[Any], Structure]:
    """The leaves of nested lists, tuples and dicts, and how to put them together again."""
    leaves: list[Any] = []
    return leaves, _flatten(value, leaves.append)


def _flatten(value: Any, emit: Callable[[Any], None]) -> Structure:
    kind = type(value)
    if isinstance(value, list | tuple):
        return Structure(kind, (), tuple([_flatten(v, emit) for v in value]))
    if isinstance(value, dict):
        return Structure(kind, tuple(value), tuple([_flatten(v, emit) for v in value.values()]))
    emit(value)
    return LEAF
