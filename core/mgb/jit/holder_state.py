"""Guards of the objects that work in a body: layers, optimizers and others that declare what decides it."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from typing import Any

from ..ir.sizes import elements
from ..tensor import Tensor
from ..tensor.holding import Holder
from .guard import Guard, Guards, is_plain, to_ref
from .source import Attribute, Item, Object, ObjectRef, Result, Source

#: Mutable containers: their elements are guarded.
_CONTAINERS = (list, dict, set, deque)

_ABSENT: Any = object()


class HolderState:
    """The current state of what decides what a holder does.

    Parameters
    ----------
    holder : Holder
    free : collection of str
        Attributes that may change.

    Attributes
    ----------
    guards : Guards
        They hold as long as the holder does what it does now.
    """

    def __init__(self, holder: Holder, free: Collection[str] = ()) -> None:
        self.holder = ObjectRef(holder)
        self._paths, self._free = list(holder.__decides__()), free
        source = Object(self.holder)
        self._revision = Attribute(source, "__revision__"), holder.__revision__
        self._found = [_follow_path(holder, source, path) for path in self._paths]
        self.guards = Guards(self._guards())

    def now(self, holder: Holder, free: Collection[str]) -> HolderState:
        """Return the state now; itself if nothing has changed."""
        is_same = not free and self.guards.why(()) is None and list(holder.__decides__()) == self._paths
        return self if is_same else HolderState(holder, free)

    def _guards(self) -> Iterator[Guard]:
        source, revision = self._revision
        if revision is not None:
            yield Guard(source, "same", revision)
        for found, value in self._found:
            if value is _ABSENT:
                assert isinstance(found, Item)
                yield Guard(found.of, "without", found.key)
            elif isinstance(value, _CONTAINERS):  # an equal container is equivalent
                yield Guard(found, "items", tuple(map(to_ref, value)))
                if isinstance(value, dict) and value:
                    yield Guard(Result(elements, found), "items", tuple(map(to_ref, elements(value))))
            elif not self._free or _find_attribute(found, source.of) not in self._free:
                yield Guard(found, "same", value) if is_plain(value) else Guard(found, "is", ObjectRef(value))

    def parts(self) -> list[tuple[Source, Any]]:
        """Return the Tensors and holders in it, with their sources."""
        return [(found, value) for found, value in self._found if is_part(value)]


def is_part(value: Any) -> bool:
    """Check whether `value` is a Tensor or a holder of Tensors. It asks no proxy."""
    return issubclass(type(value), (Tensor, Holder))


def _follow_path(holder: Any, source: Source, path: Any) -> tuple[Source, Any]:
    """Return the source and the value that `path` leads to; `_ABSENT` if its last key is missing."""
    value = holder
    for number, step in enumerate(path if isinstance(path, tuple) else (path,)):
        if callable(step):
            source, value = Result(step, source), step(value)
        elif not number:
            source, value = Attribute(source, step), getattr(value, step)
        elif number == len(path) - 1 and isinstance(value, dict) and step not in value:
            return Item(source, step), _ABSENT
        else:
            source, value = Item(source, to_ref(step)), value[step]
    return source, value


def _find_attribute(source: Source, holder: Source) -> Any:
    """Return the name of the attribute of `holder` at `source`; None if `source` is inside an attribute."""
    if isinstance(source, Attribute):
        return source.name if source.of == holder else None
    return source.key if isinstance(source, Item) and source.of == Result(vars, holder) else None
