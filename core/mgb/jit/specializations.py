"""What serves the calls of one function that skip their body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..scalars import FOLLOWED
from ..tensor import Tensor, of_handler
from .arguments import ArrayKey, Key, numbers_in
from .bodies import most_like
from .guard import MISS, Guard, same
from .record import Record
from .source import Argument, Attribute, Cell, Global, Item, Source, found_at
from .weak_cache import WeakCache

#: Calls kept for the same arguments: they differ in what they find outside, such as a ``grad`` or none.
STATES = 8

#: Calls in a row that are recorded for arguments that differ in numbers, texts and objects alone.
_ALIKE = 16

#: The same, where what differs is in an array that the body looks at: data, which are others at each call.
_CONTENTS = 2

#: Arguments of which is known how often nothing served them.
_MISSED = 256

#: Calls between two that nothing serves, if each finds other things than all before.
_BETWEEN = 8

#: Of leaves, in order.
Indices = tuple[int, ...]


class Specializations:
    """Compiled calls by the arguments that they were recorded for: see `arguments.key_of`.

    A number among the arguments, or outside, has to be what it was, until it is another one. The call that
    finds that is recorded for any such number. So one call serves it from then on, as far as Python only
    computes with the number; where it decides something, there are several calls, as for any other thing.
    """

    def __init__(self) -> None:
        self._calls: WeakCache[list[Any]] = WeakCache()  # the newest first
        self._free: WeakCache[list[Indices]] = WeakCache()  # by patterns: which arguments may have any number
        self._newest: WeakCache[Any] = WeakCache()  # by patterns
        self._resizable: WeakCache[list[Any]] = WeakCache()  # by forms
        #: By keys: how often in a row nothing served such calls, and when that was.
        self._missed: dict[tuple[Any, ...], tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[Any]:
        """The calls, the oldest first."""
        for calls in self._calls.values():
            yield from reversed(calls)

    def keys(self) -> list[Key]:
        """Those that calls are kept by."""
        return list(self._calls)

    def of(self, key: Key) -> list[Any]:
        """The calls that may serve arguments with `key`."""
        return [call for known in self._keys_of(key) for call in self._calls.get(known) or ()]

    def _keys_of(self, key: Key) -> list[Key]:
        """`key`, and those of calls that take any number as some arguments."""
        free = self._free.get(key.pattern) if len(self._free) else None
        return [key, *(key.without_numbers(indices) for indices in free or ())]

    def newest(self, key: Key) -> Any:
        """The latest call for arguments with `key`, but for numbers and lengths; None: there is none."""
        return self._newest.get(key.pattern)

    def resized(self, key: Key, leaves: Sequence[Any], run: Callable[[Any], Any]) -> Any:
        """The result by a call that was recorded for arguments of other lengths, or `MISS`."""
        for known in self._of_other_lengths(key):
            call = known.resized(leaves)
            result = MISS if call is None else run(call)
            if result is not MISS:
                self._add(key, call, leaves)
                return result
        return MISS

    def decides(self, key: Key, leaves: Sequence[Any]) -> str | None:
        """The line where lengths decide, for which a call recorded for others does not serve `leaves`."""
        sized = (call.variant.sized for call in self._of_other_lengths(key))
        return next(filter(None, (record.decides(leaves) for record in sized)), None)

    def _of_other_lengths(self, key: Key) -> list[Any]:
        """The calls whose lengths are symbolic, for arguments with `key` but for lengths."""
        return [call for known in self._keys_of(key) for call in self._resizable.get(known.form) or ()]

    def keep(self, key: Key, call: Any, leaves: Sequence[Any]) -> None:
        """Keep a call that was recorded for `leaves`, arguments with `key`."""
        freed = self._add(key, call, leaves)
        if call.variant.sized is not None:
            _put(self._resizable, freed.form, call, leaves, call)

    def _add(self, key: Key, call: Any, leaves: Sequence[Any]) -> Key:
        pattern, freed = key.pattern, key
        if free := _free_arguments(call.variant.outline):
            _put(self._free, pattern, free, leaves, call)
            freed = key.without_numbers(free)
        _put(self._calls, freed, call, leaves, call)
        self._newest.keep(pattern, call, leaves, most_like(call.variant))
        return freed

    def drop(self, key: Key) -> None:
        """Keep none any more for arguments with `key`."""
        for known in self._keys_of(key):
            self._calls.drop(known)

    # what changes

    def follows(self, key: Key, leaves: Sequence[Any]) -> frozenset[Source]:
        """Where the call with `leaves`, which nothing serves, finds other numbers than the latest like it."""
        newest = self.newest(key)
        if newest is None:
            return frozenset()
        record: Record = newest.variant.outline
        now, then = numbers_in(leaves), record.numbers
        arguments = (Argument(index) for index in now if now[index] != then[index])
        outside = (source for guard in record.guards or () for source in _followed(guard, leaves))
        return record.follows.union(arguments, outside)

    def is_ever_new(self, key: Key, leaves: Sequence[Any], now: int) -> bool:
        """Told that nothing serves the call `now` with `leaves`; did that happen too often in a row?"""
        most = (_CONTENTS if self._holds_others(key, leaves) else STATES) if self.of(key) else _ALIKE
        return self._count(key.without_numbers(), now) > most

    def _holds_others(self, key: Key, leaves: Sequence[Any]) -> bool:
        """Does an array among the arguments hold other values than the latest call like it looked at?"""
        newest = self.newest(key)
        unmet = None if newest is None else newest.variant.outline.guards.unmet(leaves)
        return unmet is not None and unmet.test == "array" and isinstance(unmet.source, Argument)

    def has_ever_new(self, key: Key, now: int) -> int:
        """Told the same: how often it is too often for texts and objects that no call had; 0: it is not.

        At ever fewer calls it is not, in case the latest of them are here to stay.
        """
        if self.newest(key) is not None:
            return 0
        structure, shared, *leaves = key
        kinds = (leaf if isinstance(leaf, ArrayKey) else leaf[:1] for leaf in leaves)
        often = self._count((structure, shared, *kinds), now) - _ALIKE
        return often if often > 0 and often & (often - 1) else int(often == 1)

    def _count(self, key: tuple[Any, ...], now: int) -> int:
        """How often in a row nothing served calls with arguments that have `key` in common."""
        often, then = self._missed.pop(key, (0, 0))
        often = often + 1 if now - then <= _BETWEEN else 1
        self._missed[key] = often, now
        while len(self._missed) > _MISSED:
            del self._missed[next(iter(self._missed))]
        return often


def _put(kept: WeakCache[list[Any]], key: Key, first: Any, leaves: Sequence[Any], call: Any) -> None:
    """Have `first` be the first of what is kept for `key`, as long as `call` would be."""
    others = [other for other in kept.get(key) or () if other != first]
    kept.keep(key, [first, *others][:STATES], leaves, most_like(call.variant))


def _free_arguments(record: Record) -> Indices:
    """Where any number may stand among the arguments: it was followed, and did not have to stay."""
    if not record.follows:
        return ()
    fixed = {guard.source for guard in record.guards if guard.test == "same"}
    free = record.follows - fixed
    return tuple(sorted(source.index for source in free if isinstance(source, Argument)))


def _followed(guard: Guard, leaves: Sequence[Any]) -> Iterator[Source]:
    """Where another number, Tensor or array is found than the guard wants; in a tuple, each number."""
    if _may_follow(guard, leaves):
        yield guard.source
    elif guard.test == "same" and type(guard.value) is tuple and not guard.holds(leaves):
        now = found_at(guard.source, leaves)
        if type(now) is tuple and [*map(type, now)] == [*map(type, guard.value)]:
            pairs = enumerate(zip(now, guard.value, strict=True))
            yield from (
                Item(guard.source, n) for n, (a, b) in pairs if type(a) in FOLLOWED and not same(a, b)
            )


def _may_follow(guard: Guard, leaves: Sequence[Any]) -> bool:
    """Is there another number now than the guard wants, of the same type, or another Tensor or array?"""
    if guard.test == "array" and isinstance(guard.source, Argument):
        return not guard.holds(leaves)
    if not isinstance(guard.source, Global | Cell | Attribute | Item) or guard.holds(leaves):
        return False
    try:
        now = guard.source.read(leaves)
    except Exception as error:
        if of_handler(error):
            raise
        return False
    if guard.test == "array":
        return type(now) is np.ndarray
    if guard.test == "same":
        return type(now) in FOLLOWED and type(now) is type(guard.value)
    then = guard.value.get() if guard.test == "is" else now  # None where it is gone
    return isinstance(now, Tensor) and (then is None or isinstance(then, Tensor)) and then is not now
