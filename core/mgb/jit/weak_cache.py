"""Calls that are kept for later, no longer than the holders of Tensors that they were given."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from ..executor import Options, Program, compile_program
from ..holding import Holder, holdings_of
from ..ir import Graph
from .tree import is_itself

Value = TypeVar("Value")


class WeakCache(Generic[Value]):
    """A mapping from keys of calls to what serves them, the oldest first.

    What serves a call looks at the holders among the arguments, and may refer to what is in them. So one that
    derives from `Holder` holds it, in turn, and here are weak references: when that is gone but for this
    cycle, all goes together. It goes with each other holder, too.
    """

    def __init__(self) -> None:
        #: The values, with what holds each, one of the arguments or None where that is done here.
        self._entries: dict[Hashable, _Entry[Value]] = {}
        self._held: dict[Hashable, _Box[Value]] = {}

    def get(self, key: Hashable) -> Value | None:
        """What was kept for `key`."""
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
        """Everything that is kept, the oldest first."""
        boxes = [entry[0]() for entry in list(self._entries.values())]
        return [box.value for box in boxes if box is not None]

    def keep(self, key: Hashable, value: Value, leaves: Sequence[Any], most: int) -> None:
        """Keep `value` for a call with the arguments `leaves`, and drop the oldest beyond `most`."""
        box, holders = _Box(value), [leaf for leaf in leaves if isinstance(leaf, Holder) and is_itself(leaf)]
        owner = next((holder for holder in reversed(holders) if Holder in type(holder).__mro__), None)
        gone = partial(_forget, weakref.ref(self), key, weakref.ref(box))
        others = tuple([weakref.ref(holder, gone) for holder in holders if holder is not owner])
        owned_by = None if owner is None else weakref.ref(owner)
        self._entries[key] = weakref.ref(box, gone), owned_by, others
        self._home(owner)[key] = box
        keys = list(self._entries)
        for oldest in keys[: max(len(keys) - most, 0)]:
            self.drop(oldest)

    def drop(self, key: Hashable) -> None:
        """Keep nothing for `key`."""
        entry = self._entries.pop(key, None)  # the garbage collector, or another thread, may have been here
        owner = None if entry is None or entry[1] is None else entry[1]()
        if entry is not None and (entry[1] is None or owner is not None):
            self._home(owner).pop(key, None)

    def _home(self, owner: Any) -> dict[Any, Any]:
        found: dict[Any, Any] = self._held if owner is None else holdings_of(owner).setdefault(self, {})
        return found


class _Box(Generic[Value]):
    """Something to refer to weakly."""

    __slots__ = ("__weakref__", "value")

    def __init__(self, value: Value) -> None:
        self.value = value


#: A reference to the value, one to what holds it, and to other holders among the arguments.
_Entry = tuple[weakref.ref[_Box[Value]], weakref.ref[Any] | None, tuple[weakref.ref[Any], ...]]


def _forget(kept: weakref.ref[WeakCache[Any]], key: Hashable, box: weakref.ref[Any], _gone: Any) -> None:
    """The value in `box`, or an argument of its call, is gone."""
    table = kept()
    entry = table._entries.get(key) if table is not None else None
    if table is not None and entry is not None and entry[0]() is box():
        table.drop(key)


def compiler_of(traced: Any, options: Options) -> Callable[[Graph, Mapping[int, int]], Program]:
    """``traced._compile``, which does not keep `traced` alive; what is left of it compiles by `options`."""
    reference = weakref.ref(traced)

    def compile(graph: Graph, updates: Mapping[int, int]) -> Program:
        alive = reference()
        if alive is None:
            return compile_program(graph, options, updates)
        program: Program = alive._compile(graph, updates)
        return program

    return compile
