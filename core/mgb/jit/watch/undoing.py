"""Locations outside that are written back: what a body has written there is as it was before."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MemberDescriptorType
from typing import Any

import numpy as np

from ...ir.sizes import elements, native, pairs
from ..guard import Contents, Guard, to_ref
from ..source import Attribute, Cell, Global, Item, Result, Source, lookup, resolve, try_read
from ..tree import fields_of, parts_of, put
from .kinds import pairs_in

#: What has a namespace, and the names that were in it.
Spaces = Sequence[tuple[Any, tuple[str, ...]]]


def undo(
    values: Mapping[Source, Any], guards: Sequence[Guard], leaves: Sequence[Any], spaces: Spaces = ()
) -> None:
    """Put back what was at `values`, and in what `guards` and `spaces` tell of."""
    for thing, names in spaces:
        with suppress(Exception):
            _lose(thing, names)
    for source, before in values.items():
        with suppress(Exception):
            if is_writable(source, leaves) and try_read(source, leaves) is not before:
                write(source, leaves, before)
    for guard in guards:
        if guard.test in _RESTORE and not guard.holds(leaves):
            with suppress(Exception):
                _RESTORE[guard.test](guard, values, leaves)


class Snapshot:
    """The contents of lists, dicts and objects with fields, nested ones too, to be restored."""

    def __init__(self, containers: Sequence[Any]) -> None:
        self._known: list[tuple[Any, list[Any], list[Any]]] = []  # with their keys, and what is held by these
        waiting, seen = list(containers), set[int]()
        while waiting:
            inside = parts_of(part := waiting.pop())
            if inside is not None and id(part) not in seen:
                seen.add(id(part))
                self._known.append((part, _keys_of(part), inside))
                waiting += inside

    def is_current(self) -> bool:
        """Return whether each holds what it held."""
        return all(
            _are_same(keys, _keys_of(container)) and _are_same(parts, parts_of(container) or [])
            for container, keys, parts in self._known
        )

    def restore(self) -> None:
        """Have each hold what it held."""
        for container, keys, parts in self._known:
            now = parts_of(container) or []
            has_keys = _are_same(keys, _keys_of(container))
            if isinstance(container, tuple) or (has_keys and _are_same(parts, now)):
                continue
            if has_keys and len(parts) == len(now):  # whoever goes through it now goes on
                put(container, parts)
            elif isinstance(container, dict | list):
                kind = native(type(container))
                kind.clear(container)
                if isinstance(container, dict):
                    kind.update(container, zip(keys, parts))
                else:
                    kind.extend(container, parts)
            else:
                for name in set(_keys_of(container)).difference(keys):
                    object.__delattr__(container, name)
                for name, part in zip(keys, parts):
                    object.__setattr__(container, name, part)


def _keys_of(container: Any) -> list[Any]:
    """Return the keys of a dict, or the names of fields."""
    if isinstance(container, dict):
        return [key for key, _ in pairs(container)]
    return [name for name, _ in fields_of(container) or ()]


def _are_same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))


def _lose(thing: Any, names: Sequence[str]) -> None:
    """Remove the attributes that are not among `names`."""
    for name in [name for name in vars(thing) if name not in names]:
        if isinstance(thing, type):
            type.__delattr__(thing, name)
        else:
            dict.__delitem__(vars(thing), name)


def _items(guard: Guard, values: Mapping[Source, Any], leaves: Sequence[Any]) -> None:
    """Restore the keys or elements of a container."""
    source = itself(guard.source.of if isinstance(guard.source, Result) else guard.source)
    held = try_read(source, leaves)
    parts = list(map(resolve, guard.value))
    if isinstance(held, dict):
        _keys(held, source, parts, values)
    elif isinstance(held, set):
        set.clear(held)
        set.update(held, parts)
    elif isinstance(held, bytearray):
        held[:] = bytes(parts)
    elif isinstance(held, list | deque):
        _elements(held, parts)


def _keys(held: dict[Any, Any], source: Source, keys: list[Any], values: Mapping[Source, Any]) -> None:
    for key in [key for key in dict.keys(held) if not any(key is known or key == known for known in keys)]:
        dict.__delitem__(held, key)
    if [*dict.keys(held)] == keys:
        return
    is_namespace = isinstance(source, Attribute) and source.name == "__dict__"
    before = {}
    for number, key in enumerate(keys):
        location: Source = Item(source, to_ref(key))
        if is_namespace:
            location = Attribute(source.of, key)  # type: ignore[attr-defined]
        before[key] = values[location if location in values else Item(Result(elements, source), number)]
    kind = native(type(held))
    kind.clear(held)
    kind.update(held, before)


def _length(guard: Guard, values: Mapping[Source, Any], leaves: Sequence[Any]) -> None:
    held = try_read(itself(guard.source), leaves)
    if isinstance(held, list | deque):
        _elements(held, [values[Item(guard.source, number)] for number in range(guard.value)])


def _elements(held: list[Any] | deque[Any], before: list[Any]) -> None:
    kind = native(type(held))
    kind.clear(held)
    kind.extend(held, before)


def _absent(guard: Guard, values: Mapping[Source, Any], leaves: Sequence[Any]) -> None:
    """Delete names that were absent from a namespace or a dict."""
    held = try_read(guard.source, leaves)
    for name in guard.value if guard.test == "disjoint" else (guard.value,):
        if name in held:
            dict.__delitem__(held, name)


def _lacks(guard: Guard, values: Mapping[Source, Any], leaves: Sequence[Any]) -> None:
    object.__delattr__(try_read(guard.source, leaves), guard.value)


def _array(guard: Guard, values: Mapping[Source, Any], leaves: Sequence[Any]) -> None:
    held, known = try_read(guard.source, leaves), guard.value
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


# single locations


def is_writable(source: Source, leaves: Sequence[Any]) -> bool:
    """Return whether what stands there can be replaced without running a user's code."""
    if isinstance(source, Global | Cell):
        return True
    if not isinstance(source, Item | Attribute):
        return False
    holder = try_read(itself(source.of), leaves)
    if isinstance(source, Item):
        return issubclass(native(type(holder)), dict | list | deque)
    if isinstance(holder, type):
        return type(holder).__setattr__ is type.__setattr__
    is_described = hasattr(type(lookup(type(holder), source.name)[0]), "__set__")
    is_own = type(getattr(holder, "__dict__", None)) is dict and not is_described
    return is_own or is_slot(holder, source.name)


def is_slot(holder: Any, name: str) -> bool:
    """Return whether the class has a slot for it."""
    return type(lookup(type(holder), name)[0]) is MemberDescriptorType


def itself(source: Source) -> Source:
    """Return where a container stands of which a source gives what it holds."""
    return source.of if isinstance(source, Result) and source.function in (pairs_in, elements) else source


def write(source: Source, leaves: Sequence[Any], value: Any) -> None:
    """Write `value` to a location; no code of a user's runs."""
    if isinstance(source, Global):
        source.module.get()[source.name] = value
    elif isinstance(source, Cell):
        source.of.read(leaves).cell_contents = value
    elif isinstance(source, Item):
        holder = itself(source.of).read(leaves)
        key = resolve(source.key)
        if isinstance(holder, dict) and source.of == Result(elements, itself(source.of)):
            key = _keys_of(holder)[key]
        native(type(holder)).__setitem__(holder, key, value)
    elif isinstance(source, Attribute):
        holder = source.of.read(leaves)
        if isinstance(holder, type):
            type.__setattr__(holder, source.name, value)
        elif is_slot(holder, source.name):
            lookup(type(holder), source.name)[0].__set__(holder, value)
        else:
            vars(holder)[source.name] = value
