"""Which things that code compares by identity are one object, and which are several."""

from __future__ import annotations

import functools
from collections import defaultdict
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from ...tensor import Tensor
from ..guard import is_plain
from ..source import Source, Sources
from .protocols import Places

#: Those of which something else guards which one it is, where that matters.
_GUARDED = (Tensor, np.ndarray, ModuleType, type, FunctionType)


def guard_identities(walk: Places, by_is: bool) -> None:
    """Guard that things that are several objects do not become one.

    Parameters
    ----------
    walk : Places
    by_is : bool
        Does code compare things by ``is``? What has no ``==`` of its own, ``==`` compares so, too.
    """
    given = frozenset(walk.given.values())
    kinds: dict[type, list[tuple[Source, Any]]] = defaultdict(list)
    for source, value in walk.found():
        kind = type(value)
        if not is_plain(value) and not issubclass(kind, _GUARDED) and (by_is or kind is functools.partial):
            kinds[kind].append((source, value))
            if by_is and kind in given and getattr(source, "name", None) in walk.identified:
                walk.tell(f"may compare a {kind.__name__} among the arguments with {source} by its identity")
    for found in kinds.values():
        if len(found) > 1 and any(id(value) not in walk.fixed for _, value in found):
            walk.guard(Sources(tuple([source for source, _ in found])), "different", len(found))
