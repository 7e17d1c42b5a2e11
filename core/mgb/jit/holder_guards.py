"""Guards of what does the work in a body: layers, optimizers and others that say what decides it."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ..holding import Holder
from ..tensor import Tensor
from .guard import Guard, Guards, is_plain
from .source import Attribute, Held, Item, Object, Result, Source

#: What stays one object and gets other contents.
_CONTAINERS = (list, dict, set, deque)

_ABSENT: Any = object()


class Decided:
    """What decides what a holder does, as it is now.

    Parameters
    ----------
    holder : Holder
    free : collection of str
        Attributes that may change.

    Attributes
    ----------
    guards : Guards
        That it does what it does now.
    """

    def __init__(self, holder: Holder, free: Collection[str] = ()) -> None:
        self.holder = Held(holder)
        self._paths, self._free = list(holder.__decides__()), free
        source = Object(self.holder)
        self._revision = Attribute(source, "__revision__"), holder.__revision__
        self._found = [_followed(holder, source, path) for path in self._paths]
        self.guards = Guards(self._guards())

    def now(self, holder: Holder, free: Collection[str]) -> Decided:
        """The same of later; nothing is asked twice where nothing has changed."""
        is_same = not free and self.guards.why(()) is None and list(holder.__decides__()) == self._paths
        return self if is_same else Decided(holder, free)

    def _guards(self) -> Iterator[Guard]:
        source, revision = self._revision
        if revision is not None:
            yield Guard(source, "same", revision)
        for found, value in self._found:
            if value is _ABSENT:
                assert isinstance(found, Item)
                yield Guard(found.of, "without", found.key)
            elif isinstance(value, _CONTAINERS):  # one that holds the same does
                yield Guard(found, "items", tuple(map(_part, value)))
                if isinstance(value, dict) and value:
                    yield Guard(Result(_values, found), "items", tuple(map(_part, value.values())))
            elif not self._free or _name_in(found, source.of) not in self._free:
                yield Guard(found, "same", value) if is_plain(value) else Guard(found, "is", Held(value))

    def parts(self) -> list[tuple[Source, Any]]:
        """The Tensors and holders among it, with where they stand."""
        return [(found, value) for found, value in self._found if is_part(value)]


def is_part(value: Any) -> bool:
    """Is it a Tensor or a holder of Tensors? Asks no proxy."""
    return issubclass(type(value), (Tensor, Holder))


def _followed(holder: Any, source: Source, path: Any) -> tuple[Source, Any]:
    """Where `path` leads from `holder`, and what stands there: `_ABSENT` if its last key is not there."""
    value = holder
    for number, step in enumerate(path if isinstance(path, tuple) else (path,)):
        if callable(step):
            source, value = Result(step, source), step(value)
        elif not number:
            source, value = Attribute(source, step), getattr(value, step)
        elif number == len(path) - 1 and isinstance(value, dict) and step not in value:
            return Item(source, step), _ABSENT
        else:
            source, value = Item(source, step if is_plain(step) else Held(step)), value[step]
    return source, value


def _name_in(source: Source, holder: Source) -> Any:
    """The name of the attribute of `holder` that stands there; None: it is none, but something in one."""
    if isinstance(source, Attribute):
        return source.name if source.of == holder else None
    return source.key if isinstance(source, Item) and source.of == Result(vars, holder) else None


def _part(value: Any) -> Any:
    return value if is_plain(value) else Held(value)


def _values(mapping: Mapping[Any, Any]) -> list[Any]:
    """The values in it."""
    return list(mapping.values())
