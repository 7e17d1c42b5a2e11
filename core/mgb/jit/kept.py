"""Calls that are kept for later, no longer than the Modules and Optimizers that they were given."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from ..executor import Options, Program, compile_program
from ..holding import holdings_of
from ..ir import Graph
from ..module import Module
from ..optimizer import Optimizer

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """A mapping from keys of calls to what serves them, the oldest first.

    What serves a call looks at the Modules and Optimizers among the arguments, which it holds. So these hold
    it, in turn, and here are weak references: when they are gone but for this cycle, all goes together.
    """

    def __init__(self) -> None:
        #: The values, and what holds each: one of the arguments, or None where that is done here.
        self._entries: dict[Hashable, tuple[weakref.ref[_Box[Value]], weakref.ref[Any] | None]] = {}
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
        box, owner = _Box(value), _owner_among(leaves)
        reference = weakref.ref(box, partial(_forget, weakref.ref(self), key))
        self._entries[key] = reference, None if owner is None else weakref.ref(owner)
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


def _forget(kept: weakref.ref[Kept[Any]], key: Hashable, box: weakref.ref[Any]) -> None:
    table = kept()
    entry = table._entries.get(key) if table is not None else None
    if table is not None and entry is not None and entry[0] is box:
        table._entries.pop(key, None)


def _owner_among(leaves: Sequence[Any]) -> Any:
    """The argument that goes first: an Optimizer rather than the Module whose Parameters it has."""
    for kind in (Optimizer, Module):
        for leaf in reversed(leaves):
            if isinstance(leaf, kind):
                return leaf
    return None


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
