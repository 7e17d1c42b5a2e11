"""The compiled calls of one function that skip the body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..ir.scalars import FOLLOWED
from ..tensor import Tensor, of_handler
from .arguments import ArrayKey, Key, numbers_in
from .body_calls import cache_limit
from .generated import MISS
from .guard import Guard, same
from .record import Record
from .source import Argument, Attribute, Cell, Global, Item, Source, try_read
from .weak_cache import WeakCache

#: The most calls for the same arguments, which differ in what they find outside, such as a ``grad``.
STATES = 8

#: The most calls in a row that are recorded for arguments that differ in numbers, strings and objects alone.
_ALIKE = 16

#: The same, if they differ in the contents of an array that the body reads: data differ at each call.
_CONTENTS = 2

#: The most keys with a count of misses.
_MISSED = 256

#: The most calls between two misses in a row.
_BETWEEN = 8

#: Indices of leaves, in order.
Indices = tuple[int, ...]


class Specializations:
    """Compiled calls by the keys of the arguments that they were recorded for: see `arguments.key_of`.

    A number among the arguments, or outside, is guarded by value at first. When it changes, the call is
    recorded for any number there, and that record serves all numbers as long as Python only computes with
    them. Where a number decides something, there is one record for each outcome.
    """

    def __init__(self) -> None:
        self._calls: WeakCache[list[Any]] = WeakCache()  # the newest first
        #: By patterns: the indices of arguments that may be any number.
        self._free: WeakCache[list[Indices]] = WeakCache()
        self._newest: WeakCache[Any] = WeakCache()  # by patterns
        self._resizable: WeakCache[list[Any]] = WeakCache()  # by forms
        #: By keys: the number of misses in a row, and the call of the last one.
        self._missed: dict[tuple[Any, ...], tuple[int, int]] = {}

    def __iter__(self) -> Iterator[Any]:
        """Yield the calls, the oldest first."""
        for calls in self._calls.values():
            yield from reversed(calls)

    def keys(self) -> list[Key]:
        """Return the keys of all calls."""
        return list(self._calls)

    def find(self, key: Key) -> list[Any]:
        """Return the calls that may serve arguments with `key`."""
        return [call for known in self._matching_keys(key) for call in self._calls.get(known) or ()]

    def _matching_keys(self, key: Key) -> list[Key]:
        """Return `key`, and the keys of calls that take any number as some arguments."""
        free = self._free.get(key.pattern) if len(self._free) else None
        return [key, *(key.without_numbers(indices) for indices in free or ())]

    def newest(self, key: Key) -> Any:
        """Return the latest call for arguments with `key`, ignoring numbers and lengths, or None."""
        return self._newest.get(key.pattern)

    def resized(self, key: Key, leaves: Sequence[Any], run: Callable[[Any], Any]) -> Any:
        """Return the result by a call that was recorded for arguments of other lengths, or `MISS`."""
        for known in self._of_other_lengths(key):
            call = known.resized(leaves)
            result = MISS if call is None else run(call)
            if result is not MISS:
                self._add(key, call, leaves)
                return result
        return MISS

    def find_deciding_line(self, key: Key, leaves: Sequence[Any]) -> str | None:
        """Return the line of the guard of lengths that keeps calls of other lengths from serving `leaves`."""
        sized = (call.variant.sized for call in self._of_other_lengths(key))
        return next(filter(None, (record.decides(leaves) for record in sized)), None)

    def _of_other_lengths(self, key: Key) -> list[Any]:
        """Return the calls with symbolic lengths, for arguments with `key` ignoring lengths."""
        return [call for known in self._matching_keys(key) for call in self._resizable.get(known.form) or ()]

    def add(self, key: Key, call: Any, leaves: Sequence[Any]) -> None:
        """Add a call that was recorded for `leaves`, arguments with `key`."""
        freed = self._add(key, call, leaves)
        if call.variant.sized is not None:
            _put_first(self._resizable, freed.form, call, leaves, call)

    def _add(self, key: Key, call: Any, leaves: Sequence[Any]) -> Key:
        pattern, freed = key.pattern, key
        if free := _free_arguments(call.variant.abstract_record):
            _put_first(self._free, pattern, free, leaves, call)
            freed = key.without_numbers(free)
        _put_first(self._calls, freed, call, leaves, call)
        self._newest.keep(pattern, call, leaves, cache_limit(call.variant))
        return freed

    # what changes

    def find_symbolic(self, key: Key, leaves: Sequence[Any]) -> frozenset[Source]:
        """Return the sources of numbers that differ from the latest call like the one with `leaves`."""
        newest = self.newest(key)
        if newest is None:
            return frozenset()
        record: Record = newest.variant.abstract_record
        now, then = numbers_in(leaves), record.numbers
        arguments = (Argument(index) for index in now if now[index] != then[index])
        outside = (source for guard in record.guards for source in _find_changed(guard, leaves))
        return record.follows.union(arguments, outside)

    def is_megamorphic(self, key: Key, leaves: Sequence[Any], now: int) -> bool:
        """Count a miss of the call `now` with `leaves`; return whether there were too many in a row."""
        most = (_CONTENTS if self._has_new_contents(key, leaves) else STATES) if self.find(key) else _ALIKE
        return self._count_miss(key.without_numbers(), now) > most

    def _has_new_contents(self, key: Key, leaves: Sequence[Any]) -> bool:
        """Check whether an array argument that the latest call read has other contents now."""
        newest = self.newest(key)
        unmet = None if newest is None else newest.variant.abstract_record.guards.unmet(leaves)
        return unmet is not None and unmet.test == "array" and isinstance(unmet.source, Argument)

    def count_megamorphic(self, key: Key, now: int) -> int:
        """Count a miss because of new strings or objects; return by how many misses there are too many, or 0.

        It returns 0 at ever fewer calls, in case the latest strings and objects come again.
        """
        if self.newest(key) is not None:
            return 0
        structure, shared, *leaves = key
        kinds = (leaf if isinstance(leaf, ArrayKey) else leaf[:1] for leaf in leaves)
        often = self._count_miss((structure, shared, *kinds), now) - _ALIKE
        return often if often > 0 and often & (often - 1) else int(often == 1)

    def _count_miss(self, key: tuple[Any, ...], now: int) -> int:
        """Return how many misses in a row calls had that share `key`."""
        often, then = self._missed.pop(key, (0, 0))
        often = often + 1 if now - then <= _BETWEEN else 1
        self._missed[key] = often, now
        while len(self._missed) > _MISSED:
            del self._missed[next(iter(self._missed))]
        return often


def _put_first(cache: WeakCache[list[Any]], key: Key, first: Any, leaves: Sequence[Any], call: Any) -> None:
    """Move `first` to the front of the calls for `key`, and keep it as long as `call` lives."""
    others = [other for other in cache.get(key) or () if other != first]
    cache.keep(key, [first, *others][:STATES], leaves, cache_limit(call.variant))


def _free_arguments(record: Record) -> Indices:
    """Return the indices of arguments that may be any number: they were symbolic, and are not guarded."""
    if not record.follows:
        return ()
    fixed = {guard.source for guard in record.guards if guard.test == "same"}
    free = record.follows - fixed
    return tuple(sorted(source.index for source in free if isinstance(source, Argument)))


def _find_changed(guard: Guard, leaves: Sequence[Any]) -> Iterator[Source]:
    """Yield the sources where a guard finds another number, Tensor or array; in a tuple, each number."""
    if _may_be_symbolic(guard, leaves):
        yield guard.source
    elif guard.test == "same" and type(guard.value) is tuple and not guard.holds(leaves):
        now = try_read(guard.source, leaves)
        if type(now) is tuple and [*map(type, now)] == [*map(type, guard.value)]:
            pairs = enumerate(zip(now, guard.value, strict=True))
            yield from (
                Item(guard.source, n) for n, (a, b) in pairs if type(a) in FOLLOWED and not same(a, b)
            )


def _may_be_symbolic(guard: Guard, leaves: Sequence[Any]) -> bool:
    """Check whether a guard finds another number of the same type, or another Tensor or array."""
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
