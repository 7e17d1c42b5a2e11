"""Numbers that leave where they are followed: plain ones, in whatever holds them."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, MappingProxyType, MemberDescriptorType, ModuleType
from typing import Any

from ..scalars import SCALARS, Scalar

#: What becomes of a number.
Rule = Callable[[Scalar], Any]

#: How deep objects within objects are looked into.
_DEEP = 6
#: Whose objects keep no number that a body has seen.
_OURS = ("mgb", "numpy")
_PLAIN = (int, float, complex, str, bytes, type(None), type, ModuleType, FunctionType)


def settled(value: Any, rule: Rule, deep: int = _DEEP) -> Any:
    """Return `value` with `rule(number)` for each symbolic number in it; mutable objects stay the same.

    Parameters
    ----------
    value : object
        A number, or whatever may hold some: containers, slices, objects with attributes.
    rule : callable
    deep : int, optional
        So many levels down.
    """
    if type(value) in SCALARS:
        return rule(value)
    top = str(type(value).__module__).partition(".")[0]
    if deep <= 0 or isinstance(value, _PLAIN) or top in _OURS:
        return value
    for kind, parts_of, put in _KINDS:
        if isinstance(value, kind):
            parts = list(parts_of(value))
            new = [settled(part, rule, deep - 1) for part in parts]
            return value if all(map(operator.is_, new, parts)) else put(value, new)
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


def tuple_like(value: Any, parts: Iterable[Any]) -> Any:
    """Return a tuple of the class and with the attributes of `value`, and other elements.

    No code of a user runs.
    """
    try:
        made = tuple.__new__(type(value), parts)
    except TypeError:  # a class in C
        return type(value)(parts)
    getattr(made, "__dict__", {}).update(getattr(value, "__dict__", {}))
    return made


def native(kind: type) -> Any:
    """Return the class in C that `kind` is or is derived from; its methods run no code of a user's."""
    for base in kind.__mro__:
        if not base.__flags__ & _HEAP or base.__flags__ & _IMMUTABLE:
            return base
    raise AssertionError("object is one")


#: Flags of classes that Python code has made, and of those that cannot be changed.
_HEAP, _IMMUTABLE = 1 << 9, 1 << 8


def elements(value: Any) -> list[Any]:
    """List the elements of a container, or the values of a mapping; no user code runs."""
    kind = type(value)
    if kind is list or kind is tuple:  # most are, and calls ask this of their arguments
        return list(value)
    if kind is not dict:
        kind = native(kind)
    return list(kind.values(value) if hasattr(kind, "values") else kind.__iter__(value))


def pairs(value: Any) -> list[tuple[Any, Any]]:
    """Return the keys and values of a mapping; no code of a user runs."""
    kind = type(value)
    return list(value.items() if kind is dict else native(kind).items(value))


def _list(value: Any, parts: list[Any]) -> Any:
    for place, part in enumerate(parts):
        native(type(value)).__setitem__(value, place, part)
    return value


def _set(value: Any, parts: list[Any]) -> Any:
    set.clear(value)
    set.update(value, parts)
    return value


def _dict(value: Any, parts: list[Any]) -> Any:
    kind = native(type(value))
    if not all(map(operator.is_, parts[::2], kind.__iter__(value))):
        kind.clear(value)
    for key, part in zip(parts[::2], parts[1::2], strict=True):
        kind.__setitem__(value, key, part)
    return value


#: By kinds of containers: what is in one, and how it, or another one, comes to hold something else.
_KINDS: tuple[tuple[type, Callable[[Any], Iterable[Any]], Callable[[Any, list[Any]], Any]], ...] = (
    (tuple, elements, tuple_like), (list, elements, _list), (deque, elements, _list), (set, elements, _set),
    (frozenset, elements, lambda value, parts: type(value)(parts)),
    (dict, lambda value: [part for pair in pairs(value) for part in pair], _dict),
    (slice, lambda value: (value.start, value.stop, value.step), lambda value, parts: slice(*parts)),
    (MappingProxyType, lambda value: value.items(), lambda value, parts: MappingProxyType(dict(parts))),
)  # fmt: skip
