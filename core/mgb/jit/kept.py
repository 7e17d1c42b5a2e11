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
        self._entries: dict[Hashable, _Entry[Value]] = {}

    def get(self, key: Hashable) -> Value | None:
        """What was kept for `key`."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        box = entry.box()
        return None if box is None else box.value

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Hashable) -> bool:
        return self.get(key) is not None

    def __iter__(self) -> Iterator[Any]:
        return iter([key for key in list(self._entries) if key in self])

    def values(self) -> list[Value]:
        """Everything that is kept, the oldest first."""
        boxes = [entry.box() for entry in list(self._entries.values())]
        return [box.value for box in boxes if box is not None]

    def keep(self, key: Hashable, value: Value, leaves: Sequence[Any], most: int) -> None:
        """Keep `value` for a call with the arguments `leaves`, and drop the oldest beyond `most`."""
        box, owner = _Box(value), _owner_among(leaves)
        reference = weakref.ref(box, partial(_forget, weakref.ref(self), key))
        if owner is None:
            self._entries[key] = _Entry(reference, None, box)
        else:
            holdings_of(owner).setdefault(self, {})[key] = box
            self._entries[key] = _Entry(reference, weakref.ref(owner), None)
        keys = list(self._entries)
        for oldest in keys[: max(len(keys) - most, 0)]:
            self.drop(oldest)

    def drop(self, key: Hashable) -> None:
        """Keep nothing for `key`."""
        entry = self._entries.pop(key, None)  # the garbage collector, or another thread, may have been here
        owner = entry.owner() if entry is not None and entry.owner is not None else None
        if owner is not None:
            holdings_of(owner).get(self, {}).pop(key, None)


class _Box(Generic[Value]):
    """Something to refer to weakly."""

    __slots__ = ("__weakref__", "value")

    def __init__(self, value: Value) -> None:
        self.value = value


class _Entry(Generic[Value]):
    """Where the value of a key is: held here, or by `owner`."""

    __slots__ = ("box", "owner", "strong")

    def __init__(
        self,
        box: weakref.ref[_Box[Value]],
        owner: weakref.ref[Any] | None,
        strong: _Box[Value] | None,
    ) -> None:
        self.box, self.owner, self.strong = box, owner, strong


def _forget(kept: weakref.ref[Kept[Any]], key: Hashable, box: weakref.ref[Any]) -> None:
    table = kept()
    entry = table._entries.get(key) if table is not None else None
    if table is not None and entry is not None and entry.box is box:
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
