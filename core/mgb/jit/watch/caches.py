"""What functions made by `functools.lru_cache` keep."""

from __future__ import annotations

import gc
from typing import Any

from ..source import Held


class Kept:
    """What a function made by `lru_cache` has kept, which it still has where this is called."""

    def __init__(self, cached: Any) -> None:
        self._known = [Held(result) for result in results_in(cached)]

    def __call__(self, cached: Any) -> bool:
        now = set(map(id, results_in(cached)))
        return all(id(held.get()) in now and not held.is_gone() for held in self._known)

    def __repr__(self) -> str:
        return "a function has forgotten results that it kept by lru_cache"


def results_in(cached: Any) -> list[Any]:
    """The results that a function made by `lru_cache` keeps, and what it keeps them by."""
    found = []
    for part in gc.get_referents(cached):
        if type(part) is dict and part is not getattr(cached, "__dict__", None):
            found += [value for value in part.values() if type(value).__name__ != "_lru_list_elem"]
        elif part is not cached.__wrapped__ and not isinstance(part, (type, dict)):
            found.append(part)
    return found
