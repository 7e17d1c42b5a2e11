"""Class versions: CPython gives a class a new version number after each change."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from ..guard import same_items
from ..source import ObjectRef

#: The size of such a number in bytes.
_SIZE = ctypes.sizeof(ctypes.c_uint)


def _read(kind: type, offset: int) -> int:
    return ctypes.c_uint.from_address(id(kind) + offset).value


def _made() -> type:
    return type("Made", (), {"attribute": 0, "other": 1})


def _tells(offset: int) -> bool:
    """Return whether each change gives another number, which is its own."""
    kinds = [_made() for _ in range(3)]
    seen: list[int] = []
    for kind in kinds:
        for value in range(4):
            kind.attribute = value  # type: ignore[attr-defined]
            getattr(kind, "attribute", None)
            tag = _read(kind, offset)
            getattr(kind, "other", None)
            if not tag or _read(kind, offset) != tag:
                return False
            seen.append(tag)
        kind.attribute = None  # type: ignore[attr-defined]
        if _read(kind, offset) == seen[-1]:
            return False
    return len(set(seen)) == len(seen)


@functools.cache
def _offset() -> int | None:
    """Return where in a class the number stands; None: nobody knows."""
    for offset in range(0, int(vars(type)["__basicsize__"].__get__(type)), _SIZE):
        if _tells(offset):
            return offset
    return None


class Unchanged:
    """Checks that a class is as it was: quickly by its number, or else by `facts`, a function of it.

    Parameters
    ----------
    kind : type
    facts : callable
        Gives what matters of a class as a tuple of texts and objects.
    """

    __slots__ = ("_facts", "_known", "_number", "_where")

    def __init__(self, kind: type, facts: Callable[[type], tuple[Any, ...]]) -> None:
        self._facts = facts
        self._known = tuple(part if isinstance(part, str) else ObjectRef(part) for part in facts(kind))
        offset = _offset()
        self._where = None if offset is None else ctypes.c_uint.from_address(id(kind) + offset)
        self._number = 0 if self._where is None else self._where.value

    def __call__(self, kind: type | None) -> bool:
        if kind is None:  # it is gone, and so is its number
            return False
        if self._number and self._where is not None and self._where.value == self._number:
            return True
        if not same_items(self._facts(kind), self._known):
            return False
        self._number = 0 if self._where is None else self._where.value
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unchanged) and (self._facts, self._known) == (other._facts, other._known)

    def __hash__(self) -> int:
        return hash(self._known)

    def __repr__(self) -> str:
        return "a class has other methods or bases"
