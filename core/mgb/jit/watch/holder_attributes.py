"""Attributes of a module or optimizer that mgb's own code may read."""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any

from ...tensor.holding import attributes_of
from ..guard import is_plain
from .known import top_of
from .names import codes_in


def attributes_read(holder: Any) -> list[str]:
    """Return the names of its attributes, but for plain values that only a user's code can name."""
    kind: Any = type(holder)
    own, named = vars(holder), _named(kind)
    return [name for name in attributes_of(holder) if name in named or not is_plain(own[name])]


@functools.lru_cache(maxsize=256)
def _named(kind: Any) -> frozenset[str]:
    """Return the names in the code of the classes of mgb's that a class is made of."""
    found: set[str] = set()
    for base in kind.__mro__:
        for value in vars(base).values() if top_of(base) == "mgb" else ():
            function = getattr(value, "__func__", getattr(value, "fget", value))
            for code in codes_in(function.__code__) if isinstance(function, FunctionType) else ():
                found.update(code.co_names, (part for part in code.co_consts if isinstance(part, str)))
    return frozenset(found)
