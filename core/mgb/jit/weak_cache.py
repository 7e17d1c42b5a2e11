"""A cache of calls: an entry lives no longer than the holders of Tensors among its arguments."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from ..executor import Options, Program, compile_program
from ..ir import Graph
from ..tensor.holding import Holder, holdings_of
from .tree import is_known_by_identity

Value = TypeVar("Value")


class WeakCache(Generic[Value]):
    """A mapping from keys of calls to what serves them, the oldest first.

    A value refers to the holders among the arguments of its call. So a holder that derives from `Holder`
    stores the value, and this cache has weak references: the garbage collector frees the cycle of both. An
    entry is also dropped when any other holder is collected.
    """

    def __init__(self) -> None:
        #: The values, each with its owner: one of the arguments, or None if it is in `_owned`.
        self._entries: dict[Hashable, _Entry[Value]] = {}
        self._owned: dict[Hashable, _Box[Value]] = {}

    def get(self, key: Hashable) -> Value | None:
        """Return the value for `key`, or None."""
        entry = self._entries.get(key)
        box = None if entry is None else entry[0]()
        return None if box is None else box.value

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Hashable) -> bool:
        return self.get(key) is not None

    def __iter__(self) -> Iterator[Any]:
        return iter([key for key in list(self._entries) if key in self])

    def values(self) -> list[Value]:
        """Return all values, the oldest first."""
        boxes = [entry[0]() for entry in list(self._entries.values())]
        return [box.value for box in boxes if box is not None]

    def keep(self, key: Hashable, value: Value, leaves: Sequence[Any], most: int) -> None:
        """Store `value` for a call with the arguments `leaves`, and drop the oldest entries beyond `most`."""
        box, holders = (
            _Box(value),
            [leaf for leaf in leaves if isinstance(leaf, Holder) and is_known_by_identity(leaf)],
        )
        owner = next((holder for holder in reversed(holders) if Holder in type(holder).__mro__), None)
        gone = partial(_forget, weakref.ref(self), key, weakref.ref(box))
        others = tuple([weakref.ref(holder, gone) for holder in holders if holder is not owner])
        owned_by = None if owner is None else weakref.ref(owner)
        self._entries[key] = weakref.ref(box, gone), owned_by, others
        self._storage_of(owner)[key] = box
        keys = list(self._entries)
        for oldest in keys[: max(len(keys) - most, 0)]:
            self.drop(oldest)

    def drop(self, key: Hashable) -> None:
        """Remove the value for `key`."""
        entry = self._entries.pop(key, None)  # the garbage collector, or another thread, may have been here
        owner = None if entry is None or entry[1] is None else entry[1]()
        if entry is not None and (entry[1] is None or owner is not None):
            self._storage_of(owner).pop(key, None)

    def _storage_of(self, owner: Any) -> dict[Any, Any]:
        found: dict[Any, Any] = self._owned if owner is None else holdings_of(owner).setdefault(self, {})
        return found


class _Box(Generic[Value]):
    """A value with weak references."""

    __slots__ = ("__weakref__", "value")

    def __init__(self, value: Value) -> None:
        self.value = value


#: References to the value, to its owner, and to the other holders among the arguments.
_Entry = tuple[weakref.ref[_Box[Value]], weakref.ref[Any] | None, tuple[weakref.ref[Any], ...]]


def _forget(cache: weakref.ref[WeakCache[Any]], key: Hashable, box: weakref.ref[Any], _gone: Any) -> None:
    """Remove an entry whose value in `box`, or a holder among its arguments, is gone."""
    table = cache()
    entry = table._entries.get(key) if table is not None else None
    if table is not None and entry is not None and entry[0]() is box():
        table.drop(key)


def make_compiler(traced: Any, options: Options) -> Callable[[Graph, Mapping[int, int]], Program]:
    """Return ``traced._compile`` without a reference to `traced`; when that is gone, compile by `options`."""
    reference = weakref.ref(traced)

    def compile(graph: Graph, updates: Mapping[int, int]) -> Program:
        alive = reference()
        return alive._compile(graph, updates) if alive else compile_program(graph, options, updates)

    return compile
