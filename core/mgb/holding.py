"""What an object holds for others, as long as it lives, and is no part of its state."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Any

#: Among the attributes of a `Holder`.
_ATTRIBUTE = "_kept_calls"


class Holder:
    """Holds things for others: see `holdings_of`. Copies and pickles have none of it."""

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        if isinstance(state, tuple):  # of a class with __slots__
            attributes, slots = state
            return _without_holdings(attributes), slots
        return _without_holdings(state)


def _without_holdings(state: Any) -> Any:
    if not isinstance(state, dict) or _ATTRIBUTE not in state:
        return state
    return {name: value for name, value in state.items() if name != _ATTRIBUTE}


class Holdings(weakref.WeakKeyDictionary[Any, dict[Hashable, Any]]):
    """What is held, for each of those that it is held for; a class may have a ``__getstate__`` of its own."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Holdings, ()

    def __deepcopy__(self, memo: Any) -> Holdings:
        return Holdings()


def holdings_of(holder: Holder) -> Holdings:
    """What `holder` holds; it goes with it, though it may refer to it."""
    held: Holdings = vars(holder).setdefault(_ATTRIBUTE, Holdings())
    return held
