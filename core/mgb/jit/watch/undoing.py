"""Places outside that are written back: what a body has written there is as it was before."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MemberDescriptorType
from typing import Any

import numpy as np

from ...sizes import native, pairs
from ..guard import Contents, Guard, is_plain
from ..source import Attribute, Cell, Global, Held, Item, Result, Source, found_at
from ..tree import parts_of, put
from .kinds import elements_in, pairs_in, values_in

#: What has a namespace, and the names that were in it.
Spaces = Sequence[tuple[Any, tuple[str, ...]]]


def undo(
    places: Mapping[Source, Any], guards: Sequence[Guard], leaves: Sequence[Any], spaces: Spaces = ()
) -> None:
    """Put back what was at `places`, and in what `guards` and `spaces` tell of."""
    for thing, names in spaces:
        with suppress(Exception):
            _lose(thing, names)
    for source, before in places.items():
        with suppress(Exception):
            if is_place(source, leaves) and found_at(source, leaves) is not before:
                write(source, leaves, before)
    for guard in guards:
        if guard.test in _RESTORE and not guard.holds(leaves):
            with suppress(Exception):
                _RESTORE[guard.test](guard, places, leaves)


class Containers:
    """What lists, dicts and objects with fields hold, also those inside them, to be put back."""

    def __init__(self, containers: Sequence[Any]) -> None:
        self._known: list[tuple[Any, Any]] = []
        waiting, seen = list(containers), set[int]()
        while waiting:
            inside = parts_of(part := waiting.pop())
            if inside is None or id(part) in seen:
                continue
            seen.add(id(part))
            self._known.append((part, pairs(part) if isinstance(part, dict) else inside))
            waiting += inside

    def put_back(self) -> None:
        """Have each hold what it held."""
        for container, held in self._known:
            if isinstance(container, tuple):
                continue
            now = pairs(container) if isinstance(container, dict) else parts_of(container) or []
            if len(now) == len(held) and all(map(_is_same, now, held)):
                continue
            if isinstance(container, dict | list):
                kind = native(type(container))
                kind.clear(container)
                (kind.update if isinstance(container, dict) else kind.extend)(container, held)
            else:
                put(container, held)


def _is_same(one: Any, other: Any) -> bool:
    pair = type(one) is tuple and type(other) is tuple and len(one) == len(other) == 2
    return one is other or (pair and all(map(operator.is_, one, other)))


def _lose(thing: Any, names: Sequence[str]) -> None:
    """A thing has no other attributes of its own than these."""
    for name in [name for name in vars(thing) if name not in names]:
        if isinstance(thing, type):
            type.__delattr__(thing, name)
        else:
            dict.__delitem__(vars(thing), name)


def _items(guard: Guard, places: Mapping[Source, Any], leaves: Sequence[Any]) -> None:
    """A container holds these keys or elements."""
    source = itself(guard.source.of if isinstance(guard.source, Result) else guard.source)
    held = found_at(source, leaves)
    parts = [part.get() if isinstance(part, Held) else part for part in guard.value]
    if isinstance(held, dict):
        _keys(held, source, parts, places)
    elif isinstance(held, set):
        set.clear(held)
        set.update(held, parts)
    elif isinstance(held, bytearray):
        held[:] = bytes(parts)
    elif isinstance(held, list | deque):
        _elements(held, parts)


def _keys(held: dict[Any, Any], source: Source, keys: list[Any], places: Mapping[Source, Any]) -> None:
    for key in [key for key in dict.keys(held) if not any(key is known or key == known for known in keys)]:
        dict.__delitem__(held, key)
    if [*dict.keys(held)] == keys:
        return
    is_namespace = isinstance(source, Attribute) and source.name == "__dict__"
    before = {}
    for number, key in enumerate(keys):
        place: Source = Item(source, key if is_plain(key) else Held(key))
        if is_namespace:
            place = Attribute(source.of, key)  # type: ignore[attr-defined]
        before[key] = places[place if place in places else Item(Result(values_in, source), number)]
    kind = native(type(held))
    kind.clear(held)
    kind.update(held, before)


def _length(guard: Guard, places: Mapping[Source, Any], leaves: Sequence[Any]) -> None:
    held = found_at(itself(guard.source), leaves)
    if isinstance(held, list | deque):
        _elements(held, [places[Item(guard.source, number)] for number in range(guard.value)])


def _elements(held: list[Any] | deque[Any], before: list[Any]) -> None:
    kind = native(type(held))
    kind.clear(held)
    kind.extend(held, before)


def _absent(guard: Guard, places: Mapping[Source, Any], leaves: Sequence[Any]) -> None:
    """There are no such names in a namespace or a dict."""
    held = found_at(guard.source, leaves)
    for name in guard.value if guard.test == "disjoint" else (guard.value,):
        if name in held:
            dict.__delitem__(held, name)


def _lacks(guard: Guard, places: Mapping[Source, Any], leaves: Sequence[Any]) -> None:
    object.__delattr__(found_at(guard.source, leaves), guard.value)


def _array(guard: Guard, places: Mapping[Source, Any], leaves: Sequence[Any]) -> None:
    held, known = found_at(guard.source, leaves), guard.value
    if (
        isinstance(known, Contents)
        and known.is_whole
        and held.shape == known.shape
        and held.dtype == known.dtype
    ):
        held[...] = np.frombuffer(known.data, known.dtype).reshape(known.shape)


_RESTORE = {
    "items": _items, "length": _length, "disjoint": _absent, "without": _absent, "lacks": _lacks,
    "array": _array,
}  # fmt: skip


# single places


def is_place(source: Source, leaves: Sequence[Any]) -> bool:
    """Can what stands there be replaced without code of a user's that runs?"""
    if isinstance(source, Global | Cell):
        return True
    if not isinstance(source, Item | Attribute):
        return False
    holder = found_at(itself(source.of), leaves)
    if isinstance(source, Item):
        return issubclass(native(type(holder)), dict | list | deque)
    if isinstance(holder, type):
        return type(holder).__setattr__ is type.__setattr__
    is_described = hasattr(type(_in_class(holder, source.name)), "__set__")
    is_own = type(getattr(holder, "__dict__", None)) is dict and not is_described
    return is_own or is_slot(holder, source.name)


def is_slot(holder: Any, name: str) -> bool:
    """Has the class a slot for it?"""
    return type(_in_class(holder, name)) is MemberDescriptorType


def itself(source: Source) -> Source:
    """Where a container stands of which a source gives what it holds."""
    makes = (pairs_in, elements_in, values_in)
    return source.of if isinstance(source, Result) and source.function in makes else source


def _in_class(holder: Any, name: str) -> Any:
    return next((vars(kind)[name] for kind in type(holder).__mro__ if name in vars(kind)), None)


def write(source: Source, leaves: Sequence[Any], value: Any) -> None:
    """Have `value` stand at a place; no code of a user's runs."""
    if isinstance(source, Global):
        source.module.get()[source.name] = value
    elif isinstance(source, Cell):
        source.of.read(leaves).cell_contents = value
    elif isinstance(source, Item):
        holder = itself(source.of).read(leaves)
        key = source.key.get() if isinstance(source.key, Held) else source.key
        if isinstance(source.of, Result) and source.of.function is values_in:
            key = [*dict.keys(holder)][key]
        native(type(holder)).__setitem__(holder, key, value)
    elif isinstance(source, Attribute):
        holder = source.of.read(leaves)
        if isinstance(holder, type):
            type.__setattr__(holder, source.name, value)
        elif is_slot(holder, source.name):
            _in_class(holder, source.name).__set__(holder, value)
        else:
            vars(holder)[source.name] = value
