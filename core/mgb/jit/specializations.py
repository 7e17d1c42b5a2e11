"""What serves the calls of one function that skip their body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .arguments import form_of, numbers_in, places_of_numbers, without_numbers
from .guard import MISS, Guard
from .kept import Kept
from .record import Record
from .source import Argument, Attribute, Cell, Global, Item, Source
from .variants import most_like

#: Calls kept for the same arguments: they differ in what they find outside, such as a ``grad`` or none.
STATES = 8

#: So many for arguments that differ in numbers alone.
_NUMBERS = 32

#: Calls between two that nothing serves, if each finds other things than all before.
_BETWEEN = 8

Key = tuple[Any, ...]


class Specializations:
    """Compiled calls by the arguments that they were recorded for: see `arguments.key_of`.

    A number among the arguments, or outside, has to be what it was, until it is another one. The call that
    finds that is recorded for any such number. So one call serves it from then on, as far as Python only
    computes with the number; where it decides something, there are several calls, as for any other thing.
    """

    def __init__(self) -> None:
        self._calls: Kept[list[Any]] = Kept()  # the newest first
        self._of_any_number: Kept[list[Any]] = Kept()  # by keys without numbers
        self._newest: Kept[Any] = Kept()  # likewise
        self._resizable: Kept[list[Any]] = Kept()  # by forms
        self._missed: dict[Key, tuple[int, int]] = {}  # likewise: how often in a row, and when that was

    def __len__(self) -> int:
        return len(self._calls) + len(self._of_any_number)

    def __iter__(self) -> Any:
        """The calls, the oldest first, and those for any number last."""
        for calls in (*self._calls.values(), *self._of_any_number.values()):
            yield from reversed(calls)

    def keys(self) -> list[Key]:
        """Those of arguments that calls were recorded for."""
        return list(self._calls)

    def of(self, key: Key) -> list[Any]:
        """The calls that may serve arguments with `key`."""
        calls = self._calls.get(key) or []
        if not len(self._of_any_number):
            return calls
        return [*calls, *(self._of_any_number.get(without_numbers(key)) or ())]

    def newest(self, key: Key) -> Any:
        """The latest call for arguments with `key`, but for numbers; None: there is none."""
        return self._newest.get(without_numbers(key))

    def resized(self, key: Key, leaves: Sequence[Any], run: Callable[[Any], Any]) -> Any:
        """The result by a call that was recorded for arguments of other lengths, or `MISS`."""
        form = form_of(key)
        for known in (*self._resizable_of(form), *self._resizable_of(without_numbers(form))):
            call = known.resized(leaves)
            result = MISS if call is None else run(call)
            if result is not MISS:
                self._add(key, call, leaves)
                return result
        return MISS

    def _resizable_of(self, form: Key) -> list[Any]:
        return self._resizable.get(form) or []

    def keep(self, key: Key, call: Any, leaves: Sequence[Any]) -> None:
        """Keep a call that was recorded for `leaves`, arguments with `key`."""
        form = form_of(self._add(key, call, leaves))
        if call.variant.sized is not None:
            calls = [call, *self._resizable_of(form)][:STATES]
            self._resizable.keep(form, calls, leaves, most_like(call.variant))

    def _add(self, key: Key, call: Any, leaves: Sequence[Any]) -> Key:
        most, record = most_like(call.variant), call.variant.outline
        calls, loose = self._calls, without_numbers(key)
        if record.follows:
            calls, key = self._of_any_number, loose
        calls.keep(key, [call, *(calls.get(key) or ())][:STATES], leaves, most)
        self._newest.keep(loose, call, leaves, most)
        return key

    # what changes

    def follows(self, key: Key, leaves: Sequence[Any]) -> frozenset[Source]:
        """Where the call with `leaves`, which nothing serves, finds other numbers than the latest like it."""
        newest = self.newest(key)
        if newest is None:
            return frozenset()
        record: Record = newest.variant.outline
        numbers = zip(places_of_numbers(leaves), numbers_in(leaves), record.numbers)
        arguments = (Argument(place) for place, now, then in numbers if now != then)
        outside = (g.source for g in record.guards or () if _is_of_other_number(g, leaves))
        return record.follows.union(arguments, outside)

    def is_ever_new(self, key: Key, now: int) -> bool:
        """Told that nothing serves the call `now`; did that happen too often in a row?"""
        loose = without_numbers(key)
        often, then = self._missed.pop(loose, (0, 0))
        often = often + 1 if now - then <= _BETWEEN else 1
        self._missed[loose] = often, now
        while len(self._missed) > _MISSED:
            del self._missed[next(iter(self._missed))]
        return often > (STATES if self.of(key) else _NUMBERS)


#: Arguments of which is known how often nothing served them.
_MISSED = 256


def _is_of_other_number(guard: Guard, leaves: Sequence[Any]) -> bool:
    """Has a number, which the guard wants to be as it was, another value of the same type?"""
    if guard.test != "same" or type(guard.value) not in (int, float):
        return False
    if not isinstance(guard.source, Global | Cell | Attribute | Item) or guard.holds(leaves):
        return False
    try:
        return type(guard.source.read(leaves)) is type(guard.value)
    except Exception:
        return False
