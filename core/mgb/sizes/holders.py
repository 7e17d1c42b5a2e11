"""Lengths that leave the call in which they are followed: integers, in whatever holds them."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterator
from types import FunctionType, MappingProxyType, MemberDescriptorType, ModuleType
from typing import Any

from .size import Size

#: What becomes of a size.
Rule = Callable[[Size], Any]

#: How deep objects within objects are looked into.
_DEEP = 6
#: Whose objects keep no length that a body has seen.
_OURS = ("mgb", "numpy")
_PLAIN = (int, float, complex, str, bytes, type(None), type, ModuleType, FunctionType)


def settled(value: Any, rule: Rule, deep: int = _DEEP) -> Any:
    """`value` with `rule(size)` in place of each size in it; what can be changed stays the same object.

    Parameters
    ----------
    value : object
        A size, or whatever may hold some: containers, slices, objects with attributes.
    rule : callable
    deep : int, optional
        So many levels down.
    """
    if type(value) is Size:
        return rule(value)
    top = str(type(value).__module__).partition(".")[0]
    if deep <= 0 or isinstance(value, _PLAIN) or top in _OURS:
        return value
    for kind, settle in _KINDS:
        if isinstance(value, kind):
            return settle(value, lambda part: settled(part, rule, deep - 1))
    for name in _slots(value):
        old = getattr(value, name)
        if (new := settled(old, rule, deep - 1)) is not old:
            object.__setattr__(value, name, new)
    held = getattr(value, "__dict__", None)
    if type(held) is dict:
        settled(held, rule, deep)
    return value


def _slots(value: Any) -> Iterator[str]:
    for kind in type(value).__mro__[:-1]:
        for name, slot in vars(kind).items() if "__slots__" in vars(kind) else ():
            if type(slot) is MemberDescriptorType and slot.__objclass__ is kind and hasattr(value, name):
                yield name


def _tuple(value: Any, part: Callable[[Any], Any]) -> Any:
    parts = [part(v) for v in value]
    if all(map(operator.is_, parts, value)):
        return value
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)


def _list(value: Any, part: Callable[[Any], Any]) -> Any:
    for place, old in enumerate(list(value)):
        if (new := part(old)) is not old:
            value[place] = new
    return value


def _dict(value: Any, part: Callable[[Any], Any]) -> Any:
    old = list(value.items())
    new = [(part(k), part(v)) for k, v in old]
    if not all(a is c for (a, _), (c, _) in zip(old, new, strict=True)):
        value.clear()
    elif all(b is d for (_, b), (_, d) in zip(old, new, strict=True)):
        return value
    for key, content in new:
        value[key] = content
    return value


def _set(value: Any, part: Callable[[Any], Any]) -> Any:
    for old in list(value):
        if (new := part(old)) is not old:
            value.discard(old)
            value.add(new)
    return value


def _frozenset(value: Any, part: Callable[[Any], Any]) -> Any:
    parts = {id(v): part(v) for v in value}
    return value if all(parts[id(v)] is v for v in value) else type(value)(parts.values())


def _slice(value: slice, part: Callable[[Any], Any]) -> slice:
    old = value.start, value.stop, value.step
    new = part(old)
    return value if new is old else slice(*new)


def _proxy(value: Any, part: Callable[[Any], Any]) -> Any:
    held = tuple(value.items())
    new = part(held)
    return value if new is held else MappingProxyType(dict(new))


_KINDS: tuple[tuple[type, Callable[[Any, Callable[[Any], Any]], Any]], ...] = (
    (tuple, _tuple), (list, _list), (deque, _list), (dict, _dict), (set, _set), (frozenset, _frozenset),
    (slice, _slice), (MappingProxyType, _proxy),
)  # fmt: skip
