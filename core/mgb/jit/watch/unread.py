"""Tensors that stand where code only writes, so that others may stand there, or the same as elsewhere."""

from __future__ import annotations

from typing import Any

from ...tensor import Tensor
from ..source import Attribute, Cell, Global, Item, Source, try_read
from .protocols import Walk


class Unread:
    """Of one walk, which holds them back until code starts that can read them.

    Attributes
    ----------
    named : set of Source
        Where nothing finds what stands there but by its name.
    """

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self.named: set[Source] = set()
        self._waiting: dict[Source, Any] = {}

    def holds_back(self, source: Source, value: Any) -> bool:
        """Return whether `value`, which stands at `source`, is a Tensor that nobody has read there yet."""
        if not issubclass(type(value), Tensor) or not self._is_unread(source):
            return False
        self._waiting[source] = value
        return True

    def again(self) -> None:
        """Place what the code that has started can read."""
        for source in [source for source in self._waiting if not self._is_unread(source)]:
            self._put(source)

    def ends(self) -> None:
        """Place lists that are also somewhere else, where they are read."""
        also = {guard.value for guard in self._walk.guards if guard.test == "alias"}
        for source in [source for source in self._waiting if getattr(source, "of", None) in also]:
            self._put(source)

    def guard_unchanged(self) -> None:
        """Guard Tensors that the body may have put back where they were."""
        for source, tensor in self._waiting.items():
            first = self._walk.where(tensor)
            is_written = isinstance(source, Attribute | Global | Cell) and first is not None
            if is_written and try_read(source, self._walk.leaves) is tensor:
                self._walk.guard(source, "alias", first)

    def _put(self, source: Source) -> None:
        value = self._waiting.pop(source)
        del self._walk.values[source]
        self._walk.visit(source, value)

    def _is_unread(self, source: Source) -> bool:
        walk = self._walk
        if walk.is_wild or "__self__" in walk.loaded:
            return False
        if isinstance(source, Item):  # of a list to which code only appends
            inside = source.of
            is_list = inside in self.named and type(walk.values.get(inside)) is list
            return is_list and getattr(inside, "name", None) not in walk.used
        if source not in self.named or not isinstance(source, Attribute | Global | Cell):
            return False
        return source.name in walk.stored and source.name not in walk.loaded
