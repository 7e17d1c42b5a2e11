"""Guards of what does the work in a body: layers, optimizers and others that say what decides it."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ..holding import Holder
from ..tensor import Tensor
from .guard import Guard, is_plain
from .source import Attribute, Held, Item, Object, Result, Source

#: What stays one object and gets other contents.
_CONTAINERS = (list, dict, set, deque)

_ABSENT: Any = object()


def guards_of_holder(holder: Holder, free: Collection[str] = ()) -> Iterator[Guard]:
    """That `holder` does what it does now: what decides that, and what stands in the containers among it.

    The attributes `free` may change.
    """
    source = Object(Held(holder))
    if holder.__revision__ is not None:
        yield Guard(Attribute(source, "__revision__"), "same", holder.__revision__)
    for path in holder.__decides__():
        place, value = _followed(source, path if isinstance(path, tuple) else (path,))
        if value is _ABSENT:
            assert isinstance(place, Item)
            yield Guard(place.of, "without", place.key)
        elif not (isinstance(place, Item | Attribute) and _name_in(place, source) in free):
            yield Guard(place, "same", value) if is_plain(value) else Guard(place, "is", Held(value))
        if isinstance(value, _CONTAINERS):
            yield Guard(place, "items", tuple(map(_part, value)))
        if isinstance(value, dict) and value:
            yield Guard(Result(_values, place), "items", tuple(map(_part, value.values())))


def decisive_tensors(holder: Holder) -> list[tuple[Source, Any]]:
    """The Tensors and holders that decide what `holder` does, with where they stand."""
    source = Object(Held(holder))
    paths = (path if isinstance(path, tuple) else (path,) for path in holder.__decides__())
    found = (_followed(source, path) for path in paths)
    return [(place, value) for place, value in found if is_part(value)]


def is_part(value: Any) -> bool:
    """Is it a Tensor or a holder of Tensors? Asks no proxy."""
    return issubclass(type(value), (Tensor, Holder))


def _followed(source: Source, path: tuple[Any, ...]) -> tuple[Source, Any]:
    """Where `path` leads from `source`, and what stands there: `_ABSENT` if its last key is not there."""
    value = source.read(())
    for number, step in enumerate(path):
        if callable(step):
            source, value = Result(step, source), step(value)
        elif not number:
            source, value = Attribute(source, step), getattr(value, step)
        elif number == len(path) - 1 and isinstance(value, Mapping) and step not in value:
            return Item(source, step), _ABSENT
        else:
            source, value = Item(source, step if is_plain(step) else Held(step)), value[step]
    return source, value


def _name_in(place: Item | Attribute, holder: Source) -> Any:
    """The name of the attribute of `holder` that stands there; None: it is none, but something in one."""
    if isinstance(place, Attribute):
        return place.name if place.of == holder else None
    return place.key if place.of == Result(vars, holder) else None


def _part(value: Any) -> Any:
    return value if is_plain(value) else Held(value)


def _values(mapping: Mapping[Any, Any]) -> list[Any]:
    """The values in it."""
    return list(mapping.values())
